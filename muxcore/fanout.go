package muxcore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// putAll puts to every writable backend. In shield, and where conditions are to be decided, one backend decides: the
// others commit only after it has, and not at all if it does not. One that turns out to be unable leaves it to the next.
func (m *Mux) putAll(ctx context.Context, o *operation, load *payload) (PutResult, error) {
	for {
		decider, p, err := m.decider(ctx, o)
		if err != nil {
			return PutResult{}, err
		}
		r, err := m.putAs(ctx, o, load, decider, p)
		if m.mode.origin || decider == nil || !errors.Is(err, ErrUnsupported) || !load.replayable() {
			return r, err
		}
		o.unable = err
	}
}

// putAs puts to every writable backend as the decider, which is admitted, decides; nil: as all of them do.
func (m *Mux) putAs(ctx context.Context, o *operation, load *payload, decider *backend, p permit) (PutResult, error) {
	shares := m.shares(o, decider)
	if decider != nil {
		for i := range shares {
			shares[i].call.put.Conditions = Conditions{}
		}
		first := share{b: decider, permit: p, decides: true, call: o.call}
		shares = append([]share{first}, shares...)
	}
	n := m.memo(o)
	unlock := m.stream(ctx, o, shares, load, n)
	defer unlock()
	if n.over() {
		return PutResult{}, n.refused
	}
	forgot := n.close()
	r, err := m.putResult(ctx, o, shares, load, n)
	if err == nil {
		err = forgot
	}
	return r, err
}

// decider is the backend whose word is final for this Put, admitted; nil if all are equal.
func (m *Mux) decider(ctx context.Context, o *operation) (*backend, permit, error) {
	switch origin := o.view.all[0]; {
	case m.mode.origin:
		if p, ok := m.admit(origin, OpPut, m.set.LastResort); ok {
			return origin, p, nil
		}
		o.lastErr, o.lastFrom = m.whyNot(origin, OpPut), origin.Name
		return nil, permit{}, m.exhausted(ctx, o)
	case o.call.put.Conditions.Empty():
		return nil, permit{}, nil
	}
	b, p := o.walk.next(nil)
	if b == nil {
		return nil, permit{}, m.exhausted(ctx, o)
	}
	return b, p, nil
}

