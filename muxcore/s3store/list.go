package s3store

import (
	"context"
	"encoding/xml"
	"errors"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/internal/wire"
)

const maxPage = 16 << 20 // bytes of a page

var errUnordered = errors.New("the bucket does not list in the order of its keys")

// List implements muxcore.Store.
func (s *Store) List(ctx context.Context, opts muxcore.ListOptions) iter.Seq2[muxcore.Entry, error] {
	return func(yield func(muxcore.Entry, error) bool) {
		p := pager{s: s, key: opts.Prefix}
		pages := wire.Pages{Prefix: string(s.prefix), Page: p.page, Stat: func(ctx context.Context, key string) (muxcore.Info, error) {
			f, err := s.head(ctx, muxcore.OpList, key)
			return f.info, err
		}}
		pages.List(ctx, opts)(yield)
	}
}

// pager reads the pages of one list.
type pager struct {
	s     *Store
	key   string          // for errors
	token string          // of the next page
	last  string          // entry given
	vain  map[string]bool // tokens that empty pages gave, one after the other
}

// listing is a page as the service gives it.
type listing struct {
	XMLName   xml.Name `xml:"ListBucketResult"`
	Encoding  string   `xml:"EncodingType"`
	Truncated bool     `xml:"IsTruncated"`
	Token     string   `xml:"NextContinuationToken"`
	Contents  []struct {
		Key  string `xml:"Key"`
		Size int64  `xml:"Size"`
	} `xml:"Contents"`
	Prefixes []struct {
		Prefix string `xml:"Prefix"`
	} `xml:"CommonPrefixes"`
}

// page reads a page, and those after it as long as they are empty.
func (p *pager) page(ctx context.Context, q *wire.PageQuestion) ([]wire.Listed, bool, error) {
	token := ""
	if q.Continues {
		token = p.token
	}
	for {
		l, err := p.read(ctx, q, token)
		if err != nil {
			return nil, false, err
		}
		last := p.last
		page, err := p.entries(l)
		if err == nil && token != "" {
			err = p.advances(l, page, token, last)
		}
		if err != nil {
			return nil, false, err
		}
		more := l.Truncated && (l.Token != "" || len(page) > 0)
		if more && token != "" && l.Token == token {
			return nil, false, wrongAnswer(muxcore.OpList, p.key, "the next page of the list is the same page again")
		}
		if p.token = l.Token; len(page) > 0 || !more {
			return page, more, nil
		}
		token = l.Token
	}
}

// advances makes sure that the page of a token brings a list on: some servers repeat themselves.
func (p *pager) advances(l *listing, page []wire.Listed, token, last string) error {
	if len(page) > 0 {
		clear(p.vain)
		if page[len(page)-1].Path > last {
			return nil
		}
		return wrongAnswer(muxcore.OpList, p.key, "a page of a list came again")
	}
	if p.vain == nil {
		p.vain = make(map[string]bool)
	}
	p.vain[token] = true
	if l.Truncated && p.vain[l.Token] {
		return wrongAnswer(muxcore.OpList, p.key, "the pages of a list go round in circles")
	}
	return nil
}

// read asks for a page: after the one that gave token, or after what the question says.
func (p *pager) read(ctx context.Context, q *wire.PageQuestion, token string) (*listing, error) {
	c := call{op: muxcore.OpList, key: "", method: http.MethodGet}
	c.query = url.Values{"list-type": {"2"}, "encoding-type": {"url"}, "max-keys": {strconv.Itoa(q.Limit)}}
	fields := map[string]string{"prefix": q.Prefix, "delimiter": q.Delimiter, "continuation-token": token}
	if token == "" {
		fields["start-after"] = q.After
	}
	for name, value := range fields {
		if value != "" {
			c.query.Set(name, value)
		}
	}
	l := new(listing)
	if err := p.s.ask(ctx, &c, l); err != nil {
		return nil, muxcore.At(muxcore.OpList, p.key, err)
	}
	return l, nil
}

// entries are those of a page in the order of their keys, which must follow those before.
func (p *pager) entries(l *listing) ([]wire.Listed, error) {
	page := make([]wire.Listed, 0, len(l.Contents)+len(l.Prefixes))
	for i := range l.Contents {
		page = append(page, wire.Listed{Path: l.Contents[i].Key, Size: l.Contents[i].Size})
	}
	for i := range l.Prefixes {
		page = append(page, wire.Listed{Path: l.Prefixes[i].Prefix, Rolled: true})
	}
	if strings.EqualFold(l.Encoding, "url") {
		for i := range page {
			path, err := url.QueryUnescape(page[i].Path)
			if err != nil {
				return nil, wrongAnswer(muxcore.OpList, p.key, err.Error())
			}
			page[i].Path = path
		}
	}
	n := len(l.Contents)
	byPath := func(a, b wire.Listed) int { return strings.Compare(a.Path, b.Path) }
	if !slices.IsSortedFunc(page[:n], byPath) || !slices.IsSortedFunc(page[n:], byPath) {
		return nil, p.unordered()
	}
	slices.SortFunc(page, byPath)
	if len(page) > 0 {
		if page[0].Path < p.last {
			return nil, p.unordered()
		}
		p.last = page[len(page)-1].Path
	}
	return page, nil
}

// unordered is the error of a bucket, as directory buckets are, of which no list in order can be made by pages.
func (p *pager) unordered() error {
	return &muxcore.Error{Code: muxcore.CodeUnsupported, Op: muxcore.OpList, Key: p.key, Err: errUnordered}
}
