package caddybreaker

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/suaveplan/caddy-storage-mux/muxcore/breaker"
)

// membership keeps the group of a proxy's pool for min_available. The zero value
// keeps none.
type membership struct {
	group *breaker.Group // nil: min_available is off
	pool  atomic.Pointer[[]*guard]

	mu   sync.Mutex // of those who change pool
	left bool       // nobody joins any more
}

// keep starts a group that keeps n of guards closed.
func (m *membership) keep(n int, guards []*guard) {
	m.group = breaker.NewGroup(n)
	m.sync(guards)
}

// sync makes guards the members, if they are not already. Pools change where
// upstreams are dynamic, and guards where an operator removes a path.
func (m *membership) sync(guards []*guard) {
	if before := m.pool.Load(); before != nil && slices.Equal(*before, guards) {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.left {
		return // a request that the old config still serves
	}
	m.change(guards)
}

// change must be called with mu held.
func (m *membership) change(guards []*guard) {
	for _, g := range guards {
		m.group.Add(g.entry.breaker)
	}
	if before := m.pool.Load(); before != nil {
		for _, g := range *before {
			if !slices.Contains(guards, g) {
				m.group.Remove(g.entry.breaker)
			}
		}
	}
	m.pool.Store(&guards)
}

// leave ends every membership: breakers outlive the config that grouped them.
func (m *membership) leave() {
	if m.group == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.left = true
	m.change(nil)
}
