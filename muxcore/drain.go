package muxcore

import (
	"context"
	"sync"
	"sync/atomic"
)

// drainState counts what is in flight on a backend, and waits for it to end when the backend is taken out of service.
type drainState struct {
	inFlight atomic.Int64
	stage    atomic.Int32 // one of the stages below

	mu   sync.Mutex
	idle chan struct{} // closed when nothing is in flight; nil while nobody waits
}

const (
	inService int32 = iota
	draining
	drained
)

// out tells whether the backend gets no new calls.
func (d *drainState) out() bool { return d.stage.Load() != inService }

// enter counts a call, unless the backend is out. It counts before it looks, so that [drainState.wait] misses none.
func (d *drainState) enter() bool {
	d.inFlight.Add(1)
	if d.out() {
		d.leave()
		return false
	}
	return true
}

// leave ends a call.
func (d *drainState) leave() {
	if d.inFlight.Add(-1) == 0 && d.out() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.idle != nil && d.inFlight.Load() == 0 {
			close(d.idle)
			d.idle = nil
		}
	}
}

// wait returns when nothing is in flight any more, or with the error of ctx. The stage must not be inService.
func (d *drainState) wait(ctx context.Context) error {
	d.mu.Lock()
	if d.inFlight.Load() == 0 {
		d.mu.Unlock()
		return nil
	}
	if d.idle == nil {
		d.idle = make(chan struct{})
	}
	idle := d.idle
	d.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
