package muxcore

import (
	"errors"
	"io"
	"sync/atomic"
	"time"
)

// branch is the body of a [broadcast] as one reader sees it.
type branch struct {
	b       *broadcast
	decides bool
	follows bool
	wake    chan struct{} // has a token when there is something to look at
	gone    chan struct{} // closed when the reader's part has ended
	cut     atomic.Bool   // for having held up others too long

	patience time.Duration // how long it may hold up others in all

	// Guarded by b.mu.
	began   bool      // it has asked for something
	at      int       // number of the block that it is to read next, or reads
	cur     *block    // that it reads
	waiting time.Time // since when it has had nothing to read; zero: it has
	stalled time.Duration

	// Its own.
	from place // of cur
	off  int
	last bool  // it is the last one,
	ends error // after which the body ends in this
	err  error
}

// Read implements io.Reader.
func (r *branch) Read(p []byte) (int, error) {
	if r.err != nil {
		return 0, r.err
	}
	for r.off == r.from.n {
		if r.last {
			r.err = r.ends
			return 0, r.err
		}
		if r.err = r.take(); r.err != nil {
			return 0, r.err
		}
	}
	n, err := r.b.reel.read(p, r.from, r.off)
	r.off += n
	if r.off == r.from.n {
		r.pass()
	}
	if err != nil {
		r.err = err
	}
	return n, err
}

// pass lets go of the block that was read to its end.
func (r *branch) pass() {
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	r.cur = nil
	r.at++
	r.b.trim()
}

// take waits for the next block.
func (r *branch) take() error {
	for {
		cur, err := r.look()
		if err != nil {
			return err
		}
		if cur != nil {
			if r.last && errors.Is(r.ends, io.EOF) {
				return r.end()
			}
			return nil
		}
		select {
		case <-r.wake:
		case <-r.gone:
		}
	}
}

// look takes the next block if it is there.
func (r *branch) look() (*block, error) {
	b := r.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if !r.began {
		r.began = true
		signal(b.room)
	}
	switch {
	case r.left():
		return nil, r.why() // whatever is still there for it
	case r.at < b.first+len(b.blocks):
		r.cur = b.blocks[r.at-b.first]
		r.from, r.off = r.cur.place(), 0
		r.last, r.ends = r.cur.last, r.cur.err
		return r.cur, nil
	case b.ended:
		return nil, b.err
	}
	if r.waiting.IsZero() {
		r.waiting = time.Now()
	}
	return nil, nil
}

// end waits until the reader may have the end of the body: for the key's turn, and as a follower for leave.
func (r *branch) end() error {
	for open := true; open; {
		if err := r.b.gaveUp(); err != nil { // the token that says so may be the one by which the last block was found
			return err
		}
		select {
		case <-r.b.turn:
			open = false
		case <-r.gone:
			return r.why()
		case <-r.wake:
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
func (r *branch) leave() {
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	r.leaveLocked()
}

func (r *branch) leaveLocked() {
	if r.left() {
		return
	}
	close(r.gone)
	r.b.trim()
	signal(r.b.room)
}

// cutLoose is leave for a reader that held up others. It must be called with b.mu held.
func (r *branch) cutLoose() {
	if !r.left() {
		r.cut.Store(true)
		r.leaveLocked()
	}
}

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
var errHeldUp = errors.New("held up the other backends, or the answer, for its whole timeout")
