package memstore

import (
	"context"
	"iter"
	"strings"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// pageSize is how many entries a list takes under one lock.
const pageSize = 256

// beyond, after a prefix, is greater than every key with it: keys are UTF-8, which has no such byte.
const beyond = "\xff"

// List implements muxcore.Store. It takes a page at a time, so that neither a slow reader nor a long list keeps
// writers waiting.
func (s *Store) List(ctx context.Context, opts muxcore.ListOptions) iter.Seq2[muxcore.Entry, error] {
	return func(yield func(muxcore.Entry, error) bool) {
		if err := muxcore.CheckPrefix(opts.Prefix); err != nil {
			yield(muxcore.Entry{}, muxcore.At(muxcore.OpList, opts.Prefix, err))
			return
		}
		left := opts.Limit
		c := cursor{opts: &opts, next: opts.Prefix}
		if opts.After >= c.next {
			c.next = opts.After + "\x00" // the least that is greater
		}
		var page []muxcore.Entry
		for !c.done {
			if err := ctx.Err(); err != nil {
				yield(muxcore.Entry{}, muxcore.At(muxcore.OpList, opts.Prefix, err))
				return
			}
			want := pageSize
			if opts.Limit > 0 {
				want = min(want, left)
			}
			page = s.page(&c, page[:0], want)
			for i := range page {
				if !yield(page[i], nil) {
					return
				}
			}
			left -= len(page)
			if opts.Limit > 0 && left <= 0 {
				return
			}
		}
	}
}

// cursor is where a list stands.
type cursor struct {
	opts *muxcore.ListOptions
	next string // no key that is smaller is of interest
	done bool
}

// page appends up to want entries.
func (s *Store) page(c *cursor, page []muxcore.Entry, want int) []muxcore.Entry {
	s.mu.RLock()
	defer s.mu.RUnlock()
	last := "" // the key that was read last, unless c.next says already where to go on
	block, at := s.keys.seek(c.next)
	for len(page) < want {
		key, nextBlock, nextAt, ok := s.keys.at(block, at)
		if !ok || !strings.HasPrefix(key, c.opts.Prefix) {
			c.done = true
			break
		}
		entry, jump := s.entry(c.opts, key)
		if entry.Key > c.opts.After { // an empty one never is
			page = append(page, entry)
		}
		block, at, last = nextBlock, nextAt, key
		if jump != "" {
			c.next, last = jump, ""
			block, at = s.keys.seek(jump)
		}
	}
	if last != "" {
		c.next = last + "\x00" // the least that is greater
	}
	return page
}

// entry makes the entry that key belongs to, empty if it is hidden. jump, if set, is where the next one begins at the
// earliest.
func (s *Store) entry(opts *muxcore.ListOptions, key string) (entry muxcore.Entry, jump string) {
	if muxcore.HiddenFrom(opts.Prefix, key) {
		return muxcore.Entry{}, muxcore.ReservedPrefix + beyond
	}
	if prefix, ok := opts.RollUp(key); ok {
		return muxcore.Entry{Info: muxcore.Info{Key: prefix}, IsPrefix: true}, prefix + beyond
	}
	return muxcore.Entry{Info: s.objects[key].info}, ""
}
