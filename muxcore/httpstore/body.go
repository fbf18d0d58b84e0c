package httpstore

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"sync"
	"sync/atomic"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

const copySize = 64 << 10

var copyBuffers = sync.Pool{New: func() any { return new([copySize]byte) }}

// body is what of an answer's body belongs to the object. It ends in io.EOF where the object or its part does, and in no
// other case.
type body struct {
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

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.read(p)
}

// read must be called with b.mu held.
func (b *body) read(p []byte) (n int, err error) {
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
func (b *body) judge(err error) error {
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
	return broke(b.ctx, muxcore.OpGet, b.key, err)
}

// WriteTo implements io.WriterTo.
func (b *body) WriteTo(w io.Writer) (written int64, err error) {
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
func (b *body) Close() error {
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
