package storetest

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// open makes the body of a Get: the inner one with its abilities if nothing is to happen to it, else only its bytes.
func (f *Faulty) open(ctx context.Context, o *muxcore.Object, fault *Fault) io.ReadCloser {
	b := &faultyBody{f: f, inner: o.Body, Reader: o.Body}
	if fault.shapesBody() {
		s := f.shape(ctx, o.Body, fault)
		b.Reader, b.shaped = s, s
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.bodies[b] = fmt.Sprintf("get %q, bytes %d to %d", o.Key, o.Offset, o.Offset+o.Length)
	f.notify()
	if fault.shapesBody() {
		return b
	}
	return withAbilities(b)
}

// faultyBody is a body that is counted as long as it is open.
type faultyBody struct {
	io.Reader
	f      *Faulty
	inner  io.ReadCloser
	shaped *shapedReader // nil: nothing happens to it
}

// Close implements io.Closer. It ends a stall first, and waits for no read.
func (b *faultyBody) Close() error {
	if b.shaped != nil {
		b.shaped.end()
	}
	b.f.mu.Lock()
	if _, ok := b.f.bodies[b]; ok {
		delete(b.f.bodies, b)
		b.f.notify()
	}
	b.f.mu.Unlock()
	return b.inner.Close()
}

// withAbilities keeps what the inner body can do besides reading.
func withAbilities(b *faultyBody) io.ReadCloser {
	w, writes := b.inner.(io.WriterTo)
	s, seeks := b.inner.(io.Seeker)
	file := muxcore.BodyFile(b.inner)
	switch {
	case file != nil && writes && seeks:
		return &fileFaultyBody{b, w, s, file}
	case writes && seeks:
		return &struct {
			*faultyBody
			io.WriterTo
			io.Seeker
		}{b, w, s}
	case writes:
		return &struct {
			*faultyBody
			io.WriterTo
		}{b, w}
	case seeks:
		return &struct {
			*faultyBody
			io.Seeker
		}{b, s}
	}
	return b
}

type fileFaultyBody struct {
	*faultyBody
	io.WriterTo
	io.Seeker
	file *os.File
}

// File implements muxcore.FileBody.
func (b *fileFaultyBody) File() *os.File { return b.file }

// shapedReader reads what a fault makes of a body.
type shapedReader struct {
	f      *Faulty
	ctx    context.Context //nolint:containedctx // that of the Get governs the body as well
	src    io.Reader
	fault  Fault
	extra  *strings.Reader
	at     int64
	closed chan struct{}
	once   sync.Once

	mu  sync.Mutex
	err error // what the fault made of the body's end, but for io.EOF
}

func (f *Faulty) shape(ctx context.Context, src io.Reader, fault *Fault) *shapedReader {
	return &shapedReader{f: f, ctx: ctx, src: src, fault: *fault, extra: strings.NewReader(fault.extra), closed: make(chan struct{})}
}

func (s *shapedReader) end() { s.once.Do(func() { close(s.closed) }) }

// failure is the error by which the fault ended the body, if it did.
func (s *shapedReader) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func (s *shapedReader) fail(err error) (int, error) {
	if err != io.EOF { //nolint:errorlint // the mark of a clean end, not an error
		s.mu.Lock()
		s.err = err
		s.mu.Unlock()
	}
	return 0, err
}

// Read implements io.Reader.
func (s *shapedReader) Read(p []byte) (int, error) {
	if s.fault.cut && s.at >= s.fault.cutAt {
		return s.fail(s.fault.cutErr)
	}
	if s.fault.inBody != noStall && s.at >= s.fault.stallAt {
		kind := s.fault.inBody
		s.fault.inBody = noStall
		if err := s.f.wait(s.ctx, kind, s.closed); err != nil {
			return s.fail(err)
		}
	}
	if s.fault.chunk > 0 && len(p) > 0 {
		if err := pause(s.ctx, s.fault.pause, s.closed); err != nil {
			return s.fail(err)
		}
	}
	n, err := s.src.Read(p[:s.room(len(p))])
	if err == io.EOF && s.extra.Len() > 0 {
		err = nil
		if n == 0 {
			n, _ = s.extra.Read(p)
		}
	}
	if i := s.fault.flip - s.at; s.fault.flips && i >= 0 && i < int64(n) {
		p[i] ^= 0xff
	}
	s.at += int64(n)
	return n, err
}

// room is how much may be read before something happens.
func (s *shapedReader) room(n int) int {
	if s.fault.chunk > 0 {
		n = min(n, s.fault.chunk)
	}
	if s.fault.cut {
		n = int(min(int64(n), s.fault.cutAt-s.at))
	}
	if s.fault.inBody != noStall {
		n = int(min(int64(n), s.fault.stallAt-s.at))
	}
	return n
}
