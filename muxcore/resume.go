package muxcore

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// body is the body that a mux hands out. When its source fails it goes on elsewhere: at the exact offset, and only where
// the copy has the same identity; else Read fails, and never ends in io.EOF early. It ends exactly at the end of the part.
type body struct {
	m    *Mux
	ctx  context.Context
	key  string
	same identity // of the object that the reader was promised

	head head
	off  int64 // of the next byte in the object
	end  int64 // of the part; -1 unknown
	err  error // sticky

	breaks  *breaks // nil: it has not broken yet
	patient bool    // may wait for others, see await

	closed atomic.Bool
	sink   countingWriter // of WriteTo, here to spare an allocation

	mu      sync.Mutex // guards src against Close; the reader alone replaces it
	src     source
	srcDone bool
}

var errBodyClosed = errors.New("read of a closed body")

// newBody makes src, the body of obj after h, one that survives its backend.
func (m *Mux) newBody(ctx context.Context, key string, src source, obj *Object, h head) *body {
	r := &body{m: m, ctx: ctx, key: key, same: identityOf(&obj.Info), head: h, off: obj.Offset, end: -1, src: src}
	if obj.Length >= 0 {
		r.end = obj.Offset + obj.Length
	} else if errors.Is(src.err, io.EOF) {
		r.end = r.off + int64(h.n)
	}
	if r.end >= 0 && r.off+int64(h.n) == r.end && src.watch != nil {
		r.closeSource() // all there: the connection is free before the client has taken a byte
	}
	return r
}

// Read implements io.Reader.
func (r *body) Read(p []byte) (int, error) {
	if r.closed.Load() {
		return 0, errBodyClosed
	}
	if len(p) == 0 {
		return 0, nil
	}
	for r.err == nil {
		if r.head.left() > 0 {
			n := copy(p, r.head.buf[r.head.off:r.head.n])
			r.took(n)
			return n, nil
		}
		if r.off == r.end {
			r.err = io.EOF
			break
		}
		n, err := r.src.read(p[:r.fits(len(p))])
		r.off += int64(n)
		if n > 0 {
			return n, nil // an error comes again
		}
		if err != nil {
			r.failed(err)
		}
	}
	return 0, r.err
}

// fits limits a read to the part.
func (r *body) fits(n int) int {
	if r.end >= 0 && int64(n) > r.end-r.off {
		return int(r.end - r.off)
	}
	return n
}

// took moves on by n bytes of the head.
func (r *body) took(n int) {
	r.off += int64(n)
	r.head.off += n
	if r.head.left() == 0 {
		r.head.drop()
	}
}

// failed takes the error of a source: its regular end, or a reason to go on elsewhere.
func (r *body) failed(err error) {
	switch {
	case r.closed.Load():
		r.err = errBodyClosed
		return
	case errors.Is(err, io.EOF) && r.end < 0:
		r.end = r.off
		return
	case errors.Is(err, io.EOF):
		err = shortBody(r.off, r.end)
	case r.src.stalled() && r.ctx.Err() == nil:
		err = &Error{Code: CodeBackendTimeout, Op: OpGet, Key: r.key, Err: errNoProgress}
	}
	r.err = r.resume(err)
}

// resume goes on elsewhere after cause. A copy with another identity, offset or length is no continuation, and nobody's
// fault. Those that are up are asked first, once per offset; then those that are due back in time, which may be some that
// have just failed to go on from here: whatever killed the one may have killed the other.
func (r *body) resume(cause error) error {
	broken := r.src.from
	if r.breaks == nil {
		r.breaks = new(breaks)
	}
	r.breaks.here(r.off, broken)
	class := r.src.blame(r.ctx, r.m, cause)
	if class == ClassAbort {
		return r.m.aborted(r.ctx, &call{op: OpGet, key: r.key}, 0)
	}
	r.closeSource()
	broke := r.m.annotate(cause, &call{op: OpGet, key: r.key}, broken, 0)
	if r.end < 0 || !IsStrong(r.same.etag) {
		return broke
	}
	o := r.m.begin(OpGet, r.key)
	defer o.end()
	o.deadline = time.Time{} // it ended with the first byte
	o.walk.forced = true     // no last resort: that is who broke
	o.call.get = GetOptions{
		Range: Range{Offset: r.off, Length: r.end - r.off}, Conditions: Conditions{IfMatch: r.same.etag}, Same: r.same.info(r.key),
		elsewhere: !r.patient || len(o.walk.p.members) > 1,
	}
	until := r.patience(broken)
	for b, p := r.next(o, until); b != nil; b, p = r.next(o, until) {
		class := r.m.try(r.ctx, o, b, p)
		if class == ClassOK || class == ClassAbort {
			return r.moveTo(o, b, class)
		}
		r.m.release(b)
		r.breaks.failed(b, !class.Counts()) // who is well has not what is wanted
	}
	return broke
}

// next is the next backend that may go on: one that is up, else one that is due back until then.
func (r *body) next(o *operation, until time.Time) (*backend, permit) {
	if b, p := o.walk.next(r.breaks.asked); b != nil || until.IsZero() {
		return b, p
	}
	return r.await(until)
}

