package muxcore

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"
)

const (
	// window is how many blocks a reader may be behind another at no cost to the spool.
	window = 4

	stallStep = 100 * time.Millisecond // how often somebody looks who holds up whom

	// beginWithin is how long the end of a body waits for those who have not begun to read: who refuses does it before.
	beginWithin = time.Second
)

// broadcast gives one body to several readers, each at its own pace as long as the spool has room for what some have yet
// to read; then at the pace of the slowest that is still there. A reader is cut loose when it has held up the others, or
// the answer, for its own timeout in all. Followers get the end of the body only when they are told that they may: a store
// commits at the end, so nobody does before that.
type broadcast struct {
	src     *CheckedBody
	reel    *reel
	readers []*branch
	enough  int           // commits that make a success, whatever becomes of the others
	turn    chan struct{} // closed when it is the body's turn to be committed
	lock    func() error  // waits for that, once the whole body is there
	may     chan struct{} // closed when followers may have the end, or must go without
	mayErr  error         // written before may is closed
	room    chan struct{} // has a token when a block was dropped, or somebody left

	mu      sync.Mutex
	blocks  []*block // that some reader has yet to pass
	first   int      // number of the first of them in the body
	kept    int      // number of the first block that is not paid for
	ended   bool     // no block will follow
	err     error    // why the body goes no further, from before ended on
	commits int
	timers  []*time.Timer // of those that hold up the answer
}

func newBroadcast(src *CheckedBody, spool *Spool, n, enough int, lock func() error) *broadcast {
	b := &broadcast{
		src: src, reel: spool.newReel(), enough: max(enough, 1), lock: lock,
		turn: make(chan struct{}), may: make(chan struct{}), room: make(chan struct{}, 1),
	}
	for range n {
		b.readers = append(b.readers, &branch{b: b, wake: make(chan struct{}, 1), gone: make(chan struct{})})
	}
	return b
}

// run reads the body to its end, or until nobody reads it any more or ctx ends.
func (b *broadcast) run(ctx context.Context) {
	defer b.over(ctx)
	next := b.fill()
	for {
		this := next
		if !this.last {
			next = b.fill()
			if next.last && next.n == 0 { // the end came alone: it belongs to the block before
				this.last, this.err = true, next.err
				b.reel.drop(next, false)
			}
		}
		if !b.append(ctx, this) {
			return
		}
		if this.last {
			if errors.Is(this.err, io.EOF) && b.agreed(ctx) && b.lock() == nil {
				close(b.turn)
			}
			return
		}
	}
}

// agreed waits until everybody has begun to read, and tells whether nobody has said that the key cannot be there.
func (b *broadcast) agreed(ctx context.Context) bool {
	late := time.NewTimer(beginWithin)
	defer late.Stop()
	for {
		b.mu.Lock()
		err := b.err
		waits := slices.ContainsFunc(b.readers, func(r *branch) bool { return !r.began && !r.left() })
		b.mu.Unlock()
		switch {
		case err != nil:
			return false
		case !waits:
			return true
		}
		select {
		case <-b.room:
		case <-late.C:
			return true
		case <-ctx.Done():
			return false
		}
	}
}

// over says that nothing follows.
func (b *broadcast) over(ctx context.Context) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
	if b.err == nil {
		b.err = context.Cause(ctx)
	}
	for _, r := range b.readers {
		signal(r.wake)
	}
}

// gaveUp is why it will never be the body's turn.
func (b *broadcast) gaveUp() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-b.turn:
		return nil
	default:
	}
	switch {
	case !b.ended:
		return nil
	case b.err == nil:
		return errDetached
	}
	return b.err
}

// fill reads one block; an error comes with the last bytes. Once nobody reads any more it stops: a refusal must not wait
// for the rest of what a slow uploader sends.
func (b *broadcast) fill() *block {
	next := b.reel.block()
	for next.n < blockSize && b.anybody() {
		n, err := b.read(next.data[next.n:])
		next.n += n
		if err != nil {
			next.last, next.err = true, err
			break
		}
	}
	return next
}

// read reads the source, whose panic is its error.
func (b *broadcast) read(p []byte) (n int, err error) {
	defer func() {
		if r := recover(); r != nil {
			n, err = 0, panicked(r)
		}
	}()
	return b.src.Read(p)
}

// anybody tells whether there is a reader left.
func (b *broadcast) anybody() bool {
	return slices.ContainsFunc(b.readers, func(r *branch) bool { return !r.left() })
}

