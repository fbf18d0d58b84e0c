package caddybreaker

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/suaveplan/caddy-storage-mux/muxcore/breaker"
)

// membership keeps the group of a proxy's pool for min_available. The zero value
// keeps none. The members join with the first request, not while a config is
// loaded that may yet fail.
type membership struct {
	group *breaker.Group // nil: min_available is off
	pool  atomic.Pointer[[]*guard]

	mu   sync.Mutex // of those who change pool
	left bool       // nobody joins any more
}

// keep starts a group that keeps n paths in rotation.
func (m *membership) keep(n int) { m.group = breaker.NewGroup(n) }

// has reports whether the member at a place of the pool is g.
func (m *membership) has(at int, g *guard) bool {
	pool := m.pool.Load()
	return pool != nil && at < len(*pool) && (*pool)[at] == g
}

// size returns how many upstreams the pool has.
func (m *membership) size() int {
	if pool := m.pool.Load(); pool != nil {
		return len(*pool)
	}
	return 0
}

// sync makes guards the members, if they are not already; nil stands for an
// upstream without one. Pools change where upstreams are dynamic, and guards
// where an operator removes a path.
func (m *membership) sync(guards []*guard) {
	if before := m.pool.Load(); before != nil && slices.Equal(*before, guards) {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.left {
		return // a request that the old config still serves
	}
	breakers := make([]*breaker.Breaker, 0, len(guards))
	for _, g := range guards {
		if g != nil {
			breakers = append(breakers, g.entry.breaker)
		}
	}
	m.group.Set(breakers...)
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
	m.group.Set()
}
