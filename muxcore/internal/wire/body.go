package wire

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

const copySize = 64 << 10

var copyBuffers = sync.Pool{New: func() any { return new([copySize]byte) }}

// Body is what of an answer's body belongs to the object. It ends in io.EOF where the object or its part does, and in no
// other case.
type Body struct {
	ctx    context.Context // of the request, which governs the body: only to tell whose fault an error is
	src    io.ReadCloser
	key    string
	closed atomic.Bool

	mu    sync.Mutex // held while reading, so that Close knows
	head  []byte     // of the part, read ahead
	left  int64      // of the part, -1 unknown
	exact bool       // an end before left is no end
	wire  int64      // left in src, -1 unknown
	err   error      // sticky
}

// Opened is an object with its body, so that a Get allocates once for both.
type Opened struct {
	Object muxcore.Object
	Body   Body
}

// Open hands out the body of resp, the answer to a request with ctx, of which take bytes are the object's, or all if that is
// negative.
func Open(ctx context.Context, info *muxcore.Info, resp *http.Response, offset, take int64) *Opened {
	o := &Opened{Object: muxcore.Object{Info: *info, Offset: offset, Length: take}}
	o.Body = Body{ctx: ctx, src: resp.Body, key: info.Key, left: take, exact: take >= 0, wire: resp.ContentLength}
	o.Object.Body = &o.Body
	return o
}

// Skipped says that n bytes of the answer were read and thrown away.
func (b *Body) Skipped(n int64) { b.wire -= n }

// Ahead puts back what was read of the part already, and cuts the rest after most bytes, which may be fewer; negative: it
// does not.
func (b *Body) Ahead(head []byte, most int64) {
	b.head = head
	if most >= 0 {
		b.left = most
	}
}

// Read implements io.Reader.
func (b *Body) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.read(p)
}

// read must be called with b.mu held.
func (b *Body) read(p []byte) (n int, err error) {
	switch {
	case b.closed.Load():
		return 0, fs.ErrClosed
	case b.err != nil:
		return 0, b.err
	case b.left == 0:
		b.err = io.EOF
		return 0, b.err
	case len(p) == 0:
		return 0, nil
	}
	if b.left >= 0 && int64(len(p)) > b.left {
		p = p[:b.left]
	}
	if len(b.head) > 0 {
		n = copy(p, b.head)
		b.head = b.head[n:]
	} else {
		n, err = b.src.Read(p)
		if b.wire >= 0 {
			b.wire -= int64(n)
		}
	}
	if b.left >= 0 {
		b.left -= int64(n)
	}
	b.err = b.judge(err)
	return n, b.err
}

// judge decides what the end of a read means. Having all of the part is the end, whatever came with it.
func (b *Body) judge(err error) error {
	switch {
	case b.left == 0:
		return io.EOF
	case err == nil:
		return nil
	case b.closed.Load():
		return fs.ErrClosed
	case errors.Is(err, io.EOF) && !b.exact:
		return io.EOF
	case errors.Is(err, io.EOF):
		err = io.ErrUnexpectedEOF
	}
	return Broke(b.ctx, muxcore.OpGet, b.key, err)
}

// WriteTo implements io.WriterTo.
func (b *Body) WriteTo(w io.Writer) (written int64, err error) {
	buf := copyBuffers.Get().(*[copySize]byte)
	defer copyBuffers.Put(buf)
	for {
		n, err := b.Read(buf[:])
		if n > 0 {
			m, werr := w.Write(buf[:n])
			written += int64(m)
			if werr == nil && m < n {
				werr = io.ErrShortWrite
			}
			if werr != nil {
				return written, werr
			}
		}
		if errors.Is(err, io.EOF) {
			return written, nil
		}
		if err != nil {
			return written, err
		}
	}
}

// Close implements io.Closer. It does not wait for a read under way, but ends it. The little that may be left is read, for
// the connection to be used again; else the connection is closed.
func (b *Body) Close() error {
	if b.closed.Swap(true) {
		return nil
	}
	if !b.mu.TryLock() {
		return b.src.Close()
	}
	defer b.mu.Unlock()
	if b.wire > 0 && b.wire <= bufferSize && (b.err == nil || errors.Is(b.err, io.EOF)) {
		drainBody(b.src, b.wire)
		return nil
	}
	return b.src.Close()
}
