package muxcore

import (
	"context"
	"errors"
	"slices"
)

// Delete implements [Store]. It goes to every writable backend, in every mode. The origin of a shield decides it, and with
// conditions the first backend that is up and can write conditionally; the others follow.
func (m *Mux) Delete(ctx context.Context, key string, opts DeleteOptions) (DeleteResult, error) {
	if err := CheckStoreKey(key); err != nil {
		return DeleteResult{}, err
	}
	ctx, span := m.startSpan(ctx, OpDelete, key)
	defer endSpan(span)
	o := m.begin(OpDelete, key)
	defer o.end()
	o.call.del = opts
	if !o.view.canWrite {
		return DeleteResult{}, &Error{Code: CodeReadOnly, Op: OpDelete, Key: key}
	}
	unlock, err := m.commits.lock(ctx, key)
	if err != nil {
		return DeleteResult{}, m.aborted(ctx, &o.call, 0)
	}
	defer unlock()
	if m.mode.origin && !o.view.all[0].writable() {
		return DeleteResult{}, originReadOnly(o)
	}
	if err := m.leaveOutUnfit(o); err != nil {
		return DeleteResult{}, err
	}
	o.memo = m.memo(o)
	if err := o.memo.begin(m.standing(o)); err != nil {
		return DeleteResult{}, err
	}
	r, err := m.decideDelete(ctx, o)
	if o.memo != nil && err != nil && !errors.Is(err, ErrKeyNotFound) && !o.memo.took {
		o.memo.done = nil // those that never had it are no news
	}
	if forgot := o.memo.close(); err == nil {
		err = forgot
	}
	return r, err
}

// leaveOutUnfit has a delete go past those that can never hold the key. They have nothing to delete: what they would miss could never be
// brought to them. If that is all of them, the key is a bad one.
func (m *Mux) leaveOutUnfit(o *operation) error {
	unfit := func(b *backend) bool { return !b.canHold(o.call.key) }
	if !slices.ContainsFunc(o.view.writers, unfit) && !slices.ContainsFunc(o.view.away, unfit) {
		return nil
	}
	fit := *o.view
	fit.writers = slices.DeleteFunc(slices.Clone(fit.writers), unfit)
	fit.away = slices.DeleteFunc(slices.Clone(fit.away), unfit)
	if len(fit.writers)+len(fit.away) == 0 {
		b := slices.Concat(o.view.writers, o.view.away)[0]
		return m.annotate(CheckKeyOf(b.Store, o.call.key), &o.call, b, 0)
	}
	o.view = &fit
	return nil
}

// decideDelete deletes, once somebody has decided that it may be done.
func (m *Mux) decideDelete(ctx context.Context, o *operation) (DeleteResult, error) {
	switch {
	case m.mode.origin:
		return m.deleteOrigin(ctx, o, o.view.all[0])
	case !o.call.del.Conditions.Empty():
		return m.deleteIf(ctx, o)
	}
	return m.deleteAll(ctx, o, nil)
}

// deleteOrigin lets the origin of a shield decide. That it has no such object does not keep it on the mirrors.
func (m *Mux) deleteOrigin(ctx context.Context, o *operation, origin *backend) (DeleteResult, error) {
	if !origin.canHold(o.call.key) && o.call.del.Conditions.Empty() {
		return m.deleteAll(ctx, o, nil)
	}
	p, ok := m.admit(origin, OpDelete, m.set.LastResort)
	if !ok {
		o.lastErr, o.lastFrom = m.whyNot(origin, OpDelete), origin.Name
		return DeleteResult{}, m.exhausted(ctx, o)
	}
	class := m.try(ctx, o, origin, p)
	m.release(origin)
	if class == ClassOK || isMiss(o.answer.err) && o.call.del.Conditions.Empty() {
		return m.deleteAll(ctx, o, origin)
	}
	o.memo.failed(class)
	if m.goesOn(o, origin, class) && (class.Counts() || isUnsure(o.answer.err)) {
		return DeleteResult{}, m.exhausted(ctx, o)
	}
	return DeleteResult{}, m.final(ctx, o, origin, class)
}

// deleteIf lets the first writable backend that is up and can write conditionally decide.
func (m *Mux) deleteIf(ctx context.Context, o *operation) (DeleteResult, error) {
	if err := m.askDeciders(o); err != nil {
		return DeleteResult{}, err
	}
	for b, p := m.nextReader(ctx, o); b != nil; b, p = m.nextReader(ctx, o) {
		if err := m.heldBefore(ctx, o, b); err != nil {
			m.settle(b, OpDelete, p, ClassAbort, err)
			m.release(b)
			return DeleteResult{}, err
		}
		class := m.try(ctx, o, b, p)
		m.release(b)
		if class == ClassOK {
			return m.deleteAll(ctx, o, b)
		}
		o.memo.failed(class)
		if !m.goesOn(o, b, class) {
			return DeleteResult{}, m.final(ctx, o, b, class)
		}
	}
	return DeleteResult{}, m.exhausted(ctx, o)
}

// deleteAll deletes on every writable backend but the one that has decided, whose answer o holds.
func (m *Mux) deleteAll(ctx context.Context, o *operation, decided *backend) (DeleteResult, error) {
	o.call.del.Conditions = Conditions{}
	shares := m.shares(o, decided)
	m.fan(ctx, shares, o.deadline)
	t := m.tally(shares)
	o.attempts += t.calls
	via := Via{Attempts: o.attempts}
	held := decided != nil && o.answer.err == nil
	o.memo.deleted(o, shares, decided, held || len(t.done) > 0)
	if o.memo.gone() { // what was still somewhere was no object any more
		held = held && !o.memo.stale(decided)
		had := len(t.done)
		t.done = slices.DeleteFunc(t.done, func(s *share) bool { return o.memo.stale(s.b) })
		t.absent += had - len(t.done)
	}
	if decided != nil && o.answer.err == nil {
		t.inside(decided, o.answer.missed) // also where it had but an old version of what was deleted before
	}
	switch {
	case held:
		via.Backend = decided.dotted(o.answer.info.Via.Backend)
	case decided != nil:
		t.absent++
	}
	switch {
	case ctx.Err() != nil:
		return DeleteResult{}, m.aborted(ctx, &o.call, o.attempts)
	case held:
	case len(t.done) > 0:
		via.Backend = t.done[0].b.dotted(t.done[0].answer.info.Via.Backend)
	case t.no != nil:
		return DeleteResult{}, m.annotate(t.no.answer.err, &o.call, t.no.b, o.attempts)
	case o.memo.gone(), t.absent > 0 && len(t.missed)+len(o.view.away) == 0:
		return DeleteResult{}, &Error{Code: CodeKeyNotFound, Op: OpDelete, Key: o.call.key, Attempts: o.attempts}
	case t.absent == 0:
		return DeleteResult{}, m.nobody(ctx, o, shares, &t)
	}
	t.refused()
	if err := m.settlePartial(o, &t); err != nil {
		return DeleteResult{}, err
	}
	return DeleteResult{Via: via, Missed: t.missed}, nil
}
