package muxcore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"go.opentelemetry.io/otel/trace"
)

// call is one call of a Store method, to be made on one backend or on several.
type call struct {
	op   Op
	dark bool // nothing records in its context, as is known already
	key  string
	get  GetOptions // of Get; its Conditions are Stat's as well
	put  PutOptions
	del  DeleteOptions
	body io.Reader // of Put, for one attempt
	size int64
}

// picky tells whether the call may ask for more than a store that can do its operation can do.
func (c *call) picky() bool {
	switch c.op { //nolint:exhaustive // the others have no options that a store may lack
	case OpGet, OpStat:
		return true
	case OpPut:
		return !c.put.Conditions.Empty()
	case OpDelete:
		return !c.del.Conditions.Empty()
	}
	return false
}

// answer is what came back. Which fields are set depends on the call.
type answer struct {
	obj     *Object
	stream  stream // obj's body
	head    head   // of it
	info    Info
	existed bool
	missed  []string
	err     error
}

// on makes the call on s. A panic of s is an error like any other.
func (c *call) on(ctx context.Context, s Store, a *answer) {
	defer func() {
		if p := recover(); p != nil {
			a.err = panicked(p)
		}
	}()
	switch c.op {
	case OpGet:
		a.obj, a.err = s.Get(ctx, c.key, c.get)
	case OpStat:
		a.info, a.err = s.Stat(ctx, c.key, c.get.Conditions)
	case OpPut:
		var r PutResult
		r, a.err = s.Put(ctx, c.key, c.body, c.size, c.put)
		a.info, a.existed, a.missed = r.Info, r.Existed, r.Missed
	case OpDelete:
		var r DeleteResult
		r, a.err = s.Delete(ctx, c.key, c.del)
		a.info.Via, a.missed = r.Via, r.Missed
	case OpHealth:
		a.err = Probe(ctx, s, c.key)
	default:
		panic("muxcore: call of an unknown operation")
	}
	if a.err == nil && c.op == OpGet && (a.obj == nil || a.obj.Body == nil) {
		a.obj = nil
		a.err = &Error{Code: CodeUnavailable, Op: c.op, Key: c.key, Err: errors.New("store gave neither an object nor an error")}
	}
}

// peek makes a Get of what b has at hand, if it has.
func (c *call) peek(b *backend, a *answer) (ok bool) {
	if b.peeker == nil || c.op != OpGet {
		return false
	}
	defer func() {
		if p := recover(); p != nil {
			ok, a.err = true, panicked(p)
		}
	}()
	a.obj, ok, a.err = b.peeker.Peek(c.key, c.get)
	return ok
}

// dispose closes what nobody will read.
func (a *answer) dispose() {
	if a.obj == nil {
		return
	}
	if a.stream.body != nil {
		a.stream.close()
	} else {
		safeClose(a.obj.Body)
	}
	a.head.drop()
	a.obj = nil
}

// epoch is what the times of calls are counted from: [time.Since] asks one clock, [time.Now] two.
var epoch = time.Now()

// attempt makes one call to one backend: permit (already taken) -> timeout -> call -> classify -> record -> event.
// The backend stays counted as in flight; unless a body was opened, the caller must release it.
func (m *Mux) attempt(ctx context.Context, b *backend, p permit, c *call, timeout time.Duration, index int, a *answer) Class {
	var span trace.Span
	if !c.dark {
		ctx, span = m.startAttempt(ctx, b, index)
	}
	started := time.Since(epoch)
	var w *watch
	switch {
	case c.peek(b, a):
	case b.waits == WaitsNever, timeout == never:
		c.on(ctx, b.Store, a)
	case b.waits == WaitsWithContext:
		w = newWatch(ctx, timeout)
		c.under(w)
		c.on(w.ctx, b.Store, a) //nolint:contextcheck // w.ctx is derived from ctx
	default:
		w = newWatch(ctx, timeout)
		c.under(w)
		c.abandonable(w, b, a)
	}
	if a.obj != nil && a.err == nil {
		a.open(c, b, w)
	}
	took := time.Since(epoch) - started
	if w != nil {
		if a.err != nil && w.stalled() && ctx.Err() == nil {
			a.err = &Error{Code: CodeBackendTimeout, Op: c.op, Key: c.key, Err: fmt.Errorf("%w (%v)", errNoProgress, timeout)}
		}
		if a.err != nil || a.obj == nil {
			a.obj = nil
			w.stop()
		} else {
			w.answered(b.Timeout)
		}
	}
	class := c.classify(ctx, a.err)
	m.finish(b, p, c, class, a.err, took)
	endAttempt(span, class, took)
	return class
}

