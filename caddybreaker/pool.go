package caddybreaker

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/caddyserver/caddy/v2"

	"github.com/suaveplan/caddy-storage-mux/muxcore/breaker"
)

// pool holds the breakers of every config that is loaded. An entry lives as long
// as some config refers to it: a new config takes its own reference before the
// old one gives up its, so state outlives a reload. The options are part of the
// key, so an edited breaker starts afresh.
var pool = caddy.NewUsagePool()

// entryKey is what makes a breaker the same one over reloads.
type entryKey struct{ registry, path, digest string }

// entry is a breaker with its life's totals.
type entry struct {
	key     entryKey
	breaker *breaker.Breaker
	opts    Options // effective, for operators

	// dynamic paths were first seen in traffic; a new config takes them over.
	dynamic atomic.Bool

	mu sync.Mutex

	views  []*App  // of the configs that watch the path, in the order they came
	ledger *ledger // where it is counted

	calls       [3]atomic.Uint64 // by outcome
	transitions [3]atomic.Uint64 // by new state
}

// acquire returns the entry of key with a reference of its own.
func acquire(key entryKey, def *definition) (*entry, error) {
	v, _, err := pool.LoadOrNew(key, func() (caddy.Destructor, error) {
		b, err := breaker.New(key.path, def.opts.settings())
		if err != nil {
			return nil, err
		}
		e := &entry{key: key, breaker: b, opts: def.opts}
		b.Subscribe(e.changed)
		return e, nil
	})
	if err != nil {
		return nil, err
	}
	return v.(*entry), nil
}

// Destruct implements caddy.Destructor.
func (e *entry) Destruct() error {
	e.retire()
	e.breaker.Close()
	return nil
}

// remove forgets the path; the next request to it starts afresh.
func (e *entry) remove() {
	app := e.observer()
	if app == nil {
		e.breaker.Reset()
		return
	}
	for _, r := range app.allRegistries() {
		for _, g := range r.guards() {
			if g.entry == e {
				r.remove(g)
			}
		}
	}
}

func (e *entry) changed(c breaker.Change) {
	e.transitions[c.To].Add(1)
	if app := e.observer(); app != nil {
		app.observe(e, c)
	}
}

// observer returns who is told of changes: the newest config that has started as
// a whole, else the newest one; nil if there is none. A config that fails to
// start must not silence the one that goes on running.
func (e *entry) observer() *App {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, a := range slices.Backward(e.views) {
		if a.announcer.running() {
			return a
		}
	}
	if n := len(e.views); n > 0 {
		return e.views[n-1]
	}
	return nil
}

func (e *entry) watchBy(a *App) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.views = append(e.views, a)
}

func (e *entry) unwatch(a *App) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if i := slices.Index(e.views, a); i >= 0 {
		e.views = slices.Delete(e.views, i, i+1)
	}
}

// entries returns every entry there is.
func entries() []*entry {
	var all []*entry
	pool.Range(func(_, v any) bool {
		all = append(all, v.(*entry))
		return true
	})
	return all
}

// Interface guards.
var _ caddy.Destructor = (*entry)(nil)