// stream gives one body to all shares and waits for each to end. One that is slow, and not needed for a success, is waited
// for no longer than its timeout once the others have committed. The key's turn, if it came, lasts until unlock is called.
func (m *Mux) stream(ctx context.Context, o *operation, shares []share, load *payload, n *memo) (unlock func()) {
	reading, stop := context.WithCancel(ctx)
	enough := m.quorum(o)
	if m.set.FailPartialWrites {
		enough = len(shares)
	}
	cast := newBroadcast(load.stream(), m.set.Spool, len(shares), enough, func() (err error) {
		if unlock, err = m.commits.lock(reading, o.call.key); err == nil {
			if err = n.begin(standingOf(shares, o.view.away)); err != nil {
				stop() // so that nobody gets the end of the body
			}
		}
		return err
	})
	defer cast.close()
	decided := shares[0].decides
	for i := range shares {
		s, r := &shares[i], cast.readers[i]
		r.decides, r.follows, r.patience = s.decides, decided && !s.decides, s.b.Timeout
		s.call.body = &attemptBody{src: r, branch: r, known: load.body}
		s.done = func() {
			cast.finished(r, s.answer.err)
			if s.decides {
				cast.permit(s.answer.err)
			}
		}
		if s.skipped {
			r.leave()
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() { cast.run(reading) })
	m.fan(ctx, shares, time.Time{})
	stop()
	wg.Wait()
	n.add(shares, unlock != nil)
	n.missing(o.view.away)
	if unlock == nil {
		unlock = func() {}
	}
	return unlock
}

// putResult is what the shares of a Put add up to.
func (m *Mux) putResult(ctx context.Context, o *operation, shares []share, load *payload, n *memo) (PutResult, error) {
	t := m.tally(shares)
	o.attempts += t.calls
	if err := load.body.Err(); err != nil && ctx.Err() == nil {
		return PutResult{}, bodyError(err)
	}
	if ctx.Err() != nil {
		return PutResult{}, m.aborted(ctx, &o.call, o.attempts)
	}
	if s := &shares[0]; s.decides && s.class != ClassOK {
		return PutResult{}, m.undecided(ctx, o, s)
	}
	switch {
	case len(t.done) == 0 && t.no != nil:
		return PutResult{}, m.annotate(t.no.answer.err, &o.call, t.no.b, o.attempts)
	case len(t.done) == 0:
		return PutResult{}, m.nobody(ctx, o, shares, &t)
	}
	t.refused()
	if err := m.settlePartial(o, &t); err != nil {
		return PutResult{}, err
	}
	return t.put(o, n), nil
}

// undecided is the error of a Put whose decider did not commit.
func (m *Mux) undecided(ctx context.Context, o *operation, s *share) error {
	if s.class.Counts() {
		o.lastErr, o.lastFrom, o.class = s.answer.err, s.b.Name, s.class
		return m.exhausted(ctx, o)
	}
	return m.annotate(s.answer.err, &o.call, s.b, o.attempts)
}

// put is the result of a Put that is done.
func (t *tally) put(o *operation, n *memo) PutResult {
	first := t.done[0]
	r := PutResult{Info: first.answer.info, Missed: t.missed}
	r.Via = Via{Backend: first.b.dotted(r.Via.Backend), Attempts: o.attempts}
	for _, s := range t.done {
		r.Existed = r.Existed || s.answer.existed && !n.stale(s.b)
		if r.ETag != o.call.put.ETag && s.answer.info.ETag == o.call.put.ETag {
			r.ETag, r.ETagStored = s.answer.info.ETag, true
		}
	}
	return r
}

// quorum is how many backends must hold what the operation puts.
func (m *Mux) quorum(o *operation) int { return m.quorumOf(o.call.op, len(o.view.writers)) }

// quorumOf is that with n backends that are written to.
func (m *Mux) quorumOf(op Op, n int) int {
	switch q := m.set.WriteQuorum; {
	case op != OpPut || m.set.Mode != Mirror:
		return 0
	case q == QuorumAll:
		return n
	case q == QuorumMajority:
		return n/2 + 1
	default:
		return int(q)
	}
}

// share is one backend's part in a fan-out.
type share struct {
	b       *backend
	permit  permit
	skipped bool // not asked: down, or draining by now
	decides bool // its word is final
	call    call
	answer  answer
	class   Class
	calls   int
	done    func() // runs when the part has ended; nil: nothing to do
}

// fan makes the calls of all shares at the same time and returns when each has ended. One that hangs ends by its timeout.
func (m *Mux) fan(ctx context.Context, shares []share, deadline time.Time) {
	var wg sync.WaitGroup
	for i := range shares {
		s := &shares[i]
		if s.skipped {
			continue
		}
		wg.Go(func() {
			defer m.release(s.b)
			o := &operation{call: s.call, walk: walk{m: m, p: &pool{}}, deadline: deadline}
			s.class = m.try(ctx, o, s.b, s.permit)
			s.answer, s.calls = o.answer, o.attempts
			if s.done != nil {
				s.done()
			}
		})
	}
	wg.Wait()
}

// shares are the parts of all writers but one in the operation's call.
func (m *Mux) shares(o *operation, but *backend) []share {
	shares, asked := make([]share, 0, len(o.view.writers)), false
	for _, b := range o.view.writers {
		if b == but {
			continue
		}
		p, ok := m.admit(b, o.call.op, false)
		asked = asked || ok
		shares = append(shares, share{b: b, permit: p, skipped: !ok, call: o.call})
	}
	if !asked && but == nil && m.set.LastResort {
		m.forceOne(shares)
	}
	return shares
}

// forceOne admits the one that is due back first, as the last resort.
func (m *Mux) forceOne(shares []share) {
	var first *share
	var at time.Time
	for i := range shares {
		if v := shares[i].b.health(shares[i].call.op).view(); v.down && !v.trial && (first == nil || v.until.Before(at)) {
			first, at = &shares[i], v.until
		}
	}
	if first != nil {
		p, ok := m.admit(first.b, first.call.op, true)
		first.permit, first.skipped = p, !ok
	}
}

// tally is what the shares of a fan-out add up to.
type tally struct {
	done   []*share
	absent int      // said that they do not have the key
	missed []string // backends, dotted
	causes []error
	no     *share // the first that gave a final no
	calls  int
}

func (m *Mux) tally(shares []share) tally {
	var t tally
	for i := range shares {
		s := &shares[i]
		t.calls += s.calls
		switch {
		case s.skipped:
			t.missed = append(t.missed, s.b.Name)
			t.causes = append(t.causes, m.whyNot(s.b, s.call.op))
		case s.class == ClassOK:
			t.done = append(t.done, s)
			t.inside(s.b, s.answer.missed)
		case s.call.op == OpDelete && isMiss(s.answer.err):
			t.absent++
		case !s.class.MovesOn() && (t.no == nil || t.no.class == ClassAbort): // those who were called off say nothing
			t.no = s
		default:
			t.missed = append(t.missed, s.b.Name)
			t.causes = append(t.causes, s.answer.err)
		}
	}
	return t
}

// inside adds what a nested mux says that its own backends missed.
func (t *tally) inside(b *backend, missed []string) {
	for _, inner := range missed {
		t.missed = append(t.missed, b.dotted(inner))
		t.causes = append(t.causes, errMissedInside)
	}
}

// nobody is the error of a fan-out that no backend has taken: as after a read, that of a refusal if all refused, and of a timeout if
// what ended last was one.
func (m *Mux) nobody(ctx context.Context, o *operation, shares []share, t *tally) error {
	if o.lastErr = errors.Join(t.causes...); len(t.causes) == 1 {
		o.lastErr = t.causes[0]
	}
	denied := 0
	for i := range shares {
		s := &shares[i]
		switch {
		case s.skipped:
		case s.class == ClassTimeout:
			o.class = ClassTimeout
		case s.class == ClassDenied && !isUnsure(s.answer.err):
			denied++
		}
	}
	if len(shares) == 1 {
		o.lastFrom = shares[0].b.Name
	}
	if denied > 0 && denied == len(shares) && ctx.Err() == nil {
		return m.denied(o)
	}
	return m.exhausted(ctx, o)
}

// refused counts a final no as missed, where others said yes.
func (t *tally) refused() {
	if t.no != nil {
		t.missed = append(t.missed, t.no.b.Name)
		t.causes = append(t.causes, t.no.answer.err)
	}
}

var errMissedInside = errors.New("missed inside a nested mux")

// whyNot is why a backend was not asked.
func (m *Mux) whyNot(b *backend, op Op) error {
	if b.drain.out() {
		return &Error{Code: CodeBackendDraining, Backend: b.Name}
	}
	if err := b.health(op).view().err; err != nil {
		return err
	}
	if b.overrun() {
		return &Error{Code: CodeUnavailable, Backend: b.Name, Err: fmt.Errorf("%d calls hang in it", b.holds.abandoned.Load())}
	}
	return &Error{Code: CodeUnavailable, Backend: b.Name, Err: errors.New("a trial is under way")}
}

// settlePartial tells of a write that some backends missed, and makes it an error if the settings say so. Those taken
// out of service are told of as well, but hold up nobody.
func (m *Mux) settlePartial(o *operation, t *tally) error {
	failed := len(t.done) < m.quorum(o) || m.set.FailPartialWrites && len(t.missed) > 0
	for _, b := range o.view.away {
		t.missed = append(t.missed, b.Name)
		t.causes = append(t.causes, m.whyNot(b, o.call.op))
	}
	m.tellPartial(o, t)
	if !failed {
		return nil
	}
	return &Error{Code: CodeWriteFanoutPartial, Op: o.call.op, Key: o.call.key, Attempts: o.attempts, Err: errors.Join(t.causes...)}
}

// tellPartial counts and tells of a write that backends missed.
func (m *Mux) tellPartial(o *operation, t *tally) {
	if len(t.missed) > 0 {
		m.partials.Add(1)
		m.emit(Event{Kind: EventFanoutPartial, Op: o.call.op, Key: o.call.key, Failed: t.missed, Causes: t.causes})
	}
}
