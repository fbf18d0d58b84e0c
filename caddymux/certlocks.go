package caddymux

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"go.uber.org/zap"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/locks"
)

// seat is the place of a backend in a tree, those of nested muxes and of used trees included.
type seat struct {
	*member
	name     string // dotted
	readOnly bool   // it, or what it is in
}

// eachSeat calls f for every backend of the branch that is no mux itself, in config order.
func (b *branch) eachSeat(f func(seat)) { b.eachSeatIn("", false, f) }

func (b *branch) eachSeatIn(prefix string, readOnly bool, f func(seat)) {
	for i := range b.members {
		s := seat{&b.members[i], prefix + b.members[i].Name, readOnly || b.members[i].ReadOnly}
		if inner := s.inner(); inner != nil {
			inner.eachSeatIn(s.name+".", s.readOnly, f)
		} else {
			f(s)
		}
	}
}

// keepsLocks tells whether the store of the seat can have the locks of a tree.
func (s seat) keepsLocks() bool { return !s.readOnly && muxcore.CapabilitiesOf(s.store).Locks }

// treeLocks are the locks of a tree that is a certificate storage. They outlive a reload with the tree.
type treeLocks struct {
	once   sync.Once
	locker *locks.Locker
	place  string // the dotted name of the backend that keeps them
	err    error
}

var errNoLockPlace = errors.New("no backend can keep the locks of a certificate storage: at least one must be of type file, memory (for one process alone) or s3, and not read_only")

// findLocks finds the place of the tree's locks.
func (t *tree) findLocks() error {
	l := &t.locks
	l.once.Do(func() {
		place, ok := t.root.lockPlace()
		if !ok {
			l.err = errNoLockPlace
			return
		}
		l.place = place.name
		l.locker, l.err = locks.New(place.store, locks.Settings{Observe: t.tellLock})
	})
	if l.err != nil {
		return fmt.Errorf("tree %q: %w", t.name, l.err)
	}
	return nil
}

// lockPlace is the backend with the option locks, else the first that can keep them.
func (b *branch) lockPlace() (place seat, ok bool) {
	b.eachSeat(func(s seat) {
		if s.keepsLocks() && (!ok || s.Locks) {
			place, ok = s, true
		}
	})
	return place, ok
}

// checkLocks holds for the option locks, in every tree.
func (b *branch) checkLocks() (err error) {
	given := ""
	b.eachSeat(func(s seat) {
		switch {
		case !s.Locks || err != nil:
			return
		case given != "":
			err = fmt.Errorf("locks: two backends, %q and %q, cannot both keep them", given, s.name)
		case s.readOnly:
			err = fmt.Errorf("locks: backend %q is read_only", s.name)
		case !s.keepsLocks():
			err = fmt.Errorf("locks: backend %q is of type %s, which cannot keep any; file, memory and s3 can", s.name, s.Type)
		}
		given = s.name
	})
	return err
}

// guarded is a backend that must not be removed at run time.
type guarded struct {
	t    *tree
	name string // dotted
}

// errGuarded is why a backend cannot be removed.
var errGuarded = errors.New("the locks of the certificate storage live there")

// guard keeps a backend from being removed while the door is there; where it is in a tree that this one uses, there as well.
func (t *tree) guard(name string, d *door) {
	t.mu.Lock()
	if t.guards == nil {
		t.guards = make(map[string]int)
	}
	t.guards[name]++
	t.mu.Unlock()
	d.guards = append(d.guards, guarded{t, name})
	if inner, rest := t.root.usedAt(name); inner != nil {
		inner.guard(rest, d)
	}
}

// unguard takes back what guard did.
func (g guarded) unguard() {
	g.t.mu.Lock()
	defer g.t.mu.Unlock()
	if g.t.guards[g.name]--; g.t.guards[g.name] == 0 {
		delete(g.t.guards, g.name)
	}
}

// checkRemoval tells whether a backend may be removed at run time.
func (t *tree) checkRemoval(name string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for place := range t.guards {
		if place == name || strings.HasPrefix(place, name+".") {
			return fmt.Errorf("backend %q: %w", place, errGuarded)
		}
	}
	return nil
}

// lockLines are what the log says of locks.
var lockLines = map[locks.EventKind]string{
	locks.EventTakenOver: "took over a lock whose holder is gone",
	locks.EventAtRisk:    "a lock could not be refreshed in time: others may take it",
	locks.EventLost:      "lost a lock while it was held",
}

// tellLock tells the log of the config that runs.
func (t *tree) tellLock(e locks.Event) {
	if o := t.listener(); o != nil {
		o.logger.Warn(lockLines[e.Kind], zap.String("tree", t.name), zap.String("lock", e.Name), zap.String("backend", t.locks.place),
			zap.String("other", e.Owner), zap.Error(e.Err))
	}
}
