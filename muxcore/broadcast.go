package muxcore

import (
	"context"
	"errors"
	"io"
	"sync"
)

const (
	chunkSize  = 64 << 10
	chunkAhead = 4 // chunks that one reader may be behind another
)

// broadcast gives one body to several readers at the pace of the slowest that is still there, in bounded memory: a reader
// that holds up the others is cut loose when its own attempt runs out of time. Followers get the end of the body only
// when they are told that they may: a store commits at the end, so nobody does before that.
type broadcast struct {
	src     *CheckedBody
	readers []*branch
	ended   chan struct{} // closed when no chunk will follow
	err     error         // why the body goes no further; written before ended is closed
	may     chan struct{} // closed when followers may have the end, or must go without
	mayErr  error         // written before may is closed
}

// chunk of a body, shared by all readers and never changed.
type chunk struct {
	data []byte
	last bool // the body ends with it, in err
	err  error
}

// branch is the body as one reader sees it.
type branch struct {
	b       *broadcast
	follows bool
	chunks  chan chunk
	gone    chan struct{}
	once    sync.Once

	cur chunk
	off int
	err error
}

func newBroadcast(src *CheckedBody, n int) *broadcast {
	b := &broadcast{src: src, may: make(chan struct{}), ended: make(chan struct{})}
	for range n {
		b.readers = append(b.readers, &branch{b: b, chunks: make(chan chunk, chunkAhead), gone: make(chan struct{})})
	}
	return b
}

// run reads the body to its end, or until nobody reads it any more or ctx ends.
func (b *broadcast) run(ctx context.Context) {
	defer func() {
		b.err = context.Cause(ctx)
		close(b.ended)
	}()
	next, err := b.fill()
	for {
		this := chunk{data: next, last: err != nil, err: err}
		if err == nil {
			next, err = b.fill()
			if len(next) == 0 && err != nil { // the end came alone: it belongs to the chunk before
				this.last, this.err = true, err
			}
		}
		if !b.hand(ctx, this) || this.last {
			return
		}
	}
}

// fill reads one chunk; an error comes with the last bytes.
func (b *broadcast) fill() ([]byte, error) {
	buf := make([]byte, chunkSize)
	n := 0
	for n < len(buf) {
		m, err := b.src.Read(buf[n:])
		n += m
		if err != nil {
			return buf[:n], err
		}
	}
	return buf, nil
}

// hand gives a chunk to all readers, and tells whether there are any.
func (b *broadcast) hand(ctx context.Context, c chunk) bool {
	any := false
	for _, r := range b.readers {
		select {
		case <-r.gone:
			continue
		default:
		}
		select {
		case r.chunks <- c:
			any = true
		case <-r.gone:
		case <-ctx.Done():
			return false
		}
	}
	return any
}

// permit lets the followers have the end of the body, or with an error has them fail instead. It is called once.
func (b *broadcast) permit(err error) {
	b.mayErr = err
	close(b.may)
}

// Read implements io.Reader.
func (r *branch) Read(p []byte) (int, error) {
	if r.err != nil {
		return 0, r.err
	}
	for r.off == len(r.cur.data) {
		if r.cur.last {
			r.err = r.cur.err
			return 0, r.err
		}
		if r.err = r.take(); r.err != nil {
			return 0, r.err
		}
	}
	n := copy(p, r.cur.data[r.off:])
	r.off += n
	return n, nil
}

// take waits for the next chunk.
func (r *branch) take() error {
	select {
	case r.cur = <-r.chunks:
	case <-r.gone:
		return errDetached
	case <-r.b.ended:
		select {
		case r.cur = <-r.chunks:
		default:
			return r.b.err
		}
	}
	r.off = 0
	if !r.cur.last || !r.follows || !errors.Is(r.cur.err, io.EOF) {
		return nil
	}
	select {
	case <-r.b.may:
		return r.b.mayErr
	case <-r.gone:
		return errDetached
	}
}

// leave ends the reader's part. It may be called from any goroutine, and more than once.
func (r *branch) leave() { r.once.Do(func() { close(r.gone) }) }
