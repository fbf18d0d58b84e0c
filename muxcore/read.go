package muxcore

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// operation is one operation of a mux under way: the call, who is asked, and what was heard so far. They are reused, and
// never escape from the method that took them.
type operation struct {
	call     call
	answer   answer
	walk     walk
	view     *view
	attempts int
	patient  bool  // nobody above has others to go on with, should the body break
	index    int   // of the first attempt, among those of a race
	others   int   // who may be asked after those of a race
	tried    int   // backends
	missed   int   // of them: answered that they do not have the key
	denied   int   // answered that they will not let us
	unsure   int   // answered for those inside that do not have the key; others inside could not be asked
	other    int   // have another object than the one to go on with
	unable   error // of one that cannot do what was asked for, such as to read a part or to decide conditions
	unfit    error // of the first that can never hold such a key
	unfits   int   // of them, who count among missed as well
	no       error // of the first that answered something else than that it does not have the key, such as 400
	from     *backend
	lacking  []*backend // of those missed, who may get a copy (read repair)
	lastErr  error      // of the last backend that did not answer
	lastFrom string
	class    Class // of lastErr
	deadline time.Time
	memo     *memo      // of a write
	stale    []*backend // lack the newest state of the key
	gone     bool       // which is known to be that it was deleted
	exists   bool       // or an object: that somebody does not have it is no answer
}

var operations = sync.Pool{New: func() any { return new(operation) }}

// begin sets up an operation that asks the backends for op in the order of the mode.
func (m *Mux) begin(op Op, key string) *operation {
	o := operations.Get().(*operation)
	o.view = m.current()
	m.calls.Add(1)
	o.call.op, o.call.key = op, key
	p := &o.view.reads
	if op.Writes() {
		p = &o.view.writes
	}
	o.walk = walk{m: m, p: p, op: op, key: key}
	if op == OpList {
		o.walk.key = "" // a prefix has no backend of its own
	}
	if m.set.Deadline > 0 && op != OpPut {
		o.deadline = time.Now().Add(m.set.Deadline)
	}
	if m.journal != nil && m.journal.Pending() && !op.Writes() && op != OpList {
		m.consult(o)
	}
	return o
}

func (o *operation) end() {
	*o = operation{}
	operations.Put(o)
}

func defaultFloat64() float64 { return rand.Float64() }

// Get implements [Store]: it opens the object on the first backend that answers, in the order of the mode, and continues
// the body elsewhere should that one fail (see body).
func (m *Mux) Get(ctx context.Context, key string, opts GetOptions) (*Object, error) {
	if err := CheckStoreKey(key); err != nil {
		return nil, err
	}
	ctx, span := m.startSpan(ctx, OpGet, key)
	defer endSpan(span)
	o := m.begin(OpGet, key)
	defer o.end()
	o.call.dark = span == nil
	if o.gone && opts.Same == nil {
		return nil, o.notFound()
	}
	o.patient = !opts.elsewhere
	opts.elsewhere = opts.elsewhere || len(o.walk.p.members) > 1
	if opts.Same != nil && opts.Conditions.IfMatch == "" {
		opts.Conditions.IfMatch = opts.Same.ETag
	}
	o.call.get = opts
	if m.mode.race && o.walk.left() > 1 {
		return m.raceGet(ctx, o, m.race)
	}
	if m.hedges(o) {
		return m.raceGet(ctx, o, m.hedge)
	}
	b, p := m.nextReader(ctx, o)
	for b != nil {
		class := m.try(ctx, o, b, p)
		if class == ClassOK {
			return m.opened(ctx, o, b, nil), nil
		}
		m.release(b)
		if !m.goesOn(o, b, class) {
			return nil, m.final(ctx, o, b, class)
		}
		b, p = m.nextReader(ctx, o)
	}
	return nil, m.exhausted(ctx, o)
}

// opened is the object that the operation's answer from b holds, its body made to survive b.
func (m *Mux) opened(ctx context.Context, o *operation, b *backend, cancel context.CancelFunc) *Object {
	m.found(o, b)
	obj := o.answer.obj
	obj.Via = Via{Backend: b.dotted(obj.Via.Backend), Attempts: o.attempts}
	body := m.newBody(ctx, o.call.key, newSource(o.answer.stream, cancel), obj, o.answer.head)
	body.patient = o.patient
	obj.Body = body
	return obj
}

