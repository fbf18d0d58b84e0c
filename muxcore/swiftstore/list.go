package swiftstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/internal/wire"
)

const (
	pageSize = 1000
	maxPage  = 16 << 20 // bytes of a page
)

// List implements muxcore.Store.
func (s *Store) List(ctx context.Context, opts muxcore.ListOptions) iter.Seq2[muxcore.Entry, error] {
	pages := wire.Pages{Prefix: string(s.prefix), Stat: func(ctx context.Context, key string) (muxcore.Info, error) {
		return s.stat(ctx, muxcore.OpList, key, muxcore.Conditions{})
	}}
	pages.Page = func(ctx context.Context, p *wire.PageQuestion) ([]wire.Listed, bool, error) {
		q := &pageQuestion{op: muxcore.OpList, key: opts.Prefix, prefix: p.Prefix, marker: p.After, delimiter: p.Delimiter, limit: p.Limit}
		got, err := s.page(ctx, q)
		if errors.Is(err, errNoSuchContainer) {
			return nil, false, s.noContainer(&question{op: q.op, key: q.key})
		}
		page := make([]wire.Listed, len(got))
		for i := range got {
			page[i] = wire.Listed{Path: got[i].path(), Size: got[i].Bytes, Rolled: got[i].Subdir != ""}
			if got[i].Bytes <= 0 {
				page[i].Size = -1 // so it is with a dynamic manifest, too
			}
		}
		return page, len(page) >= p.Limit, err
	}
	return pages.List(ctx, opts)
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
	if err := wire.EachEntry(io.LimitReader(resp.Body, maxPage), func(e *listed) { page = append(page, *e) }); err != nil {
		return nil, q.unread(ctx, "a page of the list", err)
	}
	return page, nil
}

// unread is the error of an answer that cannot be read.
func (q *question) unread(ctx context.Context, what string, err error) error {
	if muxcore.CodeOf(err) != "" {
		return muxcore.At(q.op, q.key, err)
	}
	return wire.Broke(ctx, q.op, q.key, fmt.Errorf("reading %s: %w", what, err))
}
