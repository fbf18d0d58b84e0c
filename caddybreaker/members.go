package caddybreaker

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/suaveplan/caddy-storage-mux/muxcore/breaker"
)

// membership keeps the group of a proxy's pool for min_available. The zero value
// keeps none. The members join with the first request, not while a config is
// loaded that may yet fail.
type membership struct {
	group *breaker.Group // nil: min_available is off
	pool  atomic.Pointer[[]member]

	mu sync.Mutex // of those who change pool

	weights []int // of the inner policy, if it has any
	left    bool  // nobody joins any more
}

// member is an upstream of the pool: as the breaker knows it, nil where that does
// not, and as Caddy does.
type member struct {
	guard     *guard
	upstream  *reverseproxy.Upstream
	never     bool // its weight says so
	available bool // when it was last looked at
}

// keep starts a group that keeps n paths in rotation.
func (m *membership) keep(n int) { m.group = breaker.NewGroup(n, m.available) }

// weigh says that the inner policy chooses by weights: an upstream without one is
// never chosen.
func (m *membership) weigh(weights []int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.weights = weights
}

// usable reports whether Caddy would send the upstream a request.
func (m member) usable() bool { return !m.never && m.upstream.Available() }

// has reports whether the member at a place of the pool is this one, and as
// available as it was.
func (m *membership) has(at int, g *guard, up *reverseproxy.Upstream) bool {
	pool := m.pool.Load()
	if pool == nil || at >= len(*pool) {
		return false
	}
	// Dynamic upstreams are made anew all the time; what Caddy knows of one is in its Host.
	known := &(*pool)[at]
	return known.guard == g && known.upstream.Host == up.Host && known.available == (!known.never && up.Available())
}

// available reports whether Caddy would call the path of b: its health checks,
// its limits and the weights of its policy have their own say.
func (m *membership) available(b *breaker.Breaker) bool {
	pool := m.pool.Load()
	if pool == nil {
		return true
	}
	return slices.ContainsFunc(*pool, func(known member) bool {
		return known.guard != nil && known.guard.entry.breaker == b && known.usable()
	})
}

// size returns how many upstreams the pool has.
func (m *membership) size() int {
	if pool := m.pool.Load(); pool != nil {
		return len(*pool)
	}
	return 0
}

// sync makes guards the members, if they are not already; nil stands for an
// upstream without one. Pools change where upstreams are dynamic, guards where an
// operator removes a path, and what is available with Caddy's health checks.
func (m *membership) sync(pool reverseproxy.UpstreamPool, guards []*guard) {
	if m.isCurrent(pool, guards) {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.left {
		return // a request that the old config still serves
	}
	members := make([]member, len(guards))
	breakers := make([]*breaker.Breaker, 0, len(guards))
	for i, g := range guards {
		members[i] = member{guard: g, upstream: pool[i], never: m.weights != nil && (i >= len(m.weights) || m.weights[i] == 0)}
		members[i].available = members[i].usable()
		if g != nil {
			breakers = append(breakers, g.entry.breaker)
		}
	}
	m.pool.Store(&members)
	m.group.Set(breakers...)
}

func (m *membership) isCurrent(pool reverseproxy.UpstreamPool, guards []*guard) bool {
	if m.size() != len(guards) {
		return false
	}
	for i, g := range guards {
		if !m.has(i, g, pool[i]) {
			return false
		}
	}
	return true
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
