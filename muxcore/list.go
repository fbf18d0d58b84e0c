package muxcore

import (
	"context"
	"errors"
	"iter"
	"time"
)

// List implements [Store]. Where one backend's word is final, the first that answers gives the list, and another goes on
// with it should that one fail; where a miss is not (mirror, on_miss next), the lists of all are merged, and backends
// whose part is missing are told to opts.OnDegraded.
func (m *Mux) List(ctx context.Context, opts ListOptions) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		if err := CheckPrefix(opts.Prefix); err != nil {
			yield(Entry{}, err)
			return
		}
		ctx, span := m.startSpan(ctx, OpList, opts.Prefix)
		defer endSpan(span)
		o := m.begin(OpList, opts.Prefix)
		defer o.end()
		l := lister{m: m, o: o, opts: opts, yield: yield}
		var err error
		if m.missGoesOn() {
			err = l.merged(ctx)
		} else {
			err = l.fromFirst(ctx)
		}
		if err != nil && !l.stopped {
			yield(Entry{}, err)
		}
	}
}

// lister is one List under way.
type lister struct {
	m       *Mux
	o       *operation
	opts    ListOptions
	yield   func(Entry, error) bool
	given   int
	stopped bool // by the caller, or by the limit
}

// give yields an entry and tells whether to go on.
func (l *lister) give(e Entry, b *backend) bool {
	e.Via = Via{Backend: b.dotted(e.Via.Backend), Attempts: l.o.attempts}
	l.given++
	if !l.yield(e, nil) || l.opts.Limit > 0 && l.given >= l.opts.Limit {
		l.stopped = true
	}
	l.opts.After = e.Key
	return !l.stopped
}

// fromFirst lists from the first backend that answers.
func (l *lister) fromFirst(ctx context.Context) error {
	unsupported := 0
	for b, p := l.m.nextReader(ctx, l.o); b != nil; b, p = l.m.nextReader(ctx, l.o) {
		c := l.m.openCursor(ctx, l.o, b, p, l.remaining())
		for c.ok && l.give(c.entry, b) {
			c.next(ctx)
		}
		c.close()
		switch {
		case l.stopped || c.err == nil:
			return nil
		case errors.Is(c.err, ErrUnsupported):
			unsupported++
			l.degraded(b, c.err)
			continue
		}
		l.o.answer.err = c.err
		if !l.m.goesOn(l.o, b, c.class) {
			return l.m.final(ctx, l.o, b, c.class)
		}
	}
	if unsupported > 0 && unsupported == l.o.tried {
		return &Error{Code: CodeUnsupported, Op: OpList, Attempts: l.o.attempts, Err: errors.New("no backend can list")}
	}
	return l.m.exhausted(ctx, l.o)
}

// remaining are the options for the rest of the list.
func (l *lister) remaining() ListOptions {
	opts := l.opts
	if opts.Limit > 0 {
		opts.Limit -= l.given
	}
	return opts
}

func (l *lister) degraded(b *backend, err error) {
	if l.opts.OnDegraded != nil {
		l.opts.OnDegraded(b.Name, err)
	}
}

// merged lists from all backends at once, each key from the first that has it.
func (l *lister) merged(ctx context.Context) error {
	cursors := l.openAll(ctx)
	defer func() {
		for _, c := range cursors {
			c.close()
		}
	}()
	alive := 0
	for _, c := range cursors {
		if c.err == nil {
			alive++
		}
	}
	if alive == 0 {
		return l.m.exhausted(ctx, l.o)
	}
	for {
		least := leastOf(cursors)
		if least == nil || !l.give(least.entry, least.b) {
			return ctx.Err()
		}
		key := least.entry.Key
		for _, c := range cursors {
			if c.ok && c.entry.Key == key {
				if c.next(ctx); c.err != nil {
					l.degraded(c.b, c.err)
				}
			}
		}
	}
}

// openAll opens a cursor on every backend that may be asked, and names those that may not.
func (l *lister) openAll(ctx context.Context) []*cursor {
	asked := make(map[*backend]bool)
	var cursors []*cursor
	for b, p := l.o.walk.next(nil); b != nil; b, p = l.o.walk.next(nil) {
		asked[b] = true
		c := l.m.openCursor(ctx, l.o, b, p, l.opts)
		cursors = append(cursors, c)
		if c.err != nil {
			l.o.answer.err = c.err
			l.m.goesOn(l.o, b, c.class)
			l.degraded(b, c.err)
		}
	}
	for _, b := range l.o.walk.p.members {
		if !asked[b] {
			l.degraded(b, l.m.whyNot(b, OpList))
		}
	}
	return cursors
}

func leastOf(cursors []*cursor) *cursor {
	var least *cursor
	for _, c := range cursors {
		if c.ok && (least == nil || c.entry.Key < least.entry.Key) {
			least = c
		}
	}
	return least
}

// cursorBuffer is how many entries a backend may be ahead of the reader.
const cursorBuffer = 64

type cursorItem struct {
	entry Entry
	err   error
}

// cursor is a list of one backend, read entry by entry from a goroutine that can be abandoned.
type cursor struct {
	b     *backend
	w     *watch
	items chan cursorItem
	src   source // for blame

	entry  Entry
	ok     bool // entry is valid
	err    error
	class  Class // of err
	closed bool
	m      *Mux
}

// openCursor begins the list of b and waits for its first entry, its end or its failure.
func (m *Mux) openCursor(ctx context.Context, o *operation, b *backend, p permit, opts ListOptions) *cursor {
	o.tried++
	index := o.attempts
	o.attempts++
	ctx, span := m.startAttempt(ctx, b, index)
	c := &cursor{m: m, b: b, w: newWatch(ctx, m.budget(o, b)), items: make(chan cursorItem, cursorBuffer)}
	if outer := opts.OnDegraded; outer != nil {
		opts.OnDegraded = func(inner string, err error) { outer(b.dotted(inner), err) }
	}
	started := time.Now()
	go c.fill(b.Store, opts)
	c.take(ctx)
	took := time.Since(started)
	c.w.answered(b.Timeout)
	if errors.Is(c.err, ErrUnsupported) {
		c.class = ClassSemantic
	}
	m.finish(b, p, &call{op: OpList, key: opts.Prefix}, c.class, c.err, took)
	c.src = source{backend: b}
	c.src.permit, _ = b.reads.enter()
	endAttempt(span, c.class, took)
	return c
}

// fill runs the list on its goroutine. Waiting for the reader is not the backend's time.
func (c *cursor) fill(s Store, opts ListOptions) {
	defer close(c.items)
	defer func() {
		if p := recover(); p != nil {
			c.send(cursorItem{err: panicked(p)})
		}
	}()
	for e, err := range s.List(c.w.ctx, opts) {
		if !c.send(cursorItem{e, err}) || err != nil {
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
		c.src.blame(ctx, c.m, c.err)
	}
}

func (c *cursor) take(ctx context.Context) {
	c.ok = false
	select {
	case item, more := <-c.items:
		c.entry, c.err, c.ok = item.entry, item.err, more && item.err == nil
		if !more && c.w.ctx.Err() != nil {
			c.err = c.w.cause()
		}
	case <-c.w.ctx.Done():
		c.err = c.w.cause()
	}
	if c.err != nil && c.w.stalled() && ctx.Err() == nil {
		c.err = &Error{Code: CodeBackendTimeout, Op: OpList, Err: errNoProgress}
	}
	c.class = Classify(ctx, c.err)
}

func (c *cursor) close() {
	if !c.closed {
		c.closed = true
		c.w.stop()
		c.m.release(c.b)
	}
}
