package muxcore

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	chunkSize  = 64 << 10
	chunkAhead = 4 // chunks that one reader may be behind another

	stallStep = 100 * time.Millisecond // how exactly it is measured how long one holds up others
)

// broadcast gives one body to several readers at the pace of the slowest that is still there, in bounded memory: a reader
// that holds up the others is cut loose when its own attempt runs out of time. Followers get the end of the body only
// when they are told that they may: a store commits at the end, so nobody does before that.
type broadcast struct {
	src     *CheckedBody
	readers []*branch
	ended   chan struct{} // closed when no chunk will follow
	err     error         // why the body goes no further; written before ended is closed
	turn    chan struct{} // closed when it is the body's turn to be committed
	lock    func() error  // waits for that, once the whole body is there
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

	patience time.Duration // how long it may hold up others in all
	stalled  time.Duration // how long it has
	cut      atomic.Bool   // for having done so too long

	cur chunk
	off int
	err error
}

func newBroadcast(src *CheckedBody, n int, lock func() error) *broadcast {
	b := &broadcast{src: src, lock: lock, turn: make(chan struct{}), may: make(chan struct{}), ended: make(chan struct{})}
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
		if !b.hand(ctx, this) {
			return
		}
		if this.last {
			if errors.Is(this.err, io.EOF) && b.lock() == nil {
				close(b.turn)
			}
			return
		}
	}
}

// fill reads one chunk; an error comes with the last bytes. Once nobody reads any more it stops: a refusal must not wait
// for the rest of what a slow uploader sends.
func (b *broadcast) fill() ([]byte, error) {
	buf := make([]byte, chunkSize)
	n := 0
	for n < len(buf) && b.anybody() {
		m, err := b.src.Read(buf[n:])
		n += m
		if err != nil {
			return buf[:n], err
		}
	}
	return buf[:n], nil
}

// anybody tells whether there is a reader left.
func (b *broadcast) anybody() bool {
	return slices.ContainsFunc(b.readers, func(r *branch) bool { return !r.left() })
}

// hand gives a chunk to all readers, and tells whether there are any.
func (b *broadcast) hand(ctx context.Context, c chunk) bool {
	for _, r := range b.readers {
		if !r.left() && !b.handTo(ctx, r, c) {
			return false
		}
	}
	return b.anybody()
}

// handTo gives a chunk to one reader, and tells whether the body goes on. A reader that takes its time is waited for; one
// that holds up others, who have taken all there is, is cut loose when it has done so for its own timeout in all.
func (b *broadcast) handTo(ctx context.Context, r *branch, c chunk) bool {
	select {
	case r.chunks <- c:
		return true
	default:
	}
	tick := time.NewTicker(stallStep)
	defer tick.Stop()
	for {
		select {
		case r.chunks <- c:
			return true
		case <-r.gone:
			return true
		case <-ctx.Done():
			return false
		case <-tick.C:
			if b.starves(r) {
				r.stalled += stallStep
			}
			if r.stalled >= r.patience {
				r.cut.Store(true)
				r.leave()
				return true
			}
		}
	}
}

// starves tells whether anybody waits for more because of r.
func (b *broadcast) starves(r *branch) bool {
	return slices.ContainsFunc(b.readers, func(other *branch) bool { return other != r && !other.left() && len(other.chunks) == 0 })
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
	if r.left() {
		return r.why() // whatever is still queued
	}
	select {
	case r.cur = <-r.chunks:
	case <-r.gone:
		return r.why()
	case <-r.b.ended:
		select {
		case r.cur = <-r.chunks:
		default:
			return r.b.err
		}
	}
	r.off = 0
	if !r.cur.last || !errors.Is(r.cur.err, io.EOF) {
		return nil
	}
	return r.end()
}

// end waits until the reader may have the end of the body: for the key's turn, and as a follower for leave.
func (r *branch) end() error {
	select {
	case <-r.b.turn:
	case <-r.gone:
		return r.why()
	case <-r.b.ended:
		select {
		case <-r.b.turn:
		default:
			return r.b.err // the caller gave up
		}
	}
	if !r.follows {
		return nil
	}
	select {
	case <-r.b.may:
		return r.b.mayErr
	case <-r.gone:
		return r.why()
	}
}

// leave ends the reader's part. It may be called from any goroutine, and more than once.
func (r *branch) leave() { r.once.Do(func() { close(r.gone) }) }

// left tells whether the reader's part has ended.
func (r *branch) left() bool {
	select {
	case <-r.gone:
		return true
	default:
		return false
	}
}

// why is the error of a reader whose part was ended.
func (r *branch) why() error {
	if r.cut.Load() {
		return &Error{Code: CodeBackendTimeout, Op: OpPut, Err: errHeldUp}
	}
	return errDetached
}

// errHeldUp is why a backend is cut loose from a fan-out.
var errHeldUp = errors.New("held up the other backends for its whole timeout")
