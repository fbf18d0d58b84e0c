package caddybreaker

import (
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

	// observer is told of changes: the app of the newest config that has started.
	observer atomic.Pointer[App]

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
	e.breaker.Close()
	return nil
}

// remove forgets the path; the next request to it starts afresh.
func (e *entry) remove() {
	app := e.observer.Load()
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
	if app := e.observer.Load(); app != nil {
		app.observe(e, c)
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
