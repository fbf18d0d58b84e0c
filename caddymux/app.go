package caddymux

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/caddyserver/caddy/v2"
)

func init() { caddy.RegisterModule(new(App)) }

// appID is the name of the app in a config.
const appID = "storage_mux"

// App knows the storage trees of a config: it starts them, and tells the log, the events app and the metrics of that
// config about them. It needs no config of its own.
type App struct {
	observer *observer

	mu    sync.Mutex
	trees map[string]adopted // by name
}

// adopted is a tree that the config uses.
type adopted struct {
	key treeKey
	t   *tree
}

// CaddyModule returns the Caddy module information.
func (*App) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  appID,
		New: func() caddy.Module { return new(App) },
	}
}

// Provision implements caddy.Provisioner.
func (a *App) Provision(ctx caddy.Context) (err error) {
	if a.observer, err = newObserver(ctx); err != nil {
		return err
	}
	return ctx.GetMetricsRegistry().Register(&collector{a})
}

// appOf is the app of the config that is being provisioned.
func appOf(ctx caddy.Context) (*App, error) {
	app, err := ctx.App(appID)
	if err != nil {
		return nil, err
	}
	return app.(*App), nil
}

// adopt makes a tree known in its config. Trees of one name must be one.
func (a *App) adopt(key treeKey, t *tree) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if other, ok := a.trees[key.name]; ok && other.key != key {
		return fmt.Errorf("two storage trees named %q that are not alike: make them equal, or give them different names by the option name", key.name)
	}
	for _, other := range a.trees {
		for _, dir := range t.root.journalDirs() {
			if other.t != t && slices.Contains(other.t.root.journalDirs(), dir) {
				return fmt.Errorf("journal: storage trees %q and %q have the same directory %s", other.key.name, key.name, dir)
			}
		}
	}
	if a.trees == nil {
		a.trees = make(map[string]adopted)
	}
	a.trees[key.name] = adopted{key, t}
	return nil
}

// all lists the trees of the config by name.
func (a *App) all() []*tree {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := make([]*tree, 0, len(a.trees))
	for _, one := range a.trees {
		list = append(list, one.t)
	}
	slices.SortFunc(list, func(x, y *tree) int { return strings.Compare(x.name, y.name) })
	return list
}

// Start opens the trees, which starts their health checks. A request that is earlier has opened its own.
func (a *App) Start() error {
	for _, t := range a.all() {
		if err := t.open(); err != nil {
			return fmt.Errorf("tree %q: %w", t.name, err)
		}
	}
	a.observer.start() // last: Caddy does not stop an app whose start failed
	return nil
}

// Stop ends what tells of events. Trees end with the handlers and requests that use them.
func (a *App) Stop() error {
	a.observer.stop()
	return nil
}

// Interface guards.
var (
	_ caddy.App         = (*App)(nil)
	_ caddy.Provisioner = (*App)(nil)
)