// open takes over the body of the object that b gave, and reads the beginning of it where that belongs to the answer.
func (a *answer) open(c *call, b *backend, w *watch) {
	a.stream = newStream(b, w, a.obj.Body)
	if !c.wants(a.obj) {
		a.err = answered(CodePreconditionFailed, &a.obj.Info)
		a.stream.close()
		a.obj = nil
		return
	}
	if !a.stream.readsAhead(b) {
		return
	}
	if a.err = a.head.readAhead(&a.stream, a.obj); a.err != nil {
		a.stream.close()
	}
}

// wants tells whether obj is what the call asked for, if it asked for a copy of one that is known.
func (c *call) wants(obj *Object) bool {
	same := c.get.Same
	if same == nil {
		return true
	}
	offset, length, err := c.get.Resolve(same)
	return err == nil && obj.Offset == offset && obj.Length == length && SameIdentity(same, &obj.Info)
}

// classify lets the uploader answer for a body that failed: the backend was only the first to see it.
func (c *call) classify(ctx context.Context, err error) Class {
	if body, ok := c.body.(*attemptBody); ok && err != nil && body.failed() != nil {
		return ClassAbort
	}
	return Classify(ctx, err)
}

// finish records a result: in stats, in the backend's health, and as events.
func (m *Mux) finish(b *backend, p permit, c *call, class Class, err error, took time.Duration) {
	b.stats.record(class, err, took)
	if m.set.Hedge.Auto && !c.op.Writes() {
		m.learn(b, class, took)
	}
	m.settle(b, c.op, p, class, err)
	if m.set.Observe != nil {
		m.emit(Event{Kind: EventAttempt, Op: c.op, Key: c.key, Name: b.Name, Class: class, Code: CodeOf(err), Err: err, Took: took})
	}
}

// settle returns a permit with its result.
func (m *Mux) settle(b *backend, op Op, p permit, class Class, err error) {
	var rest rests
	if class.Counts() {
		rest = m.rests(b, op)
	}
	t := p.h.record(p, class, err, m.clock(p, class), rest)
	m.apply(b, op, t, err)
}

// clock reads the clock only for results that need it.
func (m *Mux) clock(p permit, class Class) time.Time {
	if !p.trial && !class.Counts() {
		return time.Time{}
	}
	return m.set.Now()
}

// apply makes a transition of a backend's health seen.
func (m *Mux) apply(b *backend, op Op, t transition, err error) {
	if t.changed {
		m.refresh()
	}
	switch {
	case t.wentDown:
		m.emit(Event{Kind: EventBackendDown, Op: op, Name: b.Name, Code: CodeOf(err), Err: err})
	case t.recovered:
		m.nudgeReplay()
		m.emit(Event{Kind: EventBackendRecovered, Op: op, Name: b.Name, Took: t.downFor})
	}
}

// under makes the body's reads count as the uploader's time, not the backend's.
func (c *call) under(w *watch) {
	if body, ok := c.body.(*attemptBody); ok {
		body.watch = w
	}
}

// abandonable makes the call on a goroutine and comes back when w ends, whatever the store does. A late answer is disposed of.
func (c *call) abandonable(w *watch, b *backend, a *answer) {
	own := *c // the caller may change or reuse c once we are gone
	done := make(chan *answer, 1)
	h := b.hold()
	go func() {
		late := new(answer)
		own.on(w.ctx, b.Store, late)
		if !h.ended() {
			late.dispose()
			_ = b.letGo()
			return
		}
		_ = b.letGo() // closes nothing: the caller is in flight, and goes on
		done <- late
	}()
	select {
	case got := <-done:
		*a = *got
	case <-w.ctx.Done():
		if !h.abandon() {
			*a = *<-done
			return
		}
		a.err = context.Cause(w.ctx)
		if body, ok := own.body.(*attemptBody); ok {
			body.detach()
		}
	}
}
