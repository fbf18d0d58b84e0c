package swiftstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/internal/wire"
)

const (
	pageSize  = 1000
	maxPage   = 16 << 20 // bytes of a page
	lookers   = 8        // entries looked at at the same time, for their details
	lastRune  = "\U0010FFFF"
	serverCut = "/" // the delimiter by which Swift rolls up; others would bring what is reserved to light
)

// List implements muxcore.Store.
func (s *Store) List(ctx context.Context, opts muxcore.ListOptions) iter.Seq2[muxcore.Entry, error] {
	return func(yield func(muxcore.Entry, error) bool) {
		if err := muxcore.CheckPrefix(opts.Prefix); err != nil {
			yield(muxcore.Entry{}, wire.At(muxcore.OpList, opts.Prefix, err))
			return
		}
		l := lister{s: s, opts: &opts, yield: yield, last: opts.After}
		if err := l.run(ctx); err != nil && !errors.Is(err, errDone) {
			yield(muxcore.Entry{}, err)
		}
	}
}

// errDone ends a list that has all that was asked for.
var errDone = errors.New("done")

// lister is one List under way.
type lister struct {
	s     *Store
	opts  *muxcore.ListOptions
	yield func(muxcore.Entry, error) bool
	given int
	last  string // entries not greater are not listed
}

// run lists page by page.
func (l *lister) run(ctx context.Context) error {
	q := &pageQuestion{op: muxcore.OpList, key: l.opts.Prefix, prefix: l.s.prefix + l.opts.Prefix, limit: pageSize}
	if l.opts.Delimiter == serverCut {
		q.delimiter = serverCut
	}
	if l.opts.After != "" {
		q.marker = l.s.prefix + validPart(l.opts.After)
	}
	for {
		if rest := l.opts.Limit - l.given; l.opts.Limit > 0 && q.delimiter == l.opts.Delimiter {
			q.limit = min(pageSize, rest)
		}
		page, err := l.s.page(ctx, q)
		if errors.Is(err, errNoSuchContainer) {
			return l.s.noContainer(&question{op: q.op, key: q.key})
		}
		if err != nil {
			return err
		}
		if err := l.give(ctx, page); err != nil || len(page) < q.limit {
			return err
		}
		q.marker = l.markerAfter(page[len(page)-1].path(), q.marker)
	}
}

// markerAfter is where the next page begins: after the last entry, and after all that is rolled up with it.
func (l *lister) markerAfter(path, before string) string {
	key := strings.TrimPrefix(path, l.s.prefix)
	rolled, ok := l.rollUp(key)
	if !ok {
		return path
	}
	marker := l.s.prefix + rolled + lastRune
	for marker <= before {
		marker += lastRune
	}
	return marker
}

// rollUp is the rolled-up prefix that key is in.
func (l *lister) rollUp(key string) (string, bool) {
	o := l.opts
	if o.Delimiter == "" || !strings.HasPrefix(key, o.Prefix) {
		return "", false
	}
	i := strings.Index(key[len(o.Prefix):], o.Delimiter)
	if i < 0 {
		return "", false
	}
	return key[:len(o.Prefix)+i+len(o.Delimiter)], true
}

// give yields what a page has to list.
func (l *lister) give(ctx context.Context, page []listed) error {
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

// yieldAll is errDone when nobody wants more.
func (l *lister) yieldAll(entries []muxcore.Entry) error {
	for _, e := range entries {
		if !l.yield(e, nil) {
			return errDone
		}
		if l.given++; l.given == l.opts.Limit {
			return errDone
		}
	}
	return nil
}

// entry is what is listed of one of Swift's entries, if anything is.
func (l *lister) entry(from *listed) (muxcore.Entry, bool) {
	key := strings.TrimPrefix(from.path(), l.s.prefix)
	e := muxcore.Entry{Info: muxcore.Info{Key: key, Size: -1}}
	if from.Bytes > 0 {
		e.Size = from.Bytes
	}
	if from.Subdir == "" && muxcore.CheckStoreKey(key) != nil {
		return e, false
	}
	if rolled, ok := l.rollUp(key); ok {
		key = rolled
		e = muxcore.Entry{Info: muxcore.Info{Key: key}, IsPrefix: true}
		if from.Subdir != "" && muxcore.CheckPrefix(key) != nil {
			return e, false
		}
	} else if from.Subdir != "" {
		return e, false
	}
	if key <= l.last || muxcore.HiddenFrom(l.opts.Prefix, strings.TrimPrefix(from.path(), l.s.prefix)) {
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
			wg.Go(func() {
				entries[i].Info, errs[i] = l.s.stat(ctx, muxcore.OpList, entries[i].Key, muxcore.Conditions{})
			})
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

// validPart is the beginning of text that is UTF-8: Swift takes no other markers.
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

// listed is an entry as Swift gives it.
type listed struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	Subdir string `json:"subdir"`
}

func (e *listed) path() string {
	if e.Subdir != "" {
		return e.Subdir
	}
	return e.Name
}

// pageQuestion asks for a page of a container.
type pageQuestion struct {
	op                                   muxcore.Op
	key                                  string
	container, prefix, marker, delimiter string
	limit                                int
}

var errNoSuchContainer = errors.New("there is no such container")

// page reads one page of a list.
func (s *Store) page(ctx context.Context, p *pageQuestion) ([]listed, error) {
	q := &question{op: p.op, key: p.key, method: http.MethodGet, container: p.container}
	q.query = url.Values{"format": {"json"}, "limit": {strconv.Itoa(p.limit)}}
	for name, value := range map[string]string{"prefix": p.prefix, "marker": p.marker, "delimiter": p.delimiter} {
		if value != "" {
			q.query.Set(name, value)
		}
	}
	resp, err := s.send(ctx, q) //nolint:bodyclose // drained, or taken over
	if err != nil {
		return nil, err
	}
	defer wire.Drain(resp)
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusNoContent:
		return nil, nil
	case http.StatusNotFound:
		return nil, errNoSuchContainer
	default:
		return nil, s.refused(q, resp)
	}
	var page []listed
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxPage)).Decode(&page); err != nil {
		return nil, wire.Broke(ctx, q.op, q.key, fmt.Errorf("reading a page of the list: %w", err))
	}
	return page, nil
}