// moveTo makes what b answered the source.
func (r *body) moveTo(o *operation, b *backend, class Class) error {
	if class == ClassAbort {
		r.m.release(b)
		return r.m.aborted(r.ctx, &o.call, o.attempts)
	}
	next := newSource(o.answer.stream, nil)
	r.m.resumes.Add(1)
	b.stats.resumes.Add(1)
	r.mu.Lock()
	if r.closed.Load() {
		r.mu.Unlock()
		next.end(r.m)
		return errBodyClosed
	}
	r.src, r.srcDone, r.head = next, false, o.answer.head
	r.mu.Unlock()
	return nil
}

// closeSource closes the source, once.
func (r *body) closeSource() {
	r.mu.Lock()
	src, done := r.src.ending(), r.srcDone
	r.srcDone = true
	r.mu.Unlock()
	if !done {
		src.end(r.m)
	}
}

// Close implements io.Closer. Closing before the end is nobody's fault.
func (r *body) Close() error {
	if r.closed.CompareAndSwap(false, true) {
		r.closeSource()
	}
	return nil
}

// File implements [FileBody], where the source is a file and nothing was read ahead.
func (r *body) File() *os.File {
	if r.head.left() > 0 || r.err != nil {
		return nil
	}
	return BodyFile(r.src.body)
}

// WriteTo implements io.WriterTo: the shortest way from the source to w.
func (r *body) WriteTo(w io.Writer) (int64, error) {
	var written int64
	for {
		n, err := r.writeSome(w)
		written += n
		if errors.Is(err, io.EOF) {
			return written, nil
		}
		if err != nil {
			return written, err
		}
	}
}

// writeSome writes what is at hand: the head, all of a source that writes itself, or one buffer.
func (r *body) writeSome(w io.Writer) (int64, error) {
	if r.closed.Load() {
		return 0, errBodyClosed
	}
	if r.head.left() > 0 {
		n, err := w.Write(r.head.buf[r.head.off:r.head.n])
		r.took(n)
		return int64(n), err
	}
	if r.err == nil && r.off == r.end {
		r.err = io.EOF
	}
	if r.err != nil {
		return 0, r.err
	}
	if r.off < r.end {
		if wt, ok := r.src.writerTo(); ok {
			return r.writeSource(wt, w)
		}
	}
	if r.end-r.off >= largeSize {
		buf := larges.Get().(*[largeSize]byte)
		defer larges.Put(buf)
		return r.writeBuffer(w, buf[:])
	}
	buf := heads.Get().(*[headSize]byte)
	defer heads.Put(buf)
	return r.writeBuffer(w, buf[:])
}

// largeSize is how much of a large body is written at a time: calls to the system are what it costs most.
const largeSize = 128 << 10

var larges = sync.Pool{New: func() any { return new([largeSize]byte) }}

func (r *body) writeBuffer(w io.Writer, buf []byte) (int64, error) {
	n, err := r.Read(buf)
	if err != nil {
		return 0, err
	}
	n, err = w.Write(buf[:n])
	return int64(n), err
}

// writeSource lets the source write itself, and finds out whose fault it is when that fails. What counts is what the writer
// has got, whatever the source says of it.
func (r *body) writeSource(wt io.WriterTo, w io.Writer) (int64, error) {
	r.sink = countingWriter{w: w, left: r.end - r.off}
	_, err := safeWriteTo(wt, &r.sink)
	n := r.sink.n
	r.off += n
	switch {
	case r.sink.err != nil:
		r.err = r.sink.err // how far the source has come, nobody knows
		return n, r.err
	case r.off == r.end:
		return n, nil
	case err == nil:
		err = io.EOF
	}
	r.failed(err)
	return n, r.err
}

// countingWriter counts what the writer takes, lets nothing pass that is not the part's, and remembers the writer's error,
// to tell it from the reader's.
type countingWriter struct {
	w    io.Writer
	n    int64
	left int64 // of the part
	err  error
}

func (c *countingWriter) Write(p []byte) (int, error) {
	if c.err != nil {
		return 0, c.err
	}
	extra := int64(len(p)) > c.left
	if extra {
		p = p[:c.left]
	}
	n, err := c.w.Write(p)
	c.took(int64(n))
	switch {
	case err != nil:
		c.err = err
	case extra:
		err = errTooLong
	}
	return n, err
}

func (c *countingWriter) took(n int64) {
	c.n += n
	c.left -= n
}

var errTooLong = errors.New("body is longer than it was said to be")

// ReadFrom hands on the writer's own, by which files go out without a copy. Its error may be either side's: it is the
// writer's if the reader, asked once more, has none.
func (c *countingWriter) ReadFrom(src io.Reader) (int64, error) {
	rf, ok := c.w.(io.ReaderFrom)
	if limited, isLimited := src.(*io.LimitedReader); !ok || !isLimited || limited.N > c.left || c.err != nil {
		return io.Copy(struct{ io.Writer }{c}, src)
	}
	n, err := c.readFrom(rf, src)
	if err != nil && c.err == nil {
		if _, again := src.Read(make([]byte, 1)); again == nil || errors.Is(again, io.EOF) {
			c.err = err
		}
	}
	return n, err
}

// readFrom counts. After a panic nobody knows how far it has come, so that it is as good as the writer's end.
func (c *countingWriter) readFrom(rf io.ReaderFrom, src io.Reader) (n int64, err error) {
	defer func() {
		if v := recover(); v != nil {
			c.err = panicked(v)
			n, err = 0, c.err
		}
	}()
	n, err = rf.ReadFrom(src)
	c.took(n)
	return n, err
}