// Stat implements [Store].
func (m *Mux) Stat(ctx context.Context, key string, cond Conditions) (Info, error) {
	if err := CheckStoreKey(key); err != nil {
		return Info{}, err
	}
	ctx, span := m.startSpan(ctx, OpStat, key)
	defer endSpan(span)
	o := m.begin(OpStat, key)
	defer o.end()
	o.call.dark = span == nil
	if o.gone {
		return Info{}, o.notFound()
	}
	o.call.get.Conditions = cond
	if m.mode.race && o.walk.left() > 1 {
		return m.raceStat(ctx, o, m.race)
	}
	if m.hedges(o) {
		return m.raceStat(ctx, o, m.hedge)
	}
	b, p := m.nextReader(ctx, o)
	for b != nil {
		class := m.try(ctx, o, b, p)
		m.release(b)
		if class == ClassOK {
			m.found(o, b)
			info := o.answer.info
			info.Via = Via{Backend: b.dotted(info.Via.Backend), Attempts: o.attempts}
			return info, nil
		}
		if !m.goesOn(o, b, class) {
			return Info{}, m.final(ctx, o, b, class)
		}
		b, p = m.nextReader(ctx, o)
	}
	return Info{}, m.exhausted(ctx, o)
}

// nextReader is the next backend to ask, unless the deadline has passed, and tells of the failover to it.
func (m *Mux) nextReader(ctx context.Context, o *operation) (*backend, permit) {
	if o.tried > 0 && (ctx.Err() != nil || !o.deadline.IsZero() && !time.Now().Before(o.deadline)) {
		return nil, permit{}
	}
	b, p := o.walk.next(nil)
	if b != nil && o.from != nil {
		m.failedOver(o, b)
	}
	return b, p
}

// failedOver counts and tells that b is asked because another failed.
func (m *Mux) failedOver(o *operation, b *backend) {
	m.failovers.Add(1)
	m.emit(Event{Kind: EventFailover, Op: o.call.op, Key: o.call.key, From: o.from.Name, To: b.Name, Attempt: o.attempts, Err: o.lastErr})
	o.from = nil
}

// try makes the operation's call on b, with retries. b stays in flight.
func (m *Mux) try(ctx context.Context, o *operation, b *backend, p permit) Class {
	o.tried++
	for retry := 0; ; retry++ {
		if o.attempts > 0 {
			o.answer = answer{}
		}
		class := m.attempt(ctx, b, p, &o.call, m.budget(o, b), o.index+o.attempts, &o.answer)
		o.attempts++
		if class != ClassTransient || retry >= m.set.Retry.Max || o.call.op == OpPut || p.trial {
			return class
		}
		pause := m.set.Retry.delay(retry, m.set.Float64)
		if !o.deadline.IsZero() && pause >= m.budget(o, b) || !pauseFor(ctx, pause) {
			return class
		}
	}
}

// delay before the retry of that number, from 0: exponential, with full jitter.
func (r Retry) delay(n int, float64s func() float64) time.Duration {
	return time.Duration(float64s() * float64(doubled(r.Delay, r.MaxDelay, n)))
}