// append hands a block to all readers, once there is room for it, and tells whether the body goes on.
func (b *broadcast) append(ctx context.Context, next *block) bool {
	var tick *time.Ticker
	var since time.Time
	for !b.makeRoom() {
		if tick == nil {
			since, tick = time.Now(), time.NewTicker(stallStep)
			defer tick.Stop()
		}
		select {
		case <-b.room:
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
		now := time.Now()
		b.blame(since, now)
		since = now
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.blocks = append(b.blocks, next)
	for _, r := range b.readers {
		if !r.waiting.IsZero() {
			r.waiting = time.Time{}
			signal(r.wake)
		}
	}
	b.trim()
	return b.err == nil && b.anybody()
}

// makeRoom makes sure that no more than the window is unpaid, and tells whether the spool had room for that.
func (b *broadcast) makeRoom() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.first+len(b.blocks)-b.kept >= window {
		oldest := b.blocks[b.kept-b.first]
		oldest.moving = true
		b.mu.Unlock()
		slot, ok := b.reel.keep(oldest)
		b.mu.Lock()
		oldest.moving, oldest.slot = false, slot
		switch {
		case oldest.dropped:
			b.reel.drop(oldest, b.inUse(oldest))
		case !ok:
			return false
		default:
			b.kept++
			if slot != noSlot {
				b.reel.forget(oldest, b.inUse(oldest))
			}
		}
	}
	return true
}

// blame counts the time from since to now to those that hold up others, who have taken all there is, and cuts loose whoever
// has had too much of it. Who decides is waited for: without it, the others have nothing to commit.
func (b *broadcast) blame(since, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.readers {
		if r.left() || r.decides || r.at > b.kept {
			continue
		}
		r.stalled += b.starved(r, since, now)
		if r.stalled >= r.patience {
			r.cutLoose()
		}
	}
}

// starved is for how long anybody has waited for more because of r. It must be called with b.mu held.
func (b *broadcast) starved(r *branch, since, now time.Time) (most time.Duration) {
	for _, other := range b.readers {
		if other == r || other.left() || other.waiting.IsZero() {
			continue
		}
		from := since
		if other.waiting.After(from) {
			from = other.waiting
		}
		most = max(most, now.Sub(from))
	}
	return most
}

// trim drops the blocks that every reader has passed. It must be called with b.mu held.
func (b *broadcast) trim() {
	lowest := b.first + len(b.blocks)
	for _, r := range b.readers {
		if !r.left() {
			lowest = min(lowest, r.at)
		}
	}
	if lowest == b.first {
		return
	}
	for _, passed := range b.blocks[:lowest-b.first] {
		if passed.moving {
			passed.dropped = true
		} else {
			b.reel.drop(passed, b.inUse(passed))
		}
	}
	b.blocks = slices.Delete(b.blocks, 0, lowest-b.first)
	b.first = lowest
	b.kept = max(b.kept, b.first)
	signal(b.room)
}

// inUse tells whether a reader, who may have left, is reading in a block. It must be called with b.mu held.
func (b *broadcast) inUse(one *block) bool {
	return slices.ContainsFunc(b.readers, func(r *branch) bool { return r.cur == one })
}

// finished says that a reader's part has ended. A key that cannot be on one backend ends the others' parts as well, if
// they have not come to the end yet. Once there are enough commits, those that are still reading hold up the answer, and
// have what is left of their patience to come to their end.
func (b *broadcast) finished(r *branch, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.ended && CodeOf(err) == CodeKeyConflict {
		b.err = err
	}
	r.leaveLocked()
	if err != nil {
		return
	}
	if b.commits++; b.commits != b.enough {
		return
	}
	for _, late := range b.readers {
		if !late.left() && late.patience < never {
			b.timers = append(b.timers, time.AfterFunc(late.patience-late.stalled, func() {
				b.mu.Lock()
				defer b.mu.Unlock()
				late.cutLoose()
			}))
		}
	}
}

// permit lets the followers have the end of the body, or with an error has them fail instead. It is called once.
func (b *broadcast) permit(err error) {
	b.mayErr = err
	close(b.may)
}

// close gives back what the body took of the spool. Nobody may read any more, and run must have ended.
func (b *broadcast) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, t := range b.timers {
		t.Stop()
	}
	for _, r := range b.readers {
		r.leaveLocked()
	}
	b.trim()
	b.reel.close()
}

// signal puts a token into c, if there is none.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
