package caddybreaker

import (
	"context"
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
}

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

// answered judges the header of an answer, and whether that settles the call.
func (c *call) answered(v verdict, start time.Time) verdict {
	if c.permit.Answered() && v.outcome == breaker.Success {
		return failure("slow: " + time.Since(start).Round(time.Millisecond).String())
	}
	return v
}

// endWith ends the call when ctx does: the request is over, and nobody closed
// the body. The returned function must be called when the call ended before.
func (c *call) endWith(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, func() { c.end(neutral("the request ended before the body")) })
}
