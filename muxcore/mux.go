package muxcore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/suaveplan/caddy-storage-mux/muxcore/journal"
)

// MaxDepth is how many muxes may stand in a chain, the outermost included.
const MaxDepth = 8

// Mux is a store made of stores. It is safe for concurrent use.
type Mux struct {
	set  Settings
	mode rule
	base atomic.Int64 // muxes above this one

	snapshot atomic.Pointer[view]
	turn     atomic.Uint64 // of round robin
	budgeted hedgeBudget
	*totals

	commits *keyLocks      // of all that changes a key
	journal *journal.Scope // nil: off
	replays replays

	readRepair *readRepair // nil: none
	pace       pace        // of copies to the backends

	leaving sync.WaitGroup // removed backends that are still in use

	mu       sync.Mutex // guards backends, removed and the making of views
	backends []*backend
	removed  []string // of those that the mux was made with
	parents  []*Mux
}

// New makes a mux of backends, in their order. It starts active health checks if the settings ask for them, and calls no
// store otherwise. Errors are those of [Check].
func New(set Settings, backends ...Backend) (*Mux, error) {
	if err := Check(set, backends...); err != nil {
		return nil, err
	}
	set.fillIn()
	was := set.State
	set.State = nil // it may hold on to all that came before
	m := &Mux{pace: pace{rate: set.RepairRate}, set: set, mode: rules[set.Mode], journal: set.Journal, commits: new(keyLocks)}
	m.totals, m.removed = was.carried()
	if m.journal != nil { // muxes that follow each other overlap, and must not commit across each other
		m.commits = m.journal.Shared(func() any { return new(keyLocks) }).(*keyLocks)
	}
	if set.ReadRepair {
		m.readRepair = newReadRepair(m)
	}
	for _, cfg := range backends {
		b := newBackend(cfg, set.Timeout, set.Now())
		b.nest(m)
		b.carryOn(was.of(b.Name), set.Now(), set.MaxCooldown)
		m.backends = append(m.backends, b)
	}
	keepOneReadable(m.backends)
	m.refresh()
	for _, b := range m.backends {
		m.watchHealth(b)
	}
	m.startReplay()
	return m, nil
}

// Close ends the health checks and closes the backends' stores. No operation may be under way, no body open, and none may
// follow. A store with a call that was abandoned is closed when that call comes back.
func (m *Mux) Close() error {
	m.mu.Lock()
	backends := m.backends
	m.mu.Unlock()
	var errs []error
	if m.readRepair != nil {
		m.readRepair.stop()
	}
	m.stopReplay()
	m.leaving.Wait()
	for _, b := range backends {
		b.stopHealth()
		b.unnest(m)
		if err := b.letGo(); err != nil {
			errs = append(errs, fmt.Errorf("closing backend %q: %w", b.Name, err))
		}
	}
	return errors.Join(errs...)
}

// CheckKey implements [KeyChecker]: a key that one of the writable backends can never hold is none of the mux's.
func (m *Mux) CheckKey(key string) error {
	if err := CheckStoreKey(key); err != nil {
		return err
	}
	for _, b := range m.snapshot.Load().writers {
		if err := CheckKeyOf(b.Store, key); err != nil {
			return m.annotate(err, &call{op: OpPut, key: key}, b, 0)
		}
	}
	return nil
}

// Capabilities implements [Capable]: what at least one backend can do.
func (m *Mux) Capabilities() Capabilities {
	var c Capabilities
	for _, b := range m.snapshot.Load().all {
		can := b.abilities() // once: below it are those of all in it
		writes := can.Write && !b.ReadOnly
		c.List = c.List || can.List
		c.Write = c.Write || writes
		c.ConditionalWrite = c.ConditionalWrite || writes && can.ConditionalWrite
		c.Metadata = c.Metadata || writes && can.Metadata
		c.Range = c.Range || can.Range
		c.Digests = c.Digests || can.Digests
		c.Purge = c.Purge || can.Purge
		c.Public = c.Public || can.Public
	}
	return c
}

// Waits implements [Waiter]: a mux gives up on backends that hang, so its own calls end with their context.
func (m *Mux) Waits() Waits {
	for _, b := range m.snapshot.Load().all {
		if b.waits != WaitsNever {
			return WaitsWithContext
		}
	}
	return WaitsNever
}

// Probe implements [Prober]: a mux is well while it could ask somebody.
func (m *Mux) Probe(context.Context) error {
	if p := &m.current().reads; len(p.ready)+len(p.backups) > 0 {
		return nil
	}
	return &Error{Code: CodeAllBackendsDown, Op: OpHealth}
}

// emit hands an event to the observer. It must not be called with a lock held.
func (m *Mux) emit(e Event) {
	if m.set.Observe == nil {
		return
	}
	e.At, e.Tree, e.Mode = m.set.Now(), m.set.Name, m.set.Mode
	m.set.Observe(e)
}
