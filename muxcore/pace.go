package muxcore

import (
	"context"
	"sync"
	"time"
)

// paceBurst is for how long a pace lets pass what was not used before.
const paceBurst = time.Second / 4

// pace bounds how many bytes a second the copies of repairs move, all of one mux together, so that a backend that was away
// for long does not take the room of those who read and write. It is safe for concurrent use.
type pace struct {
	rate int64 // bytes a second; not positive: no bound

	mu   sync.Mutex
	next time.Time // when all that was taken so far has had its time
}

// wait waits until n more bytes may have passed, or for the end of ctx.
func (p *pace) wait(ctx context.Context, n int) error {
	if p.rate <= 0 || n <= 0 {
		return nil
	}
	if pause := p.take(time.Now(), n); pause > 0 && !pauseFor(ctx, pause) {
		return context.Cause(ctx)
	}
	return nil
}

// take gives n bytes their time, and says how long it is until they have had it.
func (p *pace) take(now time.Time, n int) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if since := now.Add(-paceBurst); p.next.Before(since) {
		p.next = since
	}
	p.next = p.next.Add(time.Duration(float64(n) / float64(p.rate) * float64(time.Second)))
	return p.next.Sub(now)
}