// pauseFor waits, and tells whether ctx went on that long.
func pauseFor(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// budget is how long b may take to answer: its timeout, or its share of what is left of the deadline.
func (m *Mux) budget(o *operation, b *backend) time.Duration {
	if o.deadline.IsZero() {
		return b.Timeout
	}
	share := time.Until(o.deadline) / time.Duration(1+o.walk.left()+o.others)
	return max(min(b.Timeout, share), time.Millisecond)
}

// goesOn takes in what b said, and tells whether the next backend is to be asked.
func (m *Mux) goesOn(o *operation, b *backend, class Class) bool {
	if !o.call.op.Writes() && isMiss(o.answer.err) {
		switch {
		case o.exists || slices.Contains(o.stale, b):
			o.unsure++
			o.lacks(m, b)
			return true
		case m.missGoesOn():
			o.missed++
			o.lacks(m, b)
			return true
		}
	}
	if (o.call.op == OpGet || o.call.op == OpStat) && errors.Is(o.answer.err, ErrInvalidKey) {
		if o.unfits++; o.unfit == nil {
			o.unfit = m.annotate(o.answer.err, &o.call, b, 0)
		}
		o.missed++ // it knows without looking, and it is no news of the key itself
		return true
	}
	if class == ClassSemantic && (o.call.op == OpGet || o.call.op == OpStat) && m.missGoesOn() && isRefusal(o.answer.err) {
		o.missed++ // it answered, and another may have the key all the same
		if o.no == nil {
			o.no = m.annotate(o.answer.err, &o.call, b, 0)
		}
		return true
	}
	if o.call.get.Same != nil && class == ClassSemantic {
		o.other++ // it answered, and is no help
		return true
	}
	if o.call.picky() && errors.Is(o.answer.err, ErrUnsupported) {
		o.unable = m.annotate(o.answer.err, &o.call, b, 0)
		return true
	}
	if !class.MovesOn() {
		return false
	}
	if isUnsure(o.answer.err) {
		o.unsure++
	} else if class == ClassDenied {
		o.denied++
	}
	o.from, o.lastErr, o.lastFrom, o.class = b, o.answer.err, b.Name, class
	return true
}

// isUnsure tells whether err is that of a mux which somebody answered, and not everybody.
func isUnsure(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Unsure
}

// isRefusal tells whether a semantic error says neither how things stand with the object nor that it could not be read so: 400, 410, 451
// and their like.
func isRefusal(err error) bool {
	for _, other := range []error{ErrNotModified, ErrPreconditionFailed, ErrRangeNotSatisfiable, ErrUnsupported} {
		if errors.Is(err, other) {
			return false
		}
	}
	return !isMiss(err)
}

// missGoesOn tells whether a missing key on one backend leaves the question open.
func (m *Mux) missGoesOn() bool { return m.set.OnMissNext || m.mode.race }

// final is the error of an operation that b has ended.
func (m *Mux) final(ctx context.Context, o *operation, b *backend, class Class) error {
	if class == ClassAbort {
		return m.aborted(ctx, &o.call, o.attempts)
	}
	if InfoOf(o.answer.err) != nil { // it has the object, and what was asked of it does not hold
		m.found(o, b)
	}
	return m.annotate(o.answer.err, &o.call, b, o.attempts)
}

// aborted is the error of an operation whose caller gave up.
func (m *Mux) aborted(ctx context.Context, c *call, attempts int) error {
	return &Error{Code: CodeBackendAborted, Op: c.op, Key: c.key, Attempts: attempts, Err: context.Cause(ctx)}
}

// annotate says where an error that ends an operation came from.
func (m *Mux) annotate(err error, c *call, b *backend, attempts int) error {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return &Error{Code: codeOf(err), Op: c.op, Key: c.key, Backend: b.Name, Attempts: attempts, Err: err}
	}
	told := *e
	told.Op, told.Key, told.Backend, told.Attempts = c.op, c.key, b.dotted(e.Backend), attempts
	return &told
}

// exhausted is the error of an operation that nobody answered: an honest 404 only if everybody who could hold the key said so.
func (m *Mux) exhausted(ctx context.Context, o *operation) error {
	if ctx.Err() != nil {
		return m.aborted(ctx, &o.call, o.attempts)
	}
	e := &Error{Op: o.call.op, Key: o.call.key, Attempts: o.attempts, Backend: o.lastFrom, Err: o.lastErr}
	switch {
	case o.unable != nil: // it may be able to do more than that, which is better than nothing
		return o.unable
	case o.other > 0 && o.lastErr == nil:
		e.Code, e.Backend = CodePreconditionFailed, ""
		return e
	case o.unfits > 0 && o.unfits == len(o.walk.p.members):
		return o.unfit
	case o.missed > 0 && o.missed == len(o.walk.p.members):
		if o.no != nil {
			return o.no
		}
		e.Code, e.Backend, e.Err = CodeKeyNotFound, "", nil
		return e
	case o.denied > 0 && o.denied == len(o.walk.p.members):
		return m.denied(o)
	case o.missed+o.unsure+o.other > 0:
		e.Code, e.Unsure = CodeAllBackendsDown, true
	case o.class == ClassTimeout:
		e.Code = CodeBackendTimeout
	default:
		e.Code = CodeAllBackendsDown
	}
	e.RetryAfter = m.retryAfter(o)
	return e
}

// denied is the error of an operation that everybody refused to do.
func (m *Mux) denied(o *operation) error {
	e := &Error{Code: CodeDenied, Op: o.call.op, Key: o.call.key, Attempts: o.attempts, Backend: o.lastFrom, Err: o.lastErr}
	if errors.Is(o.lastErr, &Error{Code: CodeCredentialExpired}) {
		e.Code = CodeCredentialExpired
	}
	return e
}

// retryAfter is the time until the first backend is due for a trial, at least what a backend asked for.
func (m *Mux) retryAfter(o *operation) time.Duration {
	wait := time.Duration(0)
	if _, at := o.walk.p.due(o.call.op); !at.IsZero() {
		wait = max(0, at.Sub(m.set.Now()))
	}
	if inner, ok := errors.AsType[*Error](o.lastErr); ok && len(o.walk.p.members) == 1 {
		wait = max(wait, inner.RetryAfter)
	}
	return wait
}

// release ends a call that was admitted on b.
func (m *Mux) release(b *backend) { b.drain.leave() }
