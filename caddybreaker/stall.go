package caddybreaker

import (
	"sync"
	"sync/atomic"
	"time"
)

// stallChecks is how often bodies are looked at within their patience.
const stallChecks = 8

// watchdog finds the bodies of one path that stall. One timer serves all of them,
// as one for each would cost a call more than all else that is done for it, and
// it runs only while there are any. A stall is noticed once the patience is over
// and at most two checks later. The zero value is ready for use.
type watchdog struct {
	mu sync.Mutex

	first *trackedBody
	timer *time.Timer
	awake bool
	every time.Duration
}

// progress is what a watchdog knows of a body.
type progress struct {
	dog   *watchdog     // nil: silence may be meant
	turns atomic.Uint32 // odd while a Read is pending

	// Guarded by dog.mu.

	prev, next *trackedBody
	watched    bool
	patience   time.Duration
	seen       uint32    // turns, when it was looked at last
	since      time.Time // when it was first seen so
}

// turn notes that a Read begins or ends.
func (p *progress) turn() {
	if p.dog != nil {
		p.turns.Add(1)
	}
}

// watch begins to look at b.
func (d *watchdog) watch(b *trackedBody, patience time.Duration) {
	p := &b.progress
	p.dog, p.patience = d, patience
	every := max(patience/stallChecks, time.Millisecond)
	d.mu.Lock()
	defer d.mu.Unlock()
	p.watched, p.next = true, d.first
	if d.first != nil {
		d.first.progress.prev = b
	}
	d.first = b
	switch {
	case d.awake:
		return
	case d.timer == nil:
		d.timer = time.AfterFunc(every, d.check)
	default:
		d.timer.Reset(every)
	}
	d.awake, d.every = true, every
}

// leave ends the watching of b, which it may have done itself.
func (d *watchdog) leave(b *trackedBody) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if b.progress.watched {
		d.unlink(b)
	}
}

// unlink must be called with mu held.
func (d *watchdog) unlink(b *trackedBody) {
	p := &b.progress
	if p.prev != nil {
		p.prev.progress.next = p.next
	} else {
		d.first = p.next
	}
	if p.next != nil {
		p.next.progress.prev = p.prev
	}
	p.prev, p.next, p.watched = nil, nil, false
}

// check looks at all bodies, and ends the calls of which nothing more comes.
func (d *watchdog) check() {
	for b, v := range d.overdue(time.Now()) {
		b.end(v)
	}
}

// overdue takes the bodies that are given up out of the list, with the verdict
// on each, and sees to the next check.
func (d *watchdog) overdue(now time.Time) map[*trackedBody]verdict {
	var over map[*trackedBody]verdict
	d.mu.Lock()
	defer d.mu.Unlock()
	for b := d.first; b != nil; {
		this := b
		b = b.progress.next // before it may be unlinked
		if v, stalled := this.stalled(now); stalled {
			if over == nil {
				over = make(map[*trackedBody]verdict)
			}
			over[this] = v
			d.unlink(this)
		}
	}
	if d.awake = d.first != nil; d.awake {
		d.timer.Reset(d.every)
	}
	return over
}

// stalled judges a body at one look. It must be called with dog.mu held.
func (b *trackedBody) stalled(now time.Time) (verdict, bool) {
	p := &b.progress
	if b.ctx.Err() != nil { // nobody closed it, and nobody will read on
		return neutral("the request ended before the body"), true
	}
	turns := p.turns.Load()
	if turns != p.seen || p.since.IsZero() || turns%2 == 0 {
		p.seen, p.since = turns, now
		return verdict{}, false
	}
	if now.Sub(p.since) < p.patience {
		return verdict{}, false
	}
	return failure("body: no byte for " + p.patience.String()), true
}
