package muxcore

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

var errNoConditions = errors.New("no backend can write conditionally")

// askDeciders has the operation ask who can decide its conditions: in config order, in sticky_by_key the key's own backend first.
func (m *Mux) askDeciders(o *operation) error {
	all := o.walk.p
	o.walk.p = conditional(all)
	if len(o.walk.p.members) == 0 {
		return &Error{Code: CodeUnsupported, Op: o.call.op, Key: o.call.key, Err: errNoConditions}
	}
	o.walk.inOrder = m.set.Mode != StickyByKey
	if n := len(all.ready); m.set.Mode == StickyByKey && n > 1 && len(o.walk.p.ready) < n { // of fewer, another one would be the key's own
		own := all.ready[ownBackend(m, all, o.call.key)]
		if i := slices.Index(o.walk.p.ready, own); i >= 0 {
			o.walk.p.ready = slices.Insert(slices.Delete(o.walk.p.ready, i, i+1), 0, own)
			o.walk.inOrder = true
		}
	}
	m.deciders(o)
	return nil
}

// conditional is the part of p that can write conditionally.
func conditional(p *pool) *pool {
	only := func(all []*backend) (some []*backend) {
		for _, b := range all {
			if b.abilities().ConditionalWrite {
				some = append(some, b)
			}
		}
		return some
	}
	return &pool{members: only(p.members), ready: only(p.ready), backups: only(p.backups)}
}

// deciders leaves those out of the operation's pool that lack the newest state of the key: they must not decide conditions.
func (m *Mux) deciders(o *operation) {
	if !m.pending() {
		return
	}
	m.consult(o)
	if o.stale != nil {
		fresh := *o.walk.p
		fresh.stale = nil
		o.walk.p = &fresh
	}
}

// heldBefore refuses a conditional write that b is to decide if a backend has the key that reads would ask before b, and that
// cannot decide conditions: what b says is not about what is read then. If the conditions do not hold there, that is the
// answer. If they do, nobody could decide in one step. Called in the key's turn, it leaves a gap only to those who write past
// the mux.
func (m *Mux) heldBefore(ctx context.Context, o *operation, b *backend) error {
	cond := o.call.put.Conditions
	if o.call.op == OpDelete {
		cond = o.call.del.Conditions
	}
	if cond.Empty() || m.mode.fanout {
		return nil
	}
	for _, before := range m.preferred(o, b) {
		if before.abilities().ConditionalWrite || before.drain.out() || m.outdated(o.call.key, before) {
			continue
		}
		info, err := (&seat{m: m, b: before}).stat(ctx, o.call.key, false)
		if err != nil { // it has none, or it is passed over as by any write
			continue
		}
		if err = cond.CheckWrite(o.call.key, &info); err == nil {
			err = &Error{Code: CodeUnsupported, Err: fmt.Errorf("it holds the key and cannot decide conditions, so %s must not in its place", b.Name)}
		}
		return m.annotate(err, &o.call, before, o.attempts)
	}
	return nil
}
