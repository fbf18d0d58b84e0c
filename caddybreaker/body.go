package caddybreaker

import (
	"context"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// trackedBody is a call of the transport and the body of its answer, which looked
// well. How it ends is part of the outcome: broken off or stalled is a failure of
// the path, a client that leaves is not. All there is to remember of a call is in
// this one place, so that a call costs one allocation.
type trackedBody struct {
	io.ReadCloser // of the answer
	call

	ctx      context.Context //nolint:containedctx // of the request this body belongs to, to tell who broke it off
	up       upload          // what is sent, if anything is
	claimed  atomic.Bool     // the transport makes the call
	leave    func() bool     // stops waiting for the request to end; nil: nobody waits
	progress progress        // of a body of known length

	length int64 // -1: unknown
	read   int64
}

// stopWaiting ends the wait for the end of the request.
func (b *trackedBody) stopWaiting() {
	if b.leave != nil {
		b.leave()
		b.leave = nil
	}
}

// track puts the body of res under watch.
func (b *trackedBody) track(res *http.Response, patience time.Duration) {
	b.ReadCloser, b.length = res.Body, res.ContentLength
	if b.holds() {
		b.leave = b.endWith(b.ctx)
	}
	if b.length > 0 {
		b.guard.stalls.watch(b, patience)
	}
	b.stand(res)
}

// stand takes the place of the body of res.
func (b *trackedBody) stand(res *http.Response) {
	if _, ok := res.Body.(io.WriterTo); ok {
		res.Body = trackedWriterTo{b}
		return
	}
	res.Body = b
}

// follow keeps the place of a call that is judged until it is over, with its body
// or with the connection that it became.
func (b *trackedBody) follow(req *http.Request, res *http.Response) {
	if b.free == nil {
		return
	}
	conn, upgraded := res.Body.(io.ReadWriteCloser)
	switch {
	case upgraded:
		res.Body = heldConn(conn, b.free)
	case req.Method == http.MethodHead || res.Body == nil || res.Body == http.NoBody || res.ContentLength == 0:
		b.isOver()
	default:
		b.ReadCloser, b.length = res.Body, res.ContentLength
		b.leave = b.endWith(b.ctx)
		b.stand(res)
	}
}

// held is an upgraded connection that has a place until it is closed. It must be a
// pointer: the proxy keeps its connections in a map.
type held struct {
	io.ReadWriteCloser
	free func()
}

// Close implements io.Closer.
func (h *held) Close() error {
	defer h.free()
	return h.ReadWriteCloser.Close()
}

// halfHeld is held with a write half that can be closed by itself, which the proxy
// looks for.
type halfHeld struct {
	held
	half interface{ CloseWrite() error }
}

// CloseWrite closes the way to the upstream.
func (h *halfHeld) CloseWrite() error { return h.half.CloseWrite() }

func heldConn(conn io.ReadWriteCloser, free func()) io.ReadWriteCloser {
	h := held{conn, free}
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		return &halfHeld{h, half}
	}
	return &h
}

// Read implements io.Reader.
func (b *trackedBody) Read(p []byte) (int, error) {
	b.progress.turn()
	n, err := b.ReadCloser.Read(p)
	b.progress.turn()
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
	b.finish(broken(b.ctx, err, &b.up, "body: "))
}

func (b *trackedBody) finish(v verdict) {
	b.end(v)
	b.isOver()
	b.stopWaiting()
	if b.progress.dog != nil {
		b.progress.dog.leave(b)
	}
}

// trackedWriterTo is a trackedBody whose inner body can write itself.
type trackedWriterTo struct{ *trackedBody }

// WriteTo implements io.WriterTo.
func (b trackedWriterTo) WriteTo(w io.Writer) (int64, error) {
	out := &outlet{Writer: w, progress: &b.progress}
	b.progress.turn()
	n, err := b.ReadCloser.(io.WriterTo).WriteTo(out)
	b.progress.turn()
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

// outlet remembers whose error it was, and whom everybody waits for.
type outlet struct {
	io.Writer
	progress *progress
	err      error
}

func (o *outlet) Write(p []byte) (int, error) {
	o.progress.turn()
	n, err := o.Writer.Write(p)
	o.progress.turn()
	if err != nil {
		o.err = err
	}
	return n, err
}

// upload is the body of a request. It remembers whether reading it failed, and
// when the client was waited for, which is the client's doing and not the path's.
// The zero upload is that of a request without one.
type upload struct {
	io.ReadCloser
	timed  bool // set before the first Read
	broke  atomic.Bool
	closed atomic.Bool

	waiting atomic.Bool  // a Read is pending
	last    atomic.Int64 // when the last one ended
}

// Read implements io.Reader.
func (u *upload) Read(p []byte) (int, error) {
	if u.timed {
		u.waiting.Store(true)
		defer func() {
			u.last.Store(time.Now().UnixNano())
			u.waiting.Store(false)
		}()
	}
	n, err := u.ReadCloser.Read(p)
	if err != nil && err != io.EOF && !u.closed.Load() { // readers return io.EOF bare
		u.broke.Store(true)
	}
	return n, err
}

// Close implements io.Closer. A Read that fails because of it says nothing about
// the client.
func (u *upload) Close() error {
	u.closed.Store(true)
	return u.ReadCloser.Close()
}

// failed reports whether the client's body broke off.
func (u *upload) failed() bool { return u.broke.Load() }

// excuse returns v, unless it is about an answer to half a request, which says
// nothing about the path.
func (u *upload) excuse(v verdict) verdict {
	if u.failed() {
		return neutral(brokenRequest)
	}
	return v
}

// sent returns until when the client was waited for: the last byte, or now; zero
// if that is not known.
func (u *upload) sent() time.Time {
	if u.waiting.Load() {
		return time.Now()
	}
	if last := u.last.Load(); last != 0 {
		return time.Unix(0, last)
	}
	return time.Time{}
}
