package httpstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/internal/wire"
)

var (
	errNoList = errors.New("the origin does not answer PROPFIND")
	errNoBase = errors.New("the collection of the base URL is not there")
)

// List implements muxcore.Store by walking the collections of a WebDAV origin. Of any other it is CodeUnsupported, which
// is remembered for some time.
func (s *Store) List(ctx context.Context, opts muxcore.ListOptions) iter.Seq2[muxcore.Entry, error] {
	return func(yield func(muxcore.Entry, error) bool) {
		err := muxcore.CheckPrefix(opts.Prefix)
		if err == nil {
			err = wire.CheckCollection(wire.ParentOf(opts.Prefix))
		}
		if err != nil {
			yield(muxcore.Entry{}, muxcore.At(muxcore.OpList, opts.Prefix, err))
			return
		}
		w := wire.Walk{Opts: &opts, Yield: yield, Members: s.members, IsGone: isGone}
		if err := s.walk(ctx, &w); err != nil && !errors.Is(err, wire.ErrDone) {
			yield(muxcore.Entry{}, err)
		}
	}
}

// walk walks from the deepest collection that all keys asked for are in.
func (s *Store) walk(ctx context.Context, w *wire.Walk) error {
	dir := wire.ParentOf(w.Opts.Prefix)
	if err := ctx.Err(); err != nil {
		return wire.Broke(ctx, muxcore.OpList, w.Opts.Prefix, err)
	}
	if yes, known := s.lists.get(s.now()); known && !yes {
		return &muxcore.Error{Code: muxcore.CodeUnsupported, Op: muxcore.OpList, Key: w.Opts.Prefix, Err: errNoList}
	}
	members, err := s.members(ctx, dir)
	if dir != "" && isGone(err) {
		members, err = nil, s.canList(ctx) // then it is only that collection which is not there
	}
	if err != nil {
		return s.listRefused(ctx, dir, err)
	}
	s.lists.set(true, s.now())
	return w.Visit(ctx, dir, members)
}

// canList asks for the base collection, unless the origin is known to list.
func (s *Store) canList(ctx context.Context) error {
	if yes, _ := s.lists.get(s.now()); yes {
		return nil
	}
	_, err := s.members(ctx, "")
	if err == nil {
		s.lists.set(true, s.now())
	}
	return err
}

// listRefused is the error of an origin that did not list its base or a collection; remembered if it cannot at all. A WebDAV origin
// whose base is not there, as after a mount that failed, can and does not: others may not take that for an empty list.
func (s *Store) listRefused(ctx context.Context, dir string, err error) error {
	status := statusOf(err)
	switch {
	case isGone(err):
		if dav, ask := s.isDAV(ctx, muxcore.OpList, dir); dav || ask != nil {
			return cmp.Or(ask, baseless(muxcore.OpList, dir))
		}
	case status == http.StatusMethodNotAllowed, status == http.StatusNotImplemented, status > 0 && status < 300:
	default:
		return err
	}
	s.lists.set(false, s.now())
	return &muxcore.Error{Code: muxcore.CodeUnsupported, Op: muxcore.OpList, Key: dir, Status: status, Err: errNoList}
}

// baseless is the error of an origin on which the collection of the base URL is missing. Nobody makes that one.
func baseless(op muxcore.Op, key string) error {
	return &muxcore.Error{Code: muxcore.CodeUnavailable, Op: op, Key: key, Err: errNoBase}
}

// statusOf is the status with which an origin answered, 0 where it did not.
func statusOf(err error) int {
	if e, ok := errors.AsType[*muxcore.Error](err); ok {
		return e.Status
	}
	return 0
}

// isGone tells whether err says that there is nothing there.
func isGone(err error) bool {
	status := statusOf(err)
	return status == http.StatusNotFound || status == http.StatusGone
}

// members reads a collection, sorted as the keys below it sort.
func (s *Store) members(ctx context.Context, dir string) ([]wire.Member, error) {
	found, err := s.propfind(ctx, muxcore.OpList, dir, dir, "1")
	if err != nil {
		return nil, err
	}
	defer found.close()
	var all []wire.Member
	for n := 0; ; n++ {
		r, err := found.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		name, err := r.nameIn(s.base.path + dir)
		switch {
		case err != nil:
			return nil, found.fault(err)
		case n > wire.MaxMembers: // and the collection itself
			return nil, &muxcore.Error{Code: muxcore.CodeUnsupported, Op: muxcore.OpList, Key: dir, Err: fmt.Errorf("more than %d members", wire.MaxMembers)}
		case name == "", len(name) > muxcore.MaxKeyLength: // no key can have it
			continue
		}
		all = append(all, wire.Member{Key: dir + name, Info: r.info})
	}
	slices.SortFunc(all, func(a, b wire.Member) int { return strings.Compare(a.Key, b.Key) })
	return slices.CompactFunc(all, func(a, b wire.Member) bool { return a.Key == b.Key }), nil
}

// nameIn is the resource's name in a collection, a collection's with a slash at its end; "" for the collection itself, and
// for what is no member of it.
func (r *resource) nameIn(collection string) (string, error) {
	path := strings.TrimSuffix(r.path, "/") + "/"
	if path == collection {
		return "", nil
	}
	if !strings.HasPrefix(path, collection) {
		return "", fmt.Errorf("href %q is outside of the collection %q", wire.Clip(r.raw, maxShown), collection)
	}
	raw := strings.TrimSuffix(r.raw, "/")
	name, err := url.PathUnescape(raw[strings.LastIndexByte(raw, '/')+1:])
	if err != nil {
		return "", err
	}
	if collection+name+"/" != path || strings.Contains(name, "/") {
		return "", nil // deeper, or with a slash of its own: no key can name it
	}
	if r.collection {
		name += "/"
	}
	return name, nil
}
