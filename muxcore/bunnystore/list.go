package bunnystore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	q := &question{op: muxcore.OpList, key: dir, method: http.MethodGet, path: s.prefix.Path(dir)}
	q.header = http.Header{"Accept": {"application/json"}}
	resp, err := s.send(ctx, q) //nolint:bodyclose // drained below
	if err != nil {
		return nil, err
	}
	defer wire.Drain(resp)
	if resp.StatusCode != http.StatusOK {
		return nil, s.refused(muxcore.OpList, dir, resp)
	}
	all, err := readFolder(resp.Body, dir)
	if err != nil {
		if muxcore.CodeOf(err) == "" {
			return nil, wire.Broke(ctx, muxcore.OpList, dir, fmt.Errorf("reading the list of a folder: %w", err))
		}
		return nil, err
	}
	slices.SortFunc(all, func(a, b wire.Member) int { return strings.Compare(a.Key, b.Key) })
	return slices.CompactFunc(all, func(a, b wire.Member) bool { return a.Key == b.Key }), nil
}

// readFolder reads an array of descriptions, one by one.
func readFolder(body io.Reader, dir string) ([]wire.Member, error) {
	in := wire.Metered{Src: body, Most: maxDescription}
	dec := json.NewDecoder(&in)
	if t, err := dec.Token(); err != nil || t != json.Delim('[') {
		return nil, errors.Join(err, errors.New("it is no array"))
	}
	var all []wire.Member
	for n := 0; dec.More(); n++ {
		var d description
		if err := dec.Decode(&d); err != nil {
			return nil, err
		}
		in.Again()
		if n == wire.MaxMembers {
			return nil, &muxcore.Error{Code: muxcore.CodeUnsupported, Op: muxcore.OpList, Key: dir, Err: fmt.Errorf("more than %d members", wire.MaxMembers)}
		}
		if d.Name == "" || len(d.Name) > muxcore.MaxKeyLength || strings.Contains(d.Name, "/") {
			continue // no key can name it
		}
		m := wire.Member{Key: dir + d.Name}
		if d.Directory {
			m.Key += "/"
		} else {
			m.Info = d.info(m.Key)
		}
		all = append(all, m)
	}
	if _, err := dec.Token(); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	return all, nil
}
