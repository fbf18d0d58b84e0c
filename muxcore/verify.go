package muxcore

import (
	"context"
	"iter"
)

// VerifyOptions narrow a [Mux.Verify].
type VerifyOptions struct {
	// Prefix begins the keys that are compared. "": all, those of Caddy's own storage included.
	Prefix string

	// Truth is the backend, dotted through nested muxes, by whose word the others are judged. "": that of the mode, the
	// origin in shield, else the newest copy.
	Truth string

	// Deep reads the bytes of every copy and compares them, with each other and with what is recorded of them.
	Deep bool

	// OnKey, if set, is told of each key that was compared, never at the same time.
	OnKey func(key string)
}

// Difference is a key on which the backends of a tree do not agree.
type Difference struct {
	Key    string `json:"key"`
	Copies []Copy `json:"copies"` // of each backend, in config order, those in nested muxes in their place
}

// Copy is what one backend holds.
type Copy struct {
	Backend string    `json:"backend"` // dotted through nested muxes
	State   CopyState `json:"state"`
	Info    Info      `json:"-"` // as the backend says, if it holds anything
}

// Verify compares what the backends hold, key by key and in order: whether it is there, its length, its digest where both
// know one, and its ETag where both have it from us. Foreign ETags and times are each backend's own, and say nothing.
// Backends in nested muxes are compared like all others, read-only ones too; in sticky_by_key, a key need be on the
// backend that it belongs to only. What differs is looked at twice, so that writes under way do not show.
//
// An error is about one backend, which it names: its part is missing, or that of keys that only it holds where it cannot
// list; the comparison of the others goes on. Only the end of ctx ends it, with an error that says so.
func (m *Mux) Verify(ctx context.Context, opts VerifyOptions) iter.Seq2[Difference, error] {
	return func(yield func(Difference, error) bool) {
		c, err := m.newComparison(opts.Truth, opts.Deep)
		if err == nil {
			err = CheckPrefix(opts.Prefix)
		}
		if err != nil {
			yield(Difference{}, err)
			return
		}
		fault := func(err error) bool { return yield(Difference{}, err) }
		err = c.rows(ctx, opts.Prefix, fault, func(r *row) bool {
			if opts.OnKey != nil {
				opts.OnKey(r.key)
			}
			return c.verify(ctx, r, yield)
		})
		if err != nil && !c.halt {
			yield(Difference{}, err)
		}
	}
}

// verify judges a row, and gives it if anything differs.
func (c *comparison) verify(ctx context.Context, r *row, yield func(Difference, error) bool) bool {
	v := judge(r, c.truth, true)
	if !v.differs() && !c.deep && !r.suspect() {
		return true
	}
	for i, err := range c.look(ctx, r) {
		col := c.cols[i]
		if err == nil || col.lost || ctx.Err() != nil {
			continue
		}
		if c.lose(ctx, col, err); c.halt {
			return false
		}
	}
	if ctx.Err() != nil {
		return true
	}
	if v = judge(r, c.truth, true); !v.differs() {
		return true
	}
	d := Difference{Key: r.key}
	for i := range r.at {
		d.Copies = append(d.Copies, Copy{Backend: r.at[i].seat.name(), State: v.states[i], Info: r.at[i].info})
	}
	return yield(d, nil)
}
