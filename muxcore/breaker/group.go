package breaker

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// Group is a pool of paths of which some must stay in rotation, which means
// closed, as a half-open path has few places and may have none left, and
// available, as far as others than the breaker decide that. A member may only
// trip if at least that many others are in rotation; and where fewer are, because
// members came or went, became unavailable, or somebody forced one open, those
// due back first are closed again. What an operator forced open stays open. Safe
// for concurrent use.
type Group struct {
	min       int
	available func(*Breaker) bool
	changing  sync.Mutex // of those who change the members

	mu sync.Mutex

	members map[*Breaker]standing
	inRot   int // closed and available
	usable  int // available
}

// standing is what a group knows of a member.
type standing struct{ closed, away bool }

func (s standing) inRotation() bool { return s.closed && !s.away }

// NewGroup returns an empty group that keeps at least n paths in rotation.
// available tells whether a member could be called as far as its breaker does not
// decide it, such as by health checks; nil: always. It is called without any lock
// held, by Set, by Refresh, and before a member may trip.
func NewGroup(n int, available func(*Breaker) bool) *Group {
	if available == nil {
		available = func(*Breaker) bool { return true }
	}
	return &Group{min: n, available: available, members: make(map[*Breaker]standing)}
}

// Set makes these the members, and no others.
func (g *Group) Set(members ...*Breaker) {
	g.change(members)
	g.refill()
}

// Refresh asks again which members are available, and closes others where too few
// are left. Call it when that may have changed.
func (g *Group) Refresh() {
	for _, b := range g.list() {
		g.note(b, !g.available(b))
	}
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
		away := !g.available(b)
		g.add(b, away)
		g.note(b, away) // of one that was a member before
	}
	for _, b := range g.list() {
		if !slices.Contains(members, b) {
			g.remove(b)
		}
	}
}

func (g *Group) add(b *Breaker, away bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if slices.Contains(b.groups, g) {
		return
	}
	b.groups = append(slices.Clip(b.groups), g)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.members[b] = standing{away: true} // counts for nothing yet
	g.setLocked(b, standing{closed: b.phase.state() == Closed, away: away})
}

func (g *Group) remove(b *Breaker) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.groups = slices.DeleteFunc(slices.Clone(b.groups), func(have *Group) bool { return have == g })
	g.mu.Lock()
	defer g.mu.Unlock()
	g.setLocked(b, standing{away: true})
	delete(g.members, b)
}

// note notes whether b is away.
func (g *Group) note(b *Breaker, away bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.setLocked(b, standing{closed: g.members[b].closed, away: away})
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
	g.setLocked(b, standing{closed: closed, away: g.members[b].away})
	return g.shortLocked()
}

// leave takes b out of the closed ones if enough others are in rotation, in one
// step: two members that trip at once cannot both be the last but one. One that
// is away is kept closed, too: its own calls may be what makes it so.
func (g *Group) leave(b *Breaker) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	was, member := g.members[b]
	others := g.inRot
	if was.inRotation() {
		others--
	}
	if member && was.closed && others < g.min {
		return false
	}
	g.setLocked(b, standing{away: was.away})
	return true
}

func (g *Group) short() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.shortLocked()
}

// shortLocked reports whether too few are in rotation and some could be.
func (g *Group) shortLocked() bool { return g.inRot < g.min && g.inRot < g.usable }

// wants reports whether closing b would help.
func (g *Group) wants(b *Breaker) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	member, ok := g.members[b]
	return ok && !member.away && g.shortLocked()
}

func (g *Group) setLocked(b *Breaker, is standing) {
	was, member := g.members[b]
	if !member || was == is {
		return
	}
	g.members[b] = is
	g.usable += one(!is.away) - one(!was.away)
	g.inRot += one(is.inRotation()) - one(was.inRotation())
}

func one(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// refill closes members until enough are in rotation. It must be called without any
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

// comeBack closes b if that gives g what it misses.
func (b *Breaker) comeBack(g *Group) {
	defer b.deliver()
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.settle(now)
	if _, forced := b.phase.(*forcedPhase); forced || b.phase.state() == Closed || !g.wants(b) {
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

// refreshGroups has the groups look at who is available, before a failure may
// have b trip. It must be called with b.mu held, and gives it up meanwhile.
func (b *Breaker) refreshGroups() {
	if len(b.groups) == 0 {
		return
	}
	groups := b.groups // never changed in place
	b.mu.Unlock()
	defer b.mu.Lock()
	for _, g := range groups {
		g.Refresh()
	}
}
