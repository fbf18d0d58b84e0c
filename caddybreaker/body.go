package caddybreaker

import (
	"context"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// trackedBody is the body of an answer that looked well. How it ends is part of
// the outcome: broken off or stalled is a failure of the path, a client that
// leaves is not.
type trackedBody struct {
	io.ReadCloser
	call

	ctx      context.Context //nolint:containedctx // of the request this body belongs to, to tell who broke it off
	up       *upload
	leave    func() bool // stops waiting for the request to end
	watchdog *stall      // nil where the length is unknown: silence may be meant

	length int64 // -1: unknown
	read   int64
}

// track puts the body of res under watch.
func track(ctx context.Context, res *http.Response, c *call, up *upload, patience time.Duration) {
	b := &trackedBody{ReadCloser: res.Body, ctx: ctx, up: up, length: res.ContentLength}
	b.guard, b.permit = c.guard, c.permit
	b.leave = b.endWith(ctx)
	if b.length > 0 {
		b.watchdog = newStall(&b.call, patience)
	}
	if _, ok := res.Body.(io.WriterTo); ok {
		res.Body = trackedWriterTo{b}
		return
	}
	res.Body = b
}

// Read implements io.Reader.
func (b *trackedBody) Read(p []byte) (int, error) {
	b.watchdog.waiting()
	n, err := b.ReadCloser.Read(p)
	b.watchdog.moved()
	b.read += int64(n)
	if err != nil {
		b.over(err)
	}
	return n, err
}

// Close implements io.Closer.
func (b *trackedBody) Close() error {
	err := b.ReadCloser.Close()
	switch {
	case b.read == 0 && b.ctx.Err() == nil:
		b.finish(wentWell) // nobody wanted it: the header was all that counts
	case b.length >= 0 && b.read == b.length:
		b.finish(wentWell)
	default:
		b.finish(neutral("the body was not wanted to its end"))
	}
	return err
}

// over judges the end of the body.
func (b *trackedBody) over(err error) {
	if err == io.EOF { //nolint:errorlint // readers return it bare; a wrapped one is a broken body
		if b.length >= 0 && b.read < b.length {
			b.finish(failure("body: ended early"))
			return
		}
		b.finish(wentWell)
		return
	}
	b.finish(broken(b.ctx, err, b.up, "body: "))
}

func (b *trackedBody) finish(v verdict) {
	b.end(v)
	b.leave()
	b.watchdog.stop()
}

// trackedWriterTo is a trackedBody whose inner body can write itself.
type trackedWriterTo struct{ *trackedBody }

// WriteTo implements io.WriterTo.
func (b trackedWriterTo) WriteTo(w io.Writer) (int64, error) {
	out := &outlet{Writer: w}
	n, err := b.ReadCloser.(io.WriterTo).WriteTo(out)
	b.read += n
	switch {
	case err == nil:
		b.over(io.EOF)
	case out.err != nil:
		b.finish(neutral("the client went away"))
	default:
		b.over(err)
	}
	return n, err
}

// outlet remembers whose error it was.
type outlet struct {
	io.Writer
	err error
}

func (o *outlet) Write(p []byte) (int, error) {
	n, err := o.Writer.Write(p)
	if err != nil {
		o.err = err
	}
	return n, err
}

// stall ends a call whose body makes no progress for too long while somebody is
// waiting for it. The body itself is left alone: giving up is up to the client,
// or to the timeouts of the inner transport.
type stall struct {
	call     *call
	patience time.Duration
	since    atomic.Int64 // when the pending Read began; 0: none is
	timer    *time.Timer
}

func newStall(c *call, patience time.Duration) *stall {
	s := &stall{call: c, patience: patience}
	// Armed only once check can see the timer.
	s.timer = time.AfterFunc(time.Hour, s.check)
	s.timer.Reset(patience)
	return s
}

func (s *stall) waiting() {
	if s != nil {
		s.since.Store(time.Now().UnixNano())
	}
}

func (s *stall) moved() {
	if s != nil {
		s.since.Store(0)
	}
}

func (s *stall) stop() {
	if s != nil {
		s.timer.Stop()
	}
}

func (s *stall) check() {
	if s.call.ended.Load() {
		return
	}
	left := s.patience
	if since := s.since.Load(); since != 0 {
		left -= time.Since(time.Unix(0, since))
	}
	if left <= 0 {
		s.call.end(failure("body: no byte for " + s.patience.String()))
		return
	}
	s.timer.Reset(left)
}

// upload is the body of a request. It remembers whether reading it failed,
// which is the client's doing and not the path's.
type upload struct {
	io.ReadCloser
	broke atomic.Bool
}

// Read implements io.Reader.
func (u *upload) Read(p []byte) (int, error) {
	n, err := u.ReadCloser.Read(p)
	if err != nil && err != io.EOF { // readers return io.EOF bare
		u.broke.Store(true)
	}
	return n, err
}

// failed reports whether the client's body broke off. A nil upload did not.
func (u *upload) failed() bool { return u != nil && u.broke.Load() }
