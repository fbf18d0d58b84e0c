package caddymux

import (
	"errors"
	"fmt"
	"strings"

	"go.uber.org/zap"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/locks"
)

// seat is the place of a backend in a tree, those of nested muxes and of used trees included.
type seat struct {
	*member
	name     string // dotted
	readOnly bool   // it, or what it is in

	// The tree, and those on the way to the seat that it uses, with its name in each. Only of a tree as it stands.
	in []guarded
}

// eachSeat calls f for every backend of the branch that is no mux itself, in config order.
func (b *branch) eachSeat(f func(seat)) { b.eachSeatIn("", false, f) }

func (b *branch) eachSeatIn(prefix string, readOnly bool, f func(seat)) {
	for i := range b.members {
		s := seat{member: &b.members[i], name: prefix + b.members[i].Name, readOnly: readOnly || b.members[i].ReadOnly}
		if inner := s.inner(); inner != nil {
			inner.eachSeatIn(s.name+".", s.readOnly, f)
		} else {
			f(s)
		}
	}
}

// keepsLocks tells whether the store of the seat can have the locks of a tree.
func (s seat) keepsLocks() bool { return !s.readOnly && muxcore.CapabilitiesOf(s.store).Locks }

// treeLocks are the locks of a tree that is a certificate storage. They outlive a reload with the tree. changing guards them.
type treeLocks struct {
	locker *locks.Locker
	place  seat // the backend that keeps them
}

var errNoLockPlace = errors.New("no backend can keep the locks of a certificate storage: at least one must be of type file, memory (for one process alone) or s3, and not read_only")

// findLocks finds the place of the tree's locks: the one that they had so far while it is there, else another. It must be called with
// changing locked.
func (t *tree) findLocks() error {
	if t.locks.locker != nil && t.has(t.locks.place) {
		return nil
	}
	place, ok := t.lockPlace()
	if !ok {
		return fmt.Errorf("tree %q: %w", t.name, errNoLockPlace)
	}
	locker, err := locks.New(place.store, locks.Settings{Observe: func(e locks.Event) { t.tellLock(place.name, e) }})
	if err != nil {
		return fmt.Errorf("tree %q: %w", t.name, err)
	}
	t.locks = treeLocks{locker, place}
	return nil
}

// has tells whether a seat of the tree is still in it.
func (t *tree) has(place seat) (found bool) {
	t.eachSeatNow(func(s seat) { found = found || s.member == place.member && s.name == place.name })
	return found
}

// lockPlace is the backend with the option locks, else the first that can keep them, of those that are there now.
func (t *tree) lockPlace() (place seat, ok bool) {
	t.eachSeatNow(func(s seat) {
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

// guard keeps the backend from being removed until unguard, also by way of the trees that this one uses.
func (s seat) guard() {
	for _, g := range s.in {
		g.t.mu.Lock()
		if g.t.guards == nil {
			g.t.guards = make(map[string]int)
		}
		g.t.guards[g.name]++
		g.t.mu.Unlock()
	}
}

// unguard takes back what guard did.
func (s seat) unguard() {
	for _, g := range s.in {
		g.t.mu.Lock()
		if g.t.guards[g.name]--; g.t.guards[g.name] == 0 {
			delete(g.t.guards, g.name)
		}
		g.t.mu.Unlock()
	}
}

// heldLocks are the locks of a tree, which stays open and keeps their place until they are let go.
type heldLocks struct {
	*locks.Locker
	t     *tree
	place seat
}

// holdLocks finds the locks of the tree, which is acquired, and keeps both. After an error the tree is released.
func (t *tree) holdLocks() (heldLocks, error) {
	changing.Lock()
	defer changing.Unlock()
	if err := t.findLocks(); err != nil {
		t.release()
		return heldLocks{}, err
	}
	t.locks.place.guard()
	return heldLocks{t.locks.locker, t, t.locks.place}, nil
}

func (h heldLocks) letGo() {
	h.place.unguard()
	h.t.release()
}

// checkRemoval tells whether a backend of the tree itself may be removed at run time.
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
func (t *tree) tellLock(place string, e locks.Event) {
	if o := t.listener(); o != nil {
		o.logger.Warn(lockLines[e.Kind], zap.String("tree", t.name), zap.String("lock", e.Name), zap.String("backend", place),
			zap.String("other", e.Owner), zap.Error(e.Err))
	}
}
