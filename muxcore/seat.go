package muxcore

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"
)

// seat is a backend in its mux, and that mux's own seat in the mux above. What works on single backends instead of
// asking a mux (copies, comparison, repair) goes by seats.
type seat struct {
	m     *Mux
	b     *backend
	above *seat // of m; nil at the top

	index int // of those without a mux in them, in the order of the tree
}

// limb is a mux of a tree with what is in it, or a seat.
type limb struct {
	m     *Mux    // the mux, or the one that the seat is in
	parts []*limb // in config order
	seat  *seat   // of what is no mux
	name  string  // dotted; "" the top
}

// limbOf is the tree below m, whose own seat is above. The seats in it are added to all, in the order of the tree.
func limbOf(m *Mux, above *seat, all *[]*seat) *limb {
	l := &limb{m: m}
	if above != nil {
		l.name = above.name()
	}
	for _, b := range m.snapshot.Load().all {
		s := &seat{m: m, b: b, above: above}
		if b.nested != nil {
			l.parts = append(l.parts, limbOf(b.nested, s, all))
			continue
		}
		s.index = len(*all)
		*all = append(*all, s)
		l.parts = append(l.parts, &limb{m: m, seat: s, name: s.name()})
	}
	return l
}

// find is the limb of that dotted name, or nil.
func (l *limb) find(name string) *limb {
	if l.name == name {
		return l
	}
	for _, part := range l.parts {
		if part.name == name || strings.HasPrefix(name, part.name+".") {
			return part.find(name)
		}
	}
	return nil
}

// has tells whether the seat is in the limb.
func (l *limb) has(s *seat) bool {
	return l.seat == s || slices.ContainsFunc(l.parts, func(part *limb) bool { return part.has(s) })
}

// name is the backend's, dotted through nested muxes.
func (s *seat) name() string {
	if s.above == nil {
		return s.b.Name
	}
	return s.above.name() + "." + s.b.Name
}

// writable tells whether writes may ever go there.
func (s *seat) writable() bool { return s.b.writable() && (s.above == nil || s.above.writable()) }

// out tells whether the backend, or a mux that it is in, is out of service.
func (s *seat) out() bool { return s.b.drain.out() || s.above != nil && s.above.out() }

// wants tells whether the object at key belongs there: in sticky_by_key, each key has a backend of its own.
func (s *seat) wants(key string) bool {
	if s.m.set.Mode == StickyByKey && s.m.ownerOf(key) != s.b {
		return false
	}
	return s.above == nil || s.above.wants(key)
}

// ownerOf is the backend that a key belongs to in sticky_by_key while all are well; nil: none.
func (m *Mux) ownerOf(key string) *backend {
	members := m.snapshot.Load().reads.members
	ordinary := &pool{members: members}
	for _, b := range members {
		if !b.Backup {
			ordinary.ready = append(ordinary.ready, b)
		}
	}
	switch len(ordinary.ready) {
	case 0:
		if len(members) == 0 {
			return nil
		}
		return members[0]
	case 1:
		return ordinary.ready[0]
	}
	return ordinary.ready[ownBackend(m, ordinary, key)]
}

// enter counts a use of the muxes above, so that none of them is closed meanwhile.
func (s *seat) enter() bool {
	for a := s.above; a != nil; a = a.above {
		if !a.b.drain.enter() {
			for left := s.above; left != a; left = left.above {
				left.b.drain.leave()
			}
			return false
		}
	}
	return true
}

func (s *seat) leave() {
	for a := s.above; a != nil; a = a.above {
		a.b.drain.leave()
	}
}

const (
	trialPause = 20 * time.Millisecond
	trialWaits = 100
)

// admit takes a permit for one call; [seat.release] must follow, unless it gives an error. With force it does not wait for
// the end of a cooldown, but for that of somebody else's trial, as long as that is soon.
func (s *seat) admit(ctx context.Context, op Op, key string, force bool) (permit, error) {
	if !s.enter() {
		return permit{}, s.fault(op, key, &Error{Code: CodeBackendDraining})
	}
	p, ok := s.m.admit(s.b, op, force)
	for n := 0; !ok && force && n < trialWaits && s.b.health(op).view().trial && pauseFor(ctx, trialPause); n++ {
		p, ok = s.m.admit(s.b, op, force)
	}
	if !ok {
		s.leave()
		return permit{}, s.fault(op, key, s.m.whyNot(s.b, op))
	}
	return p, nil
}

func (s *seat) release() {
	s.m.release(s.b)
	s.leave()
}

// lock waits for the key's turn to be changed in every mux on the way, from the top, as writes take it.
func (s *seat) lock(ctx context.Context, key string) (unlock func(), err error) {
	free := func() {}
	if s.above != nil {
		if free, err = s.above.lock(ctx, key); err != nil {
			return nil, err
		}
	}
	own, err := s.m.commits.lock(ctx, key)
	if err != nil {
		free()
		return nil, err
	}
	return func() {
		own()
		free()
	}, nil
}

// fault says whose error it is.
func (s *seat) fault(op Op, key string, err error) error {
	told := Error{Code: codeOf(err), Err: err}
	if e, ok := errors.AsType[*Error](err); ok {
		told = *e
	}
	told.Op, told.Key, told.Backend = op, key, s.name()
	return &told
}

// call makes the operation's call there.
func (s *seat) call(ctx context.Context, o *operation, force bool) error {
	p, err := s.admit(ctx, o.call.op, o.call.key, force)
	if err != nil {
		return err
	}
	defer s.release()
	switch class := s.m.try(ctx, o, s.b, p); class { //nolint:exhaustive // all others are errors
	case ClassOK:
		return nil
	case ClassAbort:
		return s.m.aborted(ctx, &o.call, o.attempts)
	}
	return s.fault(o.call.op, o.call.key, o.answer.err)
}

// stat asks for the object's description.
func (s *seat) stat(ctx context.Context, key string, force bool) (Info, error) {
	o := s.m.aside(OpStat, key)
	if err := s.call(ctx, o, force); err != nil {
		return Info{}, err
	}
	return o.answer.info, nil
}

// remove deletes the object.
func (s *seat) remove(ctx context.Context, key string, cond Conditions, force bool) error {
	o := s.m.aside(OpDelete, key)
	o.call.del.Conditions = cond
	return s.call(ctx, o, force)
}

// aside is an operation on backends that were chosen otherwise than by the mode.
func (m *Mux) aside(op Op, key string) *operation {
	return &operation{call: call{op: op, key: key}, walk: walk{m: m, p: &pool{}}}
}
