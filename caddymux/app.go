package caddymux

import (
	"fmt"
	"sync"

	"github.com/caddyserver/caddy/v2"
)

func init() { caddy.RegisterModule(new(App)) }

// appID is the name of the app in a config.
const appID = "storage_mux"

// App knows the storage trees of a config, and starts them. It needs no config of its own.
type App struct {
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
	if a.trees == nil {
		a.trees = make(map[string]adopted)
	}
	a.trees[key.name] = adopted{key, t}
	return nil
}

// Start opens the trees, which starts their health checks. A request that is earlier has opened its own.
func (a *App) Start() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for name, one := range a.trees {
		if err := one.t.open(); err != nil {
			return fmt.Errorf("tree %q: %w", name, err)
		}
	}
	return nil
}

// Stop implements caddy.App. Trees end with the handlers and requests that use them.
func (*App) Stop() error { return nil }

// Interface guards.
var _ caddy.App = (*App)(nil)
