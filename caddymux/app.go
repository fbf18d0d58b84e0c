package caddymux

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyfs"

	"github.com/suaveplan/caddy-storage-mux/internal/strictjson"
	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

func init() { caddy.RegisterModule(new(App)) }

// appID is the name of the app in a config.
const appID = "storage_mux"

// App knows the storage trees of a config: it starts them, and tells the log, the events app and the metrics of that
// config about them. It holds the named trees, which handlers, file systems and the certificate storage can share, and
// needs no config where there are none.
type App struct {
	// The named trees, by name: letters, digits, `_` and `-`, at most 64, and not a mode. Whatever uses a tree by its name
	// uses one instance with one state. A tree that is declared inline elsewhere must not have one of these names, unless
	// it is equal.
	Trees map[string]*Mux `json:"trees,omitempty"`

	observer *observer
	named    map[string]*door
	making   []string               // named trees that are being provisioned, each used by the one before
	listed   []*caddyfs.Filesystems // in which trees are file systems

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

// UnmarshalJSON implements json.Unmarshaler: an error names the field.
func (a *App) UnmarshalJSON(data []byte) error {
	type plain App
	return strictjson.Decode(data, (*plain)(a))
}

// Provision implements caddy.Provisioner.
func (a *App) Provision(ctx caddy.Context) (err error) {
	if a.observer, err = newObserver(ctx, a); err != nil {
		return err
	}
	if err := ctx.GetMetricsRegistry().Register(&collector{a}); err != nil {
		return err
	}
	a.named = make(map[string]*door)
	for _, name := range slices.Sorted(maps.Keys(a.Trees)) {
		if _, err := a.tree(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// tree finds a named tree. While the app is provisioned, those that others use are made before them, whatever their names.
func (a *App) tree(ctx caddy.Context, name string) (*door, error) {
	if d, ok := a.named[name]; ok {
		return d, nil
	}
	if _, ok := a.Trees[name]; !ok {
		return nil, unknownTree(name, slices.Sorted(maps.Keys(a.Trees)))
	}
	return a.provisionTree(ctx, name)
}

// provisionTree makes a named tree.
func (a *App) provisionTree(ctx caddy.Context, name string) (d *door, err error) {
	if at := slices.Index(a.making, name); at >= 0 {
		return nil, errCycle(append(slices.Clone(a.making[at:]), name))
	}
	a.making = append(a.making, name)
	defer func() {
		a.making = a.making[:len(a.making)-1]
	}()
	if err := checkName("tree", name); err != nil {
		return nil, err
	}
	if a.Trees[name] == nil {
		return nil, ofTree(name, coded(muxcore.CodeBackendNotFound, "no backend"))
	}
	root, err := newResolver(ctx, a).tree(name, *a.Trees[name])
	if err != nil {
		return nil, err
	}
	d = new(door)
	a.named[name] = d
	return d, d.join(a, root)
}

// Cleanup lets go of the named trees. Whoever still uses one keeps it open.
func (a *App) Cleanup() error {
	var errs []error
	for _, d := range a.named {
		errs = append(errs, d.leave())
	}
	return errors.Join(errs...)
}

// unknownTree is the error of a tree that no global option declares.
func unknownTree(name string, known []string) error {
	if len(known) == 0 {
		return fmt.Errorf("unknown storage tree %q: declare it by the global option \"storage_mux %s …\"", name, name)
	}
	return fmt.Errorf("unknown storage tree %q, known are %s", name, strings.Join(known, ", "))
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
		t.keepHealth()
	}
	a.observer.start() // last: Caddy does not stop an app whose start failed
	return nil
}

// Stop ends what tells of events. Trees and file systems end with the handlers and requests that use them.
func (a *App) Stop() error {
	a.stayListed()
	a.observer.stop()
	return nil
}

// Interface guards.
var (
	_ caddy.App          = (*App)(nil)
	_ caddy.Provisioner  = (*App)(nil)
	_ caddy.CleanerUpper = (*App)(nil)
)
