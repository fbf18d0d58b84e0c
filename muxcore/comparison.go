package muxcore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// comparison walks the lists of all backends of a tree side by side: one row a key, in order, in bounded memory.
type comparison struct {
	top   *limb
	truth *limb
	seats []*seat
	deep  bool

	fault func(error) bool // is told why a backend's part is missing, and whether to go on
	cols  []*column
	halt  bool
}

// column is one backend's part in a comparison.
type column struct {
	seat   *seat
	cursor *cursor // of its list; nil: it has none
	asked  bool    // it cannot list: it is asked for each key that others list
	lost   bool    // nothing more is known of it
	last   string  // key
}

// newComparison looks up the backend whose word counts; "" is that of the mode.
func (m *Mux) newComparison(truth string, deep bool) (*comparison, error) {
	c := &comparison{deep: deep}
	c.top = limbOf(m, nil, &c.seats)
	if c.truth = c.top.find(truth); c.truth == nil {
		return nil, &Error{Code: CodeBackendNotFound, Backend: truth}
	}
	return c, nil
}

// errListOrder is why the list of a backend is not used: a missing key would be taken for one that comes too late.
var errListOrder = errors.New("its list is not in order")

// rows calls each for every key that a backend holds, until it says no. fault is told of backends whose part is missing. The error is that of ctx.
func (c *comparison) rows(ctx context.Context, prefix string, fault func(error) bool, each func(*row) bool) error {
	c.fault, c.halt, c.cols = fault, false, nil
	prefixes := []string{prefix}
	if prefix == "" {
		prefixes = append(prefixes, InternalPrefix)
	}
	for _, p := range prefixes {
		c.section(ctx, p, each)
		if err := ctx.Err(); err != nil || c.halt {
			return context.Cause(ctx)
		}
	}
	return nil
}

// section walks the keys that begin with prefix.
func (c *comparison) section(ctx context.Context, prefix string, each func(*row) bool) {
	c.open(ctx, prefix)
	defer c.close()
	for ctx.Err() == nil && !c.halt {
		key, more := c.least()
		if !more {
			return
		}
		r := c.row(ctx, key)
		if !strings.HasPrefix(key, LockPrefix) && ctx.Err() == nil && !c.halt && !each(r) {
			c.halt = true
		}
	}
}

// open begins the lists of all backends at the same time. A backend that was lost once stays so.
func (c *comparison) open(ctx context.Context, prefix string) {
	if c.cols == nil {
		for _, s := range c.seats {
			c.cols = append(c.cols, &column{seat: s})
		}
	}
	errs := make([]error, len(c.cols))
	var wg sync.WaitGroup
	for i, col := range c.cols {
		if !col.lost {
			wg.Go(func() { errs[i] = col.open(ctx, prefix) })
		}
	}
	wg.Wait()
	for i, col := range c.cols {
		if errs[i] != nil {
			c.lose(ctx, col, errs[i])
		}
	}
}

func (c *comparison) close() {
	for _, col := range c.cols {
		col.close()
	}
}

// lose tells of a backend whose list ends too early. One that cannot list at all goes on being asked.
func (c *comparison) lose(ctx context.Context, col *column, err error) {
	col.close()
	if ctx.Err() != nil {
		return
	}
	col.asked = errors.Is(err, ErrUnsupported)
	col.lost = !col.asked
	if !c.halt && !c.fault(err) {
		c.halt = true
	}
}

// least is the next key.
func (c *comparison) least() (key string, more bool) {
	for _, col := range c.cols {
		if k, ok := col.key(); ok && (!more || k < key) {
			key, more = k, true
		}
	}
	return key, more
}

// row is what all hold at key, and moves on those that list it.
func (c *comparison) row(ctx context.Context, key string) *row {
	r := &row{key: key, at: make([]holding, len(c.cols))}
	for i, col := range c.cols {
		h := &r.at[i]
		h.seat = col.seat
		switch k, ok := col.key(); {
		case col.lost:
		case col.asked:
			if err := h.look(ctx, key, false); err != nil {
				c.lose(ctx, col, err)
			}
		case ok && k == key:
			h.seen(&col.cursor.entry.Info)
			h.stale = col.seat.m.outdated(key, col.seat.b)
			if err := col.next(ctx); err != nil {
				c.lose(ctx, col, err)
			}
		default:
			h.known = true
		}
	}
	return r
}

// look asks anew, of all backends whose part of the row is known, what they hold at its key, reading the bytes if the
// comparison is deep. It gives the errors of those that could not be asked; their part is not known any more.
func (c *comparison) look(ctx context.Context, r *row) []error {
	errs := make([]error, len(r.at))
	var wg sync.WaitGroup
	for i := range r.at {
		if r.at[i].known {
			wg.Go(func() { errs[i] = r.at[i].look(ctx, r.key, c.deep) })
		}
	}
	wg.Wait()
	return errs
}

// open begins the backend's list.
func (col *column) open(ctx context.Context, prefix string) error {
	if col.asked {
		return nil
	}
	p, err := col.seat.admit(ctx, OpList, prefix, true)
	if err != nil {
		return err
	}
	m, b := col.seat.m, col.seat.b
	col.last = ""
	col.cursor = m.newCursor(ctx, b, ListOptions{Prefix: prefix, Details: true}, b.Timeout)
	col.cursor.open(ctx, p, 0)
	return col.check()
}

// next moves to the next entry.
func (col *column) next(ctx context.Context) error {
	if col.seat.out() {
		return col.seat.fault(OpList, "", &Error{Code: CodeBackendDraining})
	}
	col.cursor.next(ctx)
	return col.check()
}

// check looks at what the cursor brought.
func (col *column) check() error {
	cur := col.cursor
	switch {
	case cur.err != nil:
		return col.seat.fault(OpList, cur.opts.Prefix, cur.err)
	case !cur.ok:
		return nil
	case cur.entry.Key <= col.last || !strings.HasPrefix(cur.entry.Key, cur.opts.Prefix):
		err := fmt.Errorf("%w: %q after %q", errListOrder, cur.entry.Key, col.last)
		return col.seat.fault(OpList, cur.opts.Prefix, &Error{Code: CodeUnavailable, Err: err})
	}
	col.last = cur.entry.Key
	return nil
}

// key is the one on which the list stands.
func (col *column) key() (string, bool) {
	if col.cursor == nil || col.lost || !col.cursor.ok {
		return "", false
	}
	return col.cursor.entry.Key, true
}

func (col *column) close() {
	if col.cursor != nil {
		col.cursor.close()
		col.seat.leave()
		col.cursor = nil
	}
}

// deleted tells whether the newest that a journal of the tree knows of the key is that it was deleted.
func (c *comparison) deleted(key string) bool { return c.top.deleted(key) }

func (l *limb) deleted(key string) bool {
	return l.seat == nil && (l.m.tombstoned(key) || slices.ContainsFunc(l.parts, func(part *limb) bool { return part.deleted(key) }))
}
