package muxcore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// headSize is how much of a body is read before the backend counts as having answered. Small bodies fit whole, so that
// they go out in one write and their connection is free before the client has taken a byte.
const headSize = 32 << 10

var heads = sync.Pool{New: func() any { return new([headSize]byte) }}

// head is the beginning of a body, read ahead.
type head struct {
	buf *[headSize]byte // nil: nothing was read ahead
	n   int             // bytes in it
	off int             // of them, given out
}

func (h *head) left() int { return h.n - h.off }

func (h *head) drop() {
	if h.buf != nil {
		heads.Put(h.buf)
		*h = head{}
	}
}

// readAheadTime is how long a small body may take to come whole before what has come so far is the answer.
const readAheadTime = 100 * time.Millisecond

// readAhead reads the beginning of the part that obj promises from its body s: all of one that fits, so that whatever is
// wrong with it is known while any other backend can still answer. An error means that b has not answered.
func (h *head) readAhead(s *stream, obj *Object) error {
	want := int64(headSize)
	if obj.Length >= 0 && obj.Length < want {
		want = obj.Length
	}
	if want == 0 {
		return nil
	}
	h.buf = heads.Get().(*[headSize]byte)
	small, begun := obj.Length == want, time.Now()
	var err error
	for err == nil && (h.n == 0 || small && h.n < int(want) && time.Since(begun) < readAheadTime) {
		var n int
		n, err = s.read(h.buf[h.n:want])
		h.n += n
	}
	switch {
	case h.n == int(want), err == nil, errors.Is(err, io.EOF) && obj.Length < 0:
		err = nil
	case errors.Is(err, io.EOF):
		err = shortBody(int64(h.n), obj.Length)
	}
	if err != nil || h.n == 0 {
		h.drop()
	}
	return err
}

func panicked(p any) error { return &Error{Code: CodeUnavailable, Err: fmt.Errorf("panic: %v", p)} }

var errBodyEnded = errors.New("body ended early")

func shortBody(got, want int64) error {
	return &Error{Code: CodeUnavailable, Err: fmt.Errorf("%w: after %d of %d bytes", errBodyEnded, got, want)}
}

// stream is a backend's body under the watch of its call.
type stream struct {
	from    *backend
	body    io.ReadCloser
	watch   *watch // nil for a store that never waits
	guarded bool   // reads may hang: each runs on a goroutine that can be abandoned
	err     error  // sticky: what the last read said
	spare   []byte // of guarded reads
	empty   int    // reads in a row that brought neither bytes nor an end
}

func newStream(b *backend, w *watch, body io.ReadCloser) stream {
	return stream{from: b, body: body, watch: w, guarded: w != nil && b.waits == WaitsUnbounded && BodyFile(body) == nil}
}

// readsAhead tells whether the beginning of the body belongs to b's answer: where reading means waiting for a peer. A
// nested mux has done that itself, and a file is there.
func (s *stream) readsAhead(b *backend) bool {
	return s.watch != nil && b.nested == nil && BodyFile(s.body) == nil
}

// read reads as the watch allows. A panic is an error like any other.
func (s *stream) read(p []byte) (n int, err error) {
	if s.err != nil {
		return 0, s.err
	}
	if s.watch != nil {
		s.watch.wait()
		defer s.watch.pause()
	}
	if s.guarded {
		n, err = s.readGuarded(p)
	} else {
		n, err = safeRead(s.body, p)
	}
	if n > 0 || err != nil {
		s.empty = 0
	} else if s.empty++; s.empty >= maxEmptyReads {
		err = io.ErrNoProgress
	}
	s.err = err
	return n, err
}

func safeRead(r io.Reader, p []byte) (n int, err error) {
	defer func() {
		if v := recover(); v != nil {
			n, err = 0, panicked(v)
		}
	}()
	return r.Read(p)
}

// readGuarded reads into a buffer that a read which hangs may keep.
func (s *stream) readGuarded(p []byte) (int, error) {
	type result struct {
		n   int
		err error
	}
	if s.spare == nil {
		s.spare = make([]byte, headSize)
	}
	buf, body, done := s.spare[:min(len(p), headSize)], s.body, make(chan result, 1)
	h := s.from.hold()
	go func() {
		n, err := safeRead(body, buf)
		h.ended()
		_ = h.b.letGo()
		done <- result{n, err}
	}()
	select {
	case r := <-done:
		return copy(p, buf[:r.n]), r.err
	case <-s.watch.ctx.Done():
		h.abandon()
		s.spare = nil
		return 0, s.watch.cause()
	}
}

// close closes the body. One that may hang is closed on a goroutine.
func (s *stream) close() {
	if s.guarded && s.watch.ctx.Err() != nil {
		h, body := s.from.hold(), s.body
		h.abandon()
		go func() {
			safeClose(body)
			h.ended()
			_ = h.b.letGo()
		}()
	} else {
		safeClose(s.body)
	}
	if s.watch != nil {
		s.watch.stop()
	}
}

// safeClose closes what a backend gave. There is nobody to tell of an error.
func safeClose(c io.Closer) {
	defer func() { _ = recover() }()
	_ = c.Close()
}

// safeWriteTo lets a backend's body write itself. A panic is an error like any other.
func safeWriteTo(wt io.WriterTo, w io.Writer) (n int64, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = panicked(v)
		}
	}()
	return wt.WriteTo(w)
}

// stalled tells whether the watch ended the stream.
func (s *stream) stalled() bool { return s.watch != nil && s.watch.stalled() }

// source is where the bytes of a body come from at the moment.
type source struct {
	stream
	permit permit             // for what becomes of it after the answer
	cancel context.CancelFunc // of the context of its own that it was opened under; nil: none
}

// newSource takes over what an attempt opened.
func newSource(opened stream, cancel context.CancelFunc) source {
	return source{stream: opened, permit: opened.from.reads.later(), cancel: cancel}
}

// writerTo is the source's own way to write itself, where that beats a copy: bytes in memory, and files.
func (s *source) writerTo() (io.WriterTo, bool) {
	if s.err != nil || s.watch != nil && BodyFile(s.body) == nil {
		return nil, false
	}
	wt, ok := s.body.(io.WriterTo)
	return wt, ok
}

// ending is the part of a source that ends it. It is not written while the source is read.
func (s *source) ending() source {
	return source{stream: stream{from: s.from, body: s.body, watch: s.watch, guarded: s.guarded}, cancel: s.cancel}
}

// end closes the source; it must be called once. The caller must not hold a lock.
func (s *source) end(m *Mux) {
	s.close()
	if s.cancel != nil {
		s.cancel()
	}
	m.release(s.from)
}

// blame records that the source broke off after its answer. A nested mux that could ask others is well: one of its backends
// was to blame, and has been; that nobody inside had the same object to go on with is nobody's fault.
func (s *source) blame(ctx context.Context, m *Mux, err error) Class {
	class := Classify(ctx, err)
	if class.Counts() && (s.from.nested == nil || s.from.nested.Probe(ctx) != nil) {
		s.from.stats.failed(class)
		m.settle(s.from, OpGet, s.permit, class, err)
	}
	return class
}
