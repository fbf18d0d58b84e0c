package httpstore

import (
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

// maxMembers is the most members that a collection is read with: they are sorted in memory.
const maxMembers = 500_000

var errNoList = errors.New("the origin does not answer PROPFIND")

// List implements muxcore.Store by walking the collections of a WebDAV origin. Of any other it is CodeUnsupported, which
// is remembered for some time.
func (s *Store) List(ctx context.Context, opts muxcore.ListOptions) iter.Seq2[muxcore.Entry, error] {
	return func(yield func(muxcore.Entry, error) bool) {
		err := muxcore.CheckPrefix(opts.Prefix)
		if err == nil {
			err = checkCollection(parentOf(opts.Prefix))
		}
		if err != nil {
			yield(muxcore.Entry{}, wire.At(muxcore.OpList, opts.Prefix, err))
			return
		}
		w := walk{s: s, opts: &opts, yield: yield}
		if err := w.start(ctx); err != nil && !errors.Is(err, errDone) {
			yield(muxcore.Entry{}, err)
		}
	}
}

// checkCollection tells whether keys can be below dir. CheckPrefix alone takes a last segment ".." for a beginning.
func checkCollection(dir string) error {
	if dir == "" || dir == muxcore.ReservedPrefix+"/" {
		return nil
	}
	return muxcore.CheckPrefix(dir + "x")
}

// errDone ends a walk that has listed all that was asked for.
var errDone = errors.New("done")

// walk is a walk through collections in the order of the keys.
type walk struct {
	s       *Store
	opts    *muxcore.ListOptions
	yield   func(muxcore.Entry, error) bool
	yielded int
	rolled  string // the last rolled-up prefix, whether it was listed or not: what is below it needs no look
}

// member is a member of a collection.
type member struct {
	key  string // whole; of a collection with a slash at its end
	info muxcore.Info
}

func (m *member) collection() bool { return strings.HasSuffix(m.key, "/") }

// start walks from the deepest collection that all keys asked for are in.
func (w *walk) start(ctx context.Context) error {
	dir := parentOf(w.opts.Prefix)
	if err := ctx.Err(); err != nil {
		return wire.Broke(ctx, muxcore.OpList, w.opts.Prefix, err)
	}
	if yes, known := w.s.lists.get(w.s.now()); known && !yes {
		return &muxcore.Error{Code: muxcore.CodeUnsupported, Op: muxcore.OpList, Key: w.opts.Prefix, Err: errNoList}
	}
	members, err := w.s.members(ctx, dir)
	if dir != "" && isGone(err) {
		members, err = nil, w.s.canList(ctx) // then it is only that collection which is not there
	}
	if err != nil {
		return w.s.listRefused(dir, err)
	}
	w.s.lists.set(true, w.s.now())
	return w.visit(ctx, dir, members)
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

// listRefused is the error of an origin that did not list its base or a collection; remembered if it cannot at all.
func (s *Store) listRefused(dir string, err error) error {
	status := statusOf(err)
	switch {
	case isGone(err), status == http.StatusMethodNotAllowed, status == http.StatusNotImplemented, status > 0 && status < 300:
		s.lists.set(false, s.now())
		return &muxcore.Error{Code: muxcore.CodeUnsupported, Op: muxcore.OpList, Key: dir, Status: status, Err: errNoList}
	}
	return err
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

// visit lists what is in a collection.
func (w *walk) visit(ctx context.Context, dir string, members []member) error {
	for i := range members {
		m := &members[i]
		if w.rolled != "" && strings.HasPrefix(dir, w.rolled) {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return wire.Broke(ctx, muxcore.OpList, dir, err)
		}
		if !m.collection() {
			if err := w.object(m); err != nil {
				return err
			}
			continue
		}
		if !w.worthwhile(m.key) {
			continue
		}
		inner, err := w.s.members(ctx, m.key)
		if isGone(err) {
			continue // it went meanwhile
		}
		if err != nil {
			return err
		}
		if err := w.visit(ctx, m.key, inner); err != nil {
			return err
		}
	}
	return nil
}

// worthwhile tells whether any key below dir can be listed.
func (w *walk) worthwhile(dir string) bool {
	o := w.opts
	switch {
	case !strings.HasPrefix(dir, o.Prefix) && !strings.HasPrefix(o.Prefix, dir), checkCollection(dir) != nil:
		return false
	case muxcore.HiddenFrom(o.Prefix, dir) && !strings.HasPrefix(o.Prefix, muxcore.ReservedPrefix):
		return false
	case o.After > dir && !strings.HasPrefix(o.After, dir):
		return false
	}
	if prefix, ok := w.rollUp(dir); ok && (prefix == w.rolled || prefix <= o.After) {
		return false
	}
	return true
}

// rollUp is the rolled-up prefix that key is in.
func (w *walk) rollUp(key string) (string, bool) {
	o := w.opts
	if o.Delimiter == "" || !strings.HasPrefix(key, o.Prefix) {
		return "", false
	}
	i := strings.Index(key[len(o.Prefix):], o.Delimiter)
	if i < 0 {
		return "", false
	}
	return key[:len(o.Prefix)+i+len(o.Delimiter)], true
}

// shows tells whether a list of this prefix has key.
func (w *walk) shows(key string) bool {
	return strings.HasPrefix(key, w.opts.Prefix) && !muxcore.HiddenFrom(w.opts.Prefix, key) && muxcore.CheckStoreKey(key) == nil
}

// object lists an object, or the prefix that it is rolled up in.
func (w *walk) object(m *member) error {
	o := w.opts
	if !w.shows(m.key) {
		return nil
	}
	e := muxcore.Entry{Info: m.info}
	e.Key = m.key
	if prefix, ok := w.rollUp(m.key); ok {
		if prefix == w.rolled {
			return nil
		}
		w.rolled = prefix
		e = muxcore.Entry{Info: muxcore.Info{Key: prefix}, IsPrefix: true}
	}
	if e.Key <= o.After {
		return nil
	}
	if !w.yield(e, nil) {
		return errDone
	}
	if w.yielded++; w.yielded == o.Limit {
		return errDone
	}
	return nil
}

// members reads a collection, sorted as the keys below it sort.
func (s *Store) members(ctx context.Context, dir string) ([]member, error) {
	found, err := s.propfind(ctx, muxcore.OpList, dir, dir, "1")
	if err != nil {
		return nil, err
	}
	defer found.close()
	var all []member
	for {
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
		case name == "":
			continue
		case len(all) == maxMembers:
			return nil, &muxcore.Error{Code: muxcore.CodeUnsupported, Op: muxcore.OpList, Key: dir, Err: fmt.Errorf("more than %d members", maxMembers)}
		}
		all = append(all, member{key: dir + name, info: r.info})
	}
	slices.SortFunc(all, func(a, b member) int { return strings.Compare(a.key, b.key) })
	return slices.CompactFunc(all, func(a, b member) bool { return a.key == b.key }), nil
}

// nameIn is the resource's name in a collection, a collection's with a slash at its end; "" for the collection itself, and
// for what is no member of it.
func (r *resource) nameIn(collection string) (string, error) {
	path := strings.TrimSuffix(r.path, "/") + "/"
	if path == collection {
		return "", nil
	}
	if !strings.HasPrefix(path, collection) {
		return "", fmt.Errorf("href %q is outside of the collection %q", r.raw, collection)
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
