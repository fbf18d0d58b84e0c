package caddybreaker

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/suaveplan/caddy-storage-mux/internal/strictjson"
)

func init() { caddy.RegisterModule((*App)(nil)) }

const (
	appName         = "relay_breaker"
	defaultRegistry = "default"

	// dynamicIdle is how long a path first seen in traffic is kept without any.
	dynamicIdle = time.Hour
	// sweepInterval is how often idle ones are looked for.
	sweepInterval = 5 * time.Minute
)

var registryName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// App holds the registries of breakers: where the defaults of their options are
// set, and where everything that guards a path finds its breaker. A registry
// that is not configured comes into being, with plain defaults, when it is used.
type App struct {
	// The registries by name; the one used where none is named is "default".
	Registries map[string]*RegistryConfig `json:"registries,omitempty"`

	logger    *zap.Logger
	announcer *announcer

	stop chan struct{}
	wg   sync.WaitGroup

	mu sync.Mutex

	registries map[string]*registry
	running    bool
}

// RegistryConfig is what the paths of a registry have in common.
type RegistryConfig struct {
	// The name of this end of each path: <local_id>→<upstream>. Default: the host
	// name.
	LocalID string `json:"local_id,omitempty"`

	Options
}

// CaddyModule returns the Caddy module information.
func (*App) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  appName,
		New: func() caddy.Module { return new(App) },
	}
}

// UnmarshalJSON implements json.Unmarshaler: an error names the field.
func (a *App) UnmarshalJSON(data []byte) error {
	type plain App
	return strictjson.Decode(data, (*plain)(a))
}

// Provision sets up a.
func (a *App) Provision(ctx caddy.Context) error {
	a.logger = ctx.Logger()
	var err error
	if a.announcer, err = announcerOf(ctx); err != nil {
		return fmt.Errorf("getting events app: %w", err)
	}
	a.registries = make(map[string]*registry)
	a.stop = make(chan struct{})
	for _, name := range sortedKeys(a.Registries) {
		if err := a.provisionRegistry(name, a.Registries[name]); err != nil {
			return err
		}
	}
	if err := registerMetrics(ctx, a); err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	return nil
}

// Start implements caddy.App. Only from here on are breakers observed and paths
// probed: a config that is only validated does neither.
func (a *App) Start() error {
	for _, r := range a.begin() {
		for _, g := range r.guards() {
			a.attach(r, g)
		}
	}
	go a.announcer.serve()
	a.wg.Go(a.sweep)
	return nil
}

// begin makes a the running app, and returns its registries. From here on, who
// makes a guard attaches it.
func (a *App) begin() []*registry {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.running = true
	all := make([]*registry, 0, len(a.registries))
	for _, r := range a.registries {
		r.adopt()
		all = append(all, r)
	}
	return all
}

// Stop implements caddy.App.
func (a *App) Stop() error {
	a.mu.Lock()
	a.running = false
	var all []*guard
	for _, r := range a.registries {
		all = append(all, r.guards()...)
	}
	a.mu.Unlock()
	for _, g := range all {
		g.unwatch()
	}
	close(a.stop)
	a.wg.Wait()
	a.announcer.stop()
	return nil
}

// Cleanup gives back the references to breakers.
func (a *App) Cleanup() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	var errs []error
	for _, r := range a.registries {
		errs = append(errs, r.close())
	}
	return errors.Join(errs...)
}

func (a *App) provisionRegistry(name string, cfg *RegistryConfig) error {
	if !registryName.MatchString(name) {
		return fmt.Errorf("registry '%s': a name is 1 to 64 letters, digits, _ or -", name)
	}
	if cfg == nil {
		cfg = new(RegistryConfig)
	}
	if err := cmp.Or(cfg.oneRule(), cfg.validate()); err != nil {
		return fmt.Errorf("registry '%s': %w", name, err)
	}
	r := newRegistry(a, name, cfg.Options)
	if cfg.LocalID != "" {
		if err := r.setLocalID(cfg.LocalID); err != nil {
			return err
		}
	}
	a.registries[name] = r
	return nil
}

// registry returns the registry of a name, a new one at first.
func (a *App) registry(name string) (*registry, error) {
	name = or(name, defaultRegistry)
	a.mu.Lock()
	defer a.mu.Unlock()
	if r, ok := a.registries[name]; ok {
		return r, nil
	}
	if err := a.provisionRegistry(name, nil); err != nil {
		return nil, err
	}
	return a.registries[name], nil
}

func (a *App) allRegistries() []*registry {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := make([]*registry, 0, len(a.registries))
	for _, r := range a.registries {
		all = append(all, r)
	}
	return all
}

// attach makes a an observer of a guard's breaker, and starts what watches it.
// It must be called without any lock held: changes may be delivered meanwhile.
func (a *App) attach(r *registry, g *guard) {
	g.watch(a)
	a.mu.Lock()
	running := a.running
	a.mu.Unlock()
	if !running || r.lookup(g.upstream) != g {
		g.unwatch() // it was stopped, or the path removed, just before
	}
}

// sweep forgets dynamic paths that nobody uses any more.
func (a *App) sweep() {
	ticker := time.NewTicker(sweepInterval)
	defer ticker.Stop()
	for {
		select {
		case <-a.stop:
			return
		case now := <-ticker.C:
			for _, r := range a.allRegistries() {
				r.forgetIdle(now.Add(-dynamicIdle))
			}
		}
	}
}

// breakerApp returns the app of the config that is being loaded.
func breakerApp(ctx caddy.Context) (*App, error) {
	app, err := ctx.App(appName)
	if err != nil {
		return nil, err
	}
	return app.(*App), nil
}

// hostName is the default local_id.
func hostName() string {
	name, err := os.Hostname()
	if err != nil || name == "" {
		return "local"
	}
	return validUTF8(name)
}

// validUTF8 makes a name fit for a metric: a label that is not UTF-8 would fail
// the whole scrape.
func validUTF8(name string) string { return strings.ToValidUTF8(name, "\uFFFD") }

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// Interface guards.
var (
	_ caddy.App          = (*App)(nil)
	_ caddy.Provisioner  = (*App)(nil)
	_ caddy.CleanerUpper = (*App)(nil)
)
