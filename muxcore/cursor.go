package muxcore

import (
	"context"
	"time"
)

// cursorBuffer is how many entries a backend may be ahead of the reader.
const cursorBuffer = 16

// cursorItem is what a list brings: an entry, its last error, or word of a part that is missing.
type cursorItem struct {
	entry  Entry
	err    error
	notice notice
}

// notice is word of a backend inside of a nested mux.
type notice struct {
	backend string
	err     error
}

// cursor is a list of one backend, read entry by entry from a goroutine that can be abandoned.
type cursor struct {
	m       *Mux
	b       *backend
	opts    ListOptions
	w       *watch
	timeout time.Duration // up to the first entry
	items   chan cursorItem
	permit  permit // for what becomes of the list after its first entry
	hold    *hold  // of the goroutine; nil before there is one

	entry   Entry
	ok      bool // entry is valid
	err     error
	class   Class    // of err
	notices []notice // not yet handed on
	closed  bool
}

// newCursor prepares a list of b, which must have been admitted. Nothing is asked yet.
func (m *Mux) newCursor(ctx context.Context, b *backend, opts ListOptions, timeout time.Duration) *cursor {
	c := &cursor{m: m, b: b, opts: opts, timeout: timeout, items: make(chan cursorItem, cursorBuffer)}
	c.w = newWatch(ctx, timeout)
	if opts.OnDegraded != nil { // comes on the list's goroutine, and goes to the caller's by way of the items
		c.opts.OnDegraded = func(inner string, err error) { c.send(cursorItem{notice: notice{inner, err}}) }
	}
	return c
}

// open begins the list and waits for its first entry, its end or its failure, which settles p.
func (c *cursor) open(ctx context.Context, p permit, index int) {
	ctx, span := c.m.startAttempt(ctx, c.b, index)
	started := time.Now()
	c.hold = c.b.hold()
	go c.fill()
	c.take(ctx)
	took := time.Since(started)
	c.w.allow(c.b.Timeout) // whose turn it is, fill knows
	c.m.finish(c.b, p, &call{op: OpList, key: c.opts.Prefix}, c.class, c.err, took)
	c.permit = c.b.reads.later()
	endAttempt(span, c.class, took)
}

// fill runs the list on its goroutine. Waiting for the reader is not the backend's time, nor is what comes after the end.
func (c *cursor) fill() {
	defer close(c.items)
	defer func() {
		c.hold.ended()
		_ = c.b.letGo()
	}()
	defer c.w.pause()
	defer func() {
		if p := recover(); p != nil {
			c.send(cursorItem{err: panicked(p)})
		}
	}()
	for e, err := range c.b.Store.List(c.w.ctx, c.opts) {
		if !c.send(cursorItem{entry: e, err: err}) || err != nil {
			return
		}
	}
}

func (c *cursor) send(item cursorItem) bool {
	c.w.pause()
	defer c.w.wait()
	select {
	case c.items <- item:
		return true
	case <-c.w.ctx.Done():
		return false
	}
}

// next moves to the next entry. A failure counts against the backend.
func (c *cursor) next(ctx context.Context) {
	c.take(ctx)
	if c.class.Counts() {
		c.b.stats.failed(c.class)
		c.m.settle(c.b, OpList, c.permit, c.class, c.err)
	}
}

// take waits for the next entry.
func (c *cursor) take(ctx context.Context) {
	c.ok = false
	for !c.ok && c.err == nil {
		item, more := c.receive()
		switch {
		case item.notice.err != nil:
			c.notices = append(c.notices, item.notice)
		case item.err != nil:
			c.err = item.err
		case more:
			c.entry, c.ok = item.entry, true
		default:
			c.class = Classify(ctx, nil)
			return
		}
	}
	if c.err != nil && c.w.stalled() && ctx.Err() == nil {
		c.err = &Error{Code: CodeBackendTimeout, Op: OpList, Err: errNoProgress}
	}
	c.class = Classify(ctx, c.err)
}

// receive takes what is there before it looks whether the list was ended. No item and no error is the regular end.
func (c *cursor) receive() (item cursorItem, more bool) {
	select {
	case item, more = <-c.items:
	default:
		select {
		case item, more = <-c.items:
		case <-c.w.ctx.Done():
			return cursorItem{err: c.w.cause()}, false
		}
	}
	if !more && c.w.ctx.Err() != nil {
		item.err = c.w.cause()
	}
	return item, more
}

func (c *cursor) close() {
	if !c.closed {
		c.closed = true
		if c.w.stop(); c.hold != nil {
			c.hold.abandon()
		}
		c.m.release(c.b)
	}
}
