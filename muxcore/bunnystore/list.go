package bunnystore

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strings"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/internal/wire"
)

// List implements muxcore.Store by walking the folders.
func (s *Store) List(ctx context.Context, opts muxcore.ListOptions) iter.Seq2[muxcore.Entry, error] {
	return func(yield func(muxcore.Entry, error) bool) {
		dir := wire.ParentOf(opts.Prefix)
		err := muxcore.CheckPrefix(opts.Prefix)
		if err == nil {
			err = wire.CheckCollection(dir)
		}
		if err != nil {
			yield(muxcore.Entry{}, muxcore.At(muxcore.OpList, opts.Prefix, err))
			return
		}
		if err := ctx.Err(); err != nil {
			yield(muxcore.Entry{}, wire.Broke(ctx, muxcore.OpList, opts.Prefix, err))
			return
		}
		w := wire.Walk{Opts: &opts, Yield: yield, Members: s.members, IsGone: isGone}
		members, err := s.members(ctx, dir)
		if err == nil {
			err = w.Visit(ctx, dir, members)
		}
		if err != nil && !errors.Is(err, wire.ErrDone) && !isGone(err) {
			yield(muxcore.Entry{}, err)
		}
	}
}

func isGone(err error) bool { return errors.Is(err, muxcore.ErrKeyNotFound) }

// members reads a folder, sorted as the keys below it sort. One that is not there has none, or is a 404: Bunny has been seen to
// say both.
func (s *Store) members(ctx context.Context, dir string) ([]wire.Member, error) {
	var all []wire.Member
	err := s.eachMember(ctx, dir, func(d *description) {
		if !d.named() {
			return
		}
		m := wire.Member{Key: dir + d.Name}
		if d.Directory {
			m.Key += "/"
		} else {
			m.Info = d.info(m.Key)
		}
		all = append(all, m)
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b wire.Member) int { return strings.Compare(a.Key, b.Key) })
	return slices.CompactFunc(all, func(a, b wire.Member) bool { return a.Key == b.Key }), nil
}

// named tells whether a key could name what is described.
func (d *description) named() bool {
	return d.Name != "" && len(d.Name) <= muxcore.MaxKeyLength && !strings.Contains(d.Name, "/")
}

// eachMember reads a folder, in whatever order.
func (s *Store) eachMember(ctx context.Context, dir string, each func(*description)) error {
	q := &question{op: muxcore.OpList, key: dir, method: http.MethodGet, path: s.prefix.Path(dir)}
	q.header = http.Header{"Accept": {"application/json"}}
	resp, err := s.send(ctx, q) //nolint:bodyclose // drained below
	if err != nil {
		return err
	}
	defer wire.Drain(resp)
	if resp.StatusCode != http.StatusOK {
		return s.refused(muxcore.OpList, dir, resp)
	}
	err = wire.EachEntry(resp.Body, each)
	switch {
	case err == nil:
		return nil
	case muxcore.CodeOf(err) != "":
		return muxcore.At(muxcore.OpList, dir, err)
	}
	return wire.Broke(ctx, muxcore.OpList, dir, fmt.Errorf("reading the list of a folder: %w", err))
}

// holds tells whether there is any object in a folder, those included that no list shows.
func (s *Store) holds(ctx context.Context, dir string) (held bool, err error) {
	var inner []string
	err = s.eachMember(ctx, dir, func(d *description) {
		if d.Directory && d.named() {
			inner = append(inner, dir+d.Name+"/")
		} else {
			held = true
		}
	})
	switch {
	case isGone(err):
		return false, nil
	case err != nil, held:
		return held, err
	}
	for _, one := range inner {
		if len(one) > 2*muxcore.MaxKeyLength { // no folder of Bunny's lies that deep: nobody knows what this is
			return true, nil
		}
		if held, err := s.holds(ctx, one); held || err != nil {
			return held, err
		}
	}
	return false, nil
}
