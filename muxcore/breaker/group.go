package breaker

import (
	"slices"
	"sync"
)

// Group is a pool of paths of which some must stay closed: a member may only
// trip if at least Min others are closed after it did. An operator's ForceOpen
// is not asked. Safe for concurrent use.
type Group struct {
	mu sync.Mutex

	min     int
	members map[*Breaker]bool // whether it is closed
	closed  int
}

// NewGroup returns an empty group that keeps at least n paths closed.
func NewGroup(n int) *Group { return &Group{min: n, members: make(map[*Breaker]bool)} }

// Add makes b a member. It does nothing if it is one.
func (g *Group) Add(b *Breaker) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if slices.Contains(b.groups, g) {
		return
	}
	b.groups = append(b.groups, g)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.members[b] = false
	g.setLocked(b, b.phase.state() == Closed)
}

// Remove ends the membership of b.
func (g *Group) Remove(b *Breaker) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, have := range b.groups {
		if have == g {
			b.groups = append(b.groups[:i:i], b.groups[i+1:]...)
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.members[b] {
		g.closed--
	}
	delete(g.members, b)
}

// Len returns how many members there are.
func (g *Group) Len() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.members)
}

// set notes whether b is closed. It is called with b's lock held.
func (g *Group) set(b *Breaker, closed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.setLocked(b, closed)
}

// leave takes b out of the closed ones if enough remain, in one step: two
// members that trip at once cannot both be the last but one.
func (g *Group) leave(b *Breaker) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.members[b] && g.closed-1 < g.min {
		return false
	}
	g.setLocked(b, false)
	return true
}

func (g *Group) setLocked(b *Breaker, closed bool) {
	was, member := g.members[b]
	if !member || was == closed {
		return
	}
	g.members[b] = closed
	if closed {
		g.closed++
	} else {
		g.closed--
	}
}

// mayOpen asks every group, and takes the place back where one says no. It must
// be called with b.mu held.
func (b *Breaker) mayOpen() bool {
	for i, g := range b.groups {
		if !g.leave(b) {
			for _, left := range b.groups[:i] {
				left.set(b, true)
			}
			return false
		}
	}
	return true
}
