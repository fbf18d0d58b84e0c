package muxcore

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
)

// List implements [Store]. Where one backend's word is final, the first that answers gives the list, and another goes on
// with it should that one fail; where it is not (mirror, sticky_by_key, on_miss next), the lists of all are merged, and
// backends whose part is missing are told to opts.OnDegraded. They are merged as well while some lack the newest state of
// keys: what a list shows is what a read finds (see [lister.pick]).
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
		l := lister{m: m, o: o, opts: opts, yield: yield, marked: m.pending(), single: !m.missGoesOn() && m.set.Mode != StickyByKey}
		var err error
		if l.marked || !l.single {
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
	marked  bool     // some backends lack the newest state of keys
	marks   []string // these keys, in order; nil: not looked up yet
	single  bool     // one backend's word is final
	stopped bool     // by the caller, or by the limit
}

// give yields an entry and tells whether to go on.
func (l *lister) give(e Entry, b *backend) bool {
	e.Via = Via{Backend: b.dotted(e.Via.Backend), Attempts: l.o.attempts}
	l.given++
	l.opts.After = e.Key
	if !l.yield(e, nil) || l.opts.Limit > 0 && l.given >= l.opts.Limit {
		l.stopped = true
	}
	return !l.stopped
}

// fromFirst lists from the first backend that answers.
func (l *lister) fromFirst(ctx context.Context) error {
	unsupported := 0
	var asked []*backend
	for b, p := l.m.nextReader(ctx, l.o); b != nil; b, p = l.m.nextReader(ctx, l.o) {
		c := l.all(ctx, b, p)
		asked = append(asked, b)
		switch {
		case l.stopped || c.err == nil:
			l.passedOver(b, asked)
			return nil
		case errors.Is(c.err, ErrUnsupported):
			unsupported++
			l.degraded(b.Name, c.err)
			continue
		}
		if c.class.MovesOn() {
			l.degraded(b.Name, c.err)
		}
		l.o.answer.err = c.err
		if !l.m.goesOn(l.o, b, c.class) {
			return l.m.final(ctx, l.o, b, c.class)
		}
	}
	return l.nobody(ctx, unsupported)
}

// all gives what b lists, to its end or until it breaks off.
func (l *lister) all(ctx context.Context, b *backend, p permit) *cursor {
	l.o.tried++
	c := l.m.newCursor(ctx, b, l.remaining(), l.m.budget(l.o, b))
	defer c.close()
	c.open(ctx, p, l.o.attempts)
	l.o.attempts++
	for l.notices(c); c.ok && l.give(c.entry, b); l.notices(c) {
		c.next(ctx)
	}
	return c
}

// passedOver names those that stand before b and were left alone.
func (l *lister) passedOver(b *backend, asked []*backend) {
	members := l.o.walk.p.members
	if l.m.set.Mode != Failover && l.m.set.Mode != Shield {
		return // no order, by which anybody stands before another
	}
	for _, before := range members[:max(0, slices.Index(members, b))] {
		if !slices.Contains(asked, before) {
			l.degraded(before.Name, l.m.whyNot(before, OpList))
		}
	}
}

// nobody is the error of a list to which no backend came to the end.
func (l *lister) nobody(ctx context.Context, unsupported int) error {
	if ctx.Err() == nil && unsupported > 0 && unsupported == l.o.tried {
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

func (l *lister) degraded(backend string, err error) {
	if l.opts.OnDegraded != nil {
		l.opts.OnDegraded(backend, err)
	}
}

// notices hands on what a nested mux said of its own backends.
func (l *lister) notices(c *cursor) {
	for _, n := range c.notices {
		l.degraded(c.b.dotted(n.backend), n.err)
	}
	c.notices = nil
}

// merged lists from all backends at once, each key from the first that has it.
func (l *lister) merged(ctx context.Context) error {
	cursors := l.openAll(ctx)
	defer func() {
		for _, c := range cursors {
			c.close()
		}
	}()
	for least := leastOf(cursors); least != nil; least = leastOf(cursors) {
		key := least.entry.Key
		if l.marked {
			least = l.pick(ctx, cursors, key)
		}
		if least != nil && !l.give(least.entry, least.b) {
			return nil
		}
		for _, c := range cursors {
			if c.ok && c.entry.Key == key {
				c.next(ctx)
				l.heard(c)
			}
		}
	}
	unsupported, ended, aborted := 0, false, false
	for _, c := range cursors {
		ended = ended || c.err == nil
		aborted = aborted || c.class == ClassAbort
		if errors.Is(c.err, ErrUnsupported) {
			unsupported++
		}
	}
	if ended && !aborted {
		return nil // what the others lack was told
	}
	return l.nobody(ctx, unsupported)
}

// heard takes in what a cursor brought besides an entry.
func (l *lister) heard(c *cursor) {
	l.notices(c)
	if c.err != nil {
		l.o.answer.err = c.err
		l.m.goesOn(l.o, c.b, c.class)
		l.o.from = nil // nobody is asked instead
		l.degraded(c.b.Name, c.err)
	}
}

// openAll opens a cursor on every backend that may be asked, all at the same time, and names those that may not.
func (l *lister) openAll(ctx context.Context) []*cursor {
	asked := make(map[*backend]bool)
	var cursors []*cursor
	var permits []permit
	opts := l.opts
	if l.marked {
		opts.Limit = 0 // not every entry counts
	}
	for b, p := l.o.walk.next(nil); b != nil; b, p = l.o.walk.next(nil) {
		asked[b] = true
		permits = append(permits, p)
		cursors = append(cursors, l.m.newCursor(ctx, b, opts, l.m.budget(l.o, b)))
	}
	var wg sync.WaitGroup
	for i, c := range cursors {
		wg.Go(func() { c.open(ctx, permits[i], l.o.attempts+i) })
	}
	wg.Wait()
	l.o.attempts += len(cursors)
	l.o.tried += len(cursors)
	for _, c := range cursors {
		l.heard(c)
	}
	for _, b := range l.o.walk.p.members {
		if !asked[b] {
			l.degraded(b.Name, l.m.whyNot(b, OpList))
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
