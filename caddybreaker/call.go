package caddybreaker

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore/breaker"
)

// call is one admitted call. It ends once, with the first verdict that comes: of
// the answer, of the body, or of the request being over.
type call struct {
	guard  *guard
	permit breaker.Permit
	ended  atomic.Bool
	free   func() // its place of max_concurrent, which it has until it is over; nil: none
}

// keepPlace has the call keep its place until it is over, also once it is judged:
// by its header, or as it took too long.
func (c *call) keepPlace() { c.free = c.permit.KeepPlace() }

// isOver gives the place back.
func (c *call) isOver() {
	if c.free != nil {
		c.free()
	}
}

// holds reports whether somebody may wait for the call.
func (c *call) holds() bool { return c.free != nil || c.permit.Holds() }

// end reports v, if nothing was reported yet.
func (c *call) end(v verdict) {
	if !c.ended.CompareAndSwap(false, true) {
		return
	}
	switch v.outcome {
	case breaker.Success:
		c.permit.Success()
	case breaker.Failure:
		c.permit.FailureRetryAfter(v.cause, v.retryAfter)
	default:
		c.permit.NeutralBecause(v.cause)
	}
	c.guard.entry.calls[v.outcome].Add(1)
}

// hurry makes the call a failure when its answer takes too long, at that moment:
// a path that hangs would otherwise look well until its clients give up, which
// says nothing about it. The limit is slow_call and, for a trial, trial_timeout;
// the time begins with the last byte of up, as a client that sends slowly is no
// fault of the path. The returned function is called with the answer, and reports
// whether it came too late; the permit must not be touched then.
func (c *call) hurry(up *upload) (late func() bool) {
	opts := &c.guard.def.opts
	limit, why := time.Duration(opts.SlowCall), "slow: no answer within "
	if patience := time.Duration(opts.TrialTimeout); c.permit.IsTrial() && (limit == 0 || patience < limit) {
		limit, why = patience, "the trial had no answer within "
	}
	if limit == 0 {
		return func() bool { return false }
	}
	up.timed = true
	d := &deadline{call: c, up: up, limit: limit, why: why, began: time.Now()}
	d.mu.Lock() // check must see the timer
	defer d.mu.Unlock()
	d.timer = time.AfterFunc(limit, d.check)
	return d.answered
}

// deadline is the time that an answer may take.
type deadline struct {
	call  *call
	up    *upload
	limit time.Duration
	why   string
	began time.Time

	mu sync.Mutex

	timer *time.Timer
	over  bool // answered, or too late
	late  bool
}

func (d *deadline) check() {
	if d.tooLate() {
		d.call.end(failure(d.why + d.limit.String()))
	}
}

// tooLate reports whether the time is over, or waits on.
func (d *deadline) tooLate() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.over {
		return false
	}
	since := d.began
	if sent := d.up.sent(); sent.After(since) {
		since = sent
	}
	if left := d.limit - time.Since(since); left > 0 {
		d.timer.Reset(left)
		return false
	}
	d.over, d.late = true, true
	return true
}

func (d *deadline) answered() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.over = true
	d.timer.Stop()
	return d.late
}

// endWith ends the call when ctx does: the request is over, and nobody closed
// the body. Only a call whose permit takes a place needs it; for the others it
// would cost more than the rest. The returned function must be called when the
// call ended before.
func (c *call) endWith(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, func() {
		c.end(neutral("the request ended before the body"))
		c.isOver()
	})
}
