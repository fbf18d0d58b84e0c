package wire

import (
	"context"
	"errors"
	"iter"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

const (
	pageSize  = 1000
	lookers   = 8 // entries looked at at the same time, for their details
	lastRune  = "\U0010FFFF"
	serverCut = "/" // the delimiter by which services roll up; others would bring what is reserved to light
)

var errStuck = errors.New("the list does not go on: a page ends where the one before did")

// Listed is an entry of a page as the service gives it.
type Listed struct {
	Path   string // with what stands in front of every key
	Size   int64  // -1 unknown
	Rolled bool   // the service rolled it up
}

// PageQuestion asks for a page of what begins with Prefix and comes after After.
type PageQuestion struct {
	Prefix, After, Delimiter string
	Limit                    int

	// Continues says that the page is the one after the last one, and nothing was skipped.
	Continues bool
}

// Pages lists a store whose service lists by pages in byte order.
type Pages struct {
	// Prefix stands in front of every key.
	Prefix string

	// Page asks for a page. more says that there are others.
	Page func(ctx context.Context, q *PageQuestion) (page []Listed, more bool, err error)

	// Stat looks at an object, for its details.
	Stat func(ctx context.Context, key string) (muxcore.Info, error)
}

// List is a Store's List.
func (p *Pages) List(ctx context.Context, opts muxcore.ListOptions) iter.Seq2[muxcore.Entry, error] {
	return func(yield func(muxcore.Entry, error) bool) {
		if err := muxcore.CheckPrefix(opts.Prefix); err != nil {
			yield(muxcore.Entry{}, muxcore.At(muxcore.OpList, opts.Prefix, err))
			return
		}
		l := lister{Pages: p, opts: &opts, yield: yield, last: opts.After}
		if err := l.run(ctx); err != nil && !errors.Is(err, ErrDone) {
			yield(muxcore.Entry{}, err)
		}
	}
}

// lister is one List under way.
type lister struct {
	*Pages
	opts  *muxcore.ListOptions
	yield func(muxcore.Entry, error) bool
	given int
	last  string // entries not greater are not listed
}

// run lists page by page.
func (l *lister) run(ctx context.Context) error {
	q := &PageQuestion{Prefix: l.Prefix + l.opts.Prefix, Limit: pageSize}
	if l.opts.Delimiter == serverCut {
		q.Delimiter = serverCut
	}
	if l.opts.After != "" {
		q.After = l.Prefix + validPart(l.opts.After)
	}
	for before := ""; ; {
		if rest := l.opts.Limit - l.given; l.opts.Limit > 0 && q.Delimiter == l.opts.Delimiter {
			q.Limit = min(pageSize, rest)
		}
		page, more, err := l.Page(ctx, q)
		if err != nil {
			return err
		}
		if err := l.give(ctx, page); err != nil || !more || len(page) == 0 {
			return err
		}
		last := &page[len(page)-1]
		if last.Path <= before {
			return &muxcore.Error{Code: muxcore.CodeUnavailable, Op: muxcore.OpList, Key: l.opts.Prefix, Err: errStuck}
		}
		before = last.Path
		q.After = l.markerAfter(last.Path, q.After)
		q.Continues = last.Rolled || q.After == last.Path
	}
}

// markerAfter is where the next page begins: after the last entry, and after all that is rolled up with it.
func (l *lister) markerAfter(path, before string) string {
	key, ours := strings.CutPrefix(path, l.Prefix)
	rolled, ok := l.opts.RollUp(key)
	if !ours || !ok {
		return path
	}
	marker := l.Prefix + rolled + lastRune
	for marker <= before {
		marker += lastRune
	}
	return marker
}

// give yields what a page has to list.
func (l *lister) give(ctx context.Context, page []Listed) error {
	var entries []muxcore.Entry
	for i := range page {
		if e, ok := l.entry(&page[i]); ok {
			entries = append(entries, e)
		}
	}
	if rest := l.opts.Limit - l.given; l.opts.Limit > 0 && len(entries) > rest {
		entries = entries[:rest]
	}
	if !l.opts.Details {
		return l.yieldAll(entries)
	}
	for len(entries) > 0 { // as they are taken
		n := min(lookers, len(entries))
		some, err := l.detailed(ctx, entries[:n])
		if err := l.yieldAll(some); err != nil {
			return err
		}
		if err != nil {
			return err
		}
		entries = entries[n:]
	}
	return nil
}

// yieldAll is ErrDone when nobody wants more.
func (l *lister) yieldAll(entries []muxcore.Entry) error {
	for _, e := range entries {
		if !l.yield(e, nil) {
			return ErrDone
		}
		if l.given++; l.given == l.opts.Limit {
			return ErrDone
		}
	}
	return nil
}

// entry is what is listed of one of the service's entries, if anything is. Some services do not go by the prefix.
func (l *lister) entry(from *Listed) (muxcore.Entry, bool) {
	path, ours := strings.CutPrefix(from.Path, l.Prefix)
	key := path
	e := muxcore.Entry{Info: muxcore.Info{Key: key, Size: max(from.Size, -1)}}
	if !ours || !strings.HasPrefix(key, l.opts.Prefix) {
		return e, false
	}
	if !from.Rolled && muxcore.CheckStoreKey(key) != nil {
		return e, false
	}
	if rolled, ok := l.opts.RollUp(key); ok {
		key = rolled
		e = muxcore.Entry{Info: muxcore.Info{Key: key}, IsPrefix: true}
		if from.Rolled && muxcore.CheckPrefix(key) != nil {
			return e, false
		}
	} else if from.Rolled {
		return e, false
	}
	if key <= l.last || muxcore.HiddenFrom(l.opts.Prefix, path) {
		return e, false
	}
	l.last = key
	return e, true
}

// detailed looks at entries. Those that have gone meanwhile are left out.
func (l *lister) detailed(ctx context.Context, entries []muxcore.Entry) ([]muxcore.Entry, error) {
	var wg sync.WaitGroup
	errs := make([]error, len(entries))
	for i := range entries {
		if !entries[i].IsPrefix {
			wg.Go(func() { entries[i].Info, errs[i] = l.Stat(ctx, entries[i].Key) })
		}
	}
	wg.Wait()
	var there []muxcore.Entry
	for i, err := range errs {
		switch {
		case err == nil:
			there = append(there, entries[i])
		case !errors.Is(err, muxcore.ErrKeyNotFound):
			return there, err
		}
	}
	return there, nil
}

// validPart is the beginning of text that is UTF-8: services take no other markers.
func validPart(text string) string {
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRuneInString(text[i:])
		if r == utf8.RuneError && n <= 1 || r == 0 {
			return text[:i]
		}
		i += n
	}
	return text
}
