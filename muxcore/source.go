package muxcore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
)

// headSize is how much of a body is read before the backend counts as having answered. Small bodies fit whole, so that
// they go out in one write and their connection is free before the client has taken a byte.
const headSize = 32 << 10

var heads = sync.Pool{New: func() any { return new([headSize]byte) }}

// head is the beginning of a body, read ahead.
type head struct {
	buf  *[headSize]byte // nil: nothing was read ahead
	n    int             // bytes in it
	off  int             // of them, given out
	last error           // what came with them
}

func (h *head) left() int { return h.n - h.off }

func (h *head) drop() {
	if h.buf != nil {
		heads.Put(h.buf)
		*h = head{last: h.last}
	}
}

// readsAhead tells whether the beginning of b's bodies belongs to its answer: where reading means waiting for a peer. A
// nested mux has done that itself.
func (b *backend) readsAhead() bool { return b.waits == WaitsWithContext && b.nested == nil }

// readAhead reads the beginning of obj into h. An error means that not one byte came, and that obj is closed.
func (h *head) readAhead(obj *Object, w *watch) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = panicked(p)
		}
		if err != nil {
			h.drop()
			_ = obj.Body.Close()
		}
	}()
	want := int64(headSize)
	if obj.Length >= 0 && obj.Length < want {
		want = obj.Length
	}
	if want == 0 {
		return nil
	}
	h.buf = heads.Get().(*[headSize]byte)
	for h.n == 0 && h.last == nil {
		w.wait()
		h.n, h.last = obj.Body.Read(h.buf[:want])
		w.pause()
	}
	if h.n > 0 {
		return nil
	}
	if errors.Is(h.last, io.EOF) && obj.Length < 0 {
		h.drop()
		return nil
	}
	if errors.Is(h.last, io.EOF) {
		return shortBody(0, obj.Length)
	}
	return h.last
}

func panicked(p any) error { return &Error{Code: CodeUnavailable, Err: fmt.Errorf("panic: %v", p)} }

var errBodyEnded = errors.New("body ended early")

func shortBody(got, want int64) error {
	return &Error{Code: CodeUnavailable, Err: fmt.Errorf("%w: after %d of %d bytes", errBodyEnded, got, want)}
}

// source is where the bytes of a body come from at the moment.
type source struct {
	backend *backend
	permit  permit // for what becomes of it after the answer
	watch   *watch // nil for a store that never waits
	body    io.ReadCloser
	err     error              // sticky: what its last read said
	cancel  context.CancelFunc // of the context of its own that it was opened under; nil: none
}

// newSource takes over what an attempt on b opened.
func newSource(b *backend, w *watch, opened io.ReadCloser, last error, cancel context.CancelFunc) source {
	s := source{backend: b, watch: w, body: opened, err: last, cancel: cancel}
	s.permit, _ = b.reads.enter()
	return s
}

// read reads from the source as its watch allows. A panic is an error like any other.
func (s *source) read(p []byte) (n int, err error) {
	if s.err != nil {
		return 0, s.err
	}
	defer func() {
		if v := recover(); v != nil {
			n, err = 0, panicked(v)
		}
		s.err = err
	}()
	if s.watch != nil {
		s.watch.wait()
		defer s.watch.pause()
	}
	return s.body.Read(p)
}

// writerTo is the source's own way to write itself, where that beats a copy: bytes in memory, and files.
func (s *source) writerTo() (io.WriterTo, bool) {
	if s.err != nil || s.backend.waits == WaitsWithContext && BodyFile(s.body) == nil {
		return nil, false
	}
	wt, ok := s.body.(io.WriterTo)
	return wt, ok
}

// close ends the source; it must be called once. The caller must not hold a lock.
func (s *source) close(m *Mux) {
	_ = s.body.Close()
	if s.watch != nil {
		s.watch.stop()
	}
	if s.cancel != nil {
		s.cancel()
	}
	m.release(s.backend)
}

// blame records that the source broke off after its answer.
func (s *source) blame(ctx context.Context, m *Mux, err error) Class {
	class := Classify(ctx, err)
	if class.Counts() {
		s.backend.stats.failed(class)
		m.settle(s.backend, OpGet, s.permit, class, err)
	}
	return class
}
