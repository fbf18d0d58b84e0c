package breaker

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// Group is a pool of paths of which some must stay in rotation, which means
// closed: a half-open path has few places and may have none left. A member may
// only trip if at least that many are closed after it did; and where fewer are,
// because members came or went or somebody forced one open, those due back first
// are closed again. What an operator forced open stays open. Safe for concurrent
// use.
type Group struct {
	min      int
	changing sync.Mutex // of those who change the members

	mu sync.Mutex

	members map[*Breaker]bool // whether it is closed
	closed  int
}

// NewGroup returns an empty group that keeps at least n paths closed.
func NewGroup(n int) *Group { return &Group{min: n, members: make(map[*Breaker]bool)} }

// Set makes these the members, and no others.
func (g *Group) Set(members ...*Breaker) {
	g.change(members)
	g.refill()
}

// Len returns how many members there are.
func (g *Group) Len() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.members)
}

// change adds the new members before it removes the old ones, so that there are
// never fewer than before.
func (g *Group) change(members []*Breaker) {
	g.changing.Lock()
	defer g.changing.Unlock()
	for _, b := range members {
		g.add(b)
	}
	for _, b := range g.list() {
		if !slices.Contains(members, b) {
			g.remove(b)
		}
	}
}

func (g *Group) add(b *Breaker) {
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

func (g *Group) remove(b *Breaker) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.groups = slices.DeleteFunc(slices.Clone(b.groups), func(have *Group) bool { return have == g })
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.members[b] {
		g.closed--
	}
	delete(g.members, b)
}

func (g *Group) list() []*Breaker {
	g.mu.Lock()
	defer g.mu.Unlock()
	members := make([]*Breaker, 0, len(g.members))
	for b := range g.members {
		members = append(members, b)
	}
	return members
}

// set notes whether b is closed, and reports whether too few are now. It is
// called with b's lock held.
func (g *Group) set(b *Breaker, closed bool) (short bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.setLocked(b, closed)
	return g.shortLocked()
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

func (g *Group) short() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.shortLocked()
}

func (g *Group) shortLocked() bool { return g.closed < g.min && g.closed < len(g.members) }

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

// refill closes members until enough are closed. It must be called without any
// lock held.
func (g *Group) refill() {
	if !g.short() {
		return
	}
	for _, b := range g.byReturn() {
		b.comeBack(g)
	}
}

// byReturn returns the members in the order in which they would come back.
func (g *Group) byReturn() []*Breaker {
	members := g.list()
	due := make(map[*Breaker]time.Time, len(members))
	for _, b := range members {
		due[b] = b.back()
	}
	slices.SortFunc(members, func(x, y *Breaker) int {
		return cmp.Or(due[x].Compare(due[y]), cmp.Compare(x.path, y.path))
	})
	return members
}

// back returns when the breaker admits calls again; zero: it does, or nobody
// knows.
func (b *Breaker) back() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.phase.due()
}

// comeBack closes b if g misses closed members.
func (b *Breaker) comeBack(g *Group) {
	defer b.deliver()
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.settle(now)
	if _, forced := b.phase.(*forcedPhase); forced || b.phase.state() == Closed || !slices.Contains(b.groups, g) || !g.short() {
		return
	}
	b.enter(newClosed(&b.set, now), now, "in rotation again: too few of its pool would be left")
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
