package muxcore

import (
	"context"
	"math"
	"slices"
	"strings"
)

// pick is the cursor whose entry for key is listed, nil if none is: the one that a read would be answered by. A key that is
// known to be deleted is not listed, nor is what only backends have that lack its newest state, while others can tell.
func (l *lister) pick(ctx context.Context, cursors []*cursor, key string) *cursor {
	if atKey(cursors, key).entry.IsPrefix {
		return l.pickPrefix(ctx, cursors, key)
	}
	mark, marked := l.m.journal.Lookup(key)
	if marked && mark.Known && mark.Deleted {
		return nil
	}
	lacks := l.m.lacking(&mark, marked, l.o.walk.p.members)
	fresh := false
	for _, c := range cursors {
		switch {
		case c.err != nil || lacks(c.b):
			continue
		case c.ok && c.entry.Key == key:
			return c
		case l.single && (!marked || !mark.Known):
			return nil // its word is final
		}
		fresh = true
	}
	if fresh {
		return nil
	}
	return atKey(cursors, key)
}

// pickPrefix lists keys rolled up only if one of them is listed: which is to be found out where some of them have marks.
func (l *lister) pickPrefix(ctx context.Context, cursors []*cursor, prefix string) *cursor {
	first := atKey(cursors, prefix)
	if !l.anyMarked(prefix) {
		if !l.single {
			return first
		}
		for _, c := range cursors {
			if c.err == nil && !l.m.journal.Doubtful(c.b.Name) {
				if c.ok && c.entry.Key == prefix {
					return c
				}
				return nil
			}
		}
		return first
	}
	for _, err := range l.m.List(ctx, ListOptions{Prefix: prefix, Limit: 1}) {
		if err == nil {
			return first
		}
	}
	return nil
}

// anyMarked tells whether a key that begins with prefix has a mark, or had one when the list came to the first prefix: there may
// be many marks, and many prefixes.
func (l *lister) anyMarked(prefix string) bool {
	if l.marks == nil {
		l.marks = append([]string{}, l.m.journal.Keys(l.opts.Prefix, "", math.MaxInt)...)
	}
	i, _ := slices.BinarySearch(l.marks, prefix)
	return i < len(l.marks) && strings.HasPrefix(l.marks[i], prefix)
}

// atKey is the first cursor that stands at key.
func atKey(cursors []*cursor, key string) *cursor {
	for _, c := range cursors {
		if c.ok && c.entry.Key == key {
			return c
		}
	}
	return nil
}
