package muxcore

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// errNoProgress is the cause of a context that a watch has ended.
var errNoProgress = errors.New("no progress within the timeout")

// watch ends a call that makes no progress. Only time spent waiting for the backend counts, not time in which the
// caller takes its bytes or sends them, so that a slow client is never a slow backend. One timer serves the whole call:
// it looks when it fires instead of being reset at each byte.
type watch struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer

	timeout atomic.Int64 // nanoseconds without progress
	since   atomic.Int64 // when the wait began, nanoseconds after start; -1: nobody waits for the backend
	start   time.Time
}

const notWaiting = -1

// newWatch derives a context from ctx that ends after timeout without progress, counting from now.
func newWatch(ctx context.Context, timeout time.Duration) *watch {
	w := &watch{start: time.Now()}
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	w.timeout.Store(int64(timeout))
	w.timer = time.AfterFunc(timeout, w.look)
	return w
}

// look runs when the timer fires.
func (w *watch) look() {
	timeout, since := w.timeout.Load(), w.since.Load()
	left := timeout
	if since != notWaiting {
		left = timeout - (int64(time.Since(w.start)) - since)
	}
	if left <= 0 {
		w.cancel(errNoProgress)
		return
	}
	w.timer.Reset(time.Duration(left))
	if w.ctx.Err() != nil { // stopped meanwhile
		w.timer.Stop()
	}
}

// wait says that the backend's turn begins.
func (w *watch) wait() { w.since.Store(int64(time.Since(w.start))) }

// pause says that it is somebody else's turn.
func (w *watch) pause() { w.since.Store(notWaiting) }

// answered ends the wait for the answer; from now on timeout holds for each wait.
func (w *watch) answered(timeout time.Duration) {
	w.pause()
	w.allow(timeout)
}

// allow changes the timeout. Whether anybody waits stays as it is.
func (w *watch) allow(timeout time.Duration) {
	if w.timeout.Swap(int64(timeout)) != int64(timeout) && w.timer.Stop() {
		w.timer.Reset(timeout)
	}
}

// cause is why the context ended.
func (w *watch) cause() error { return context.Cause(w.ctx) }

// stop ends the watch and its context.
func (w *watch) stop() {
	w.timer.Stop()
	w.cancel(context.Canceled)
}

// stalled tells whether the watch ended the call.
func (w *watch) stalled() bool { return context.Cause(w.ctx) == errNoProgress } //nolint:errorlint // our own, never wrapped
