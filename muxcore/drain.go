package muxcore

import (
	"context"
	"errors"
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
	removed
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

// move changes the stage from one to another, and wakes those who wait; they look again. It tells whether it was there.
func (d *drainState) move(from, to int32) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.stage.CompareAndSwap(from, to) {
		return false
	}
	if d.idle != nil && to == inService {
		close(d.idle)
		d.idle = nil
	}
	return true
}

// ErrBackInService is why a drain ends without having drained.
var ErrBackInService = errors.New("it was put back in service")

// wait returns when nothing is in flight any more, with the error of ctx, or because the backend is back in service.
func (d *drainState) wait(ctx context.Context) error {
	for {
		d.mu.Lock()
		if !d.out() {
			d.mu.Unlock()
			return ErrBackInService
		}
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
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
