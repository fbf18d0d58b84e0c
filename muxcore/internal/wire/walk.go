package wire

import (
	"context"
	"errors"
	"strings"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// MaxMembers is the most members that a collection is read with: they are sorted in memory.
const MaxMembers = 500_000

// ErrDone ends a walk that has listed all that was asked for.
var ErrDone = errors.New("done")

// Member is a member of a collection.
type Member struct {
	Key  string // whole; of a collection with a slash at its end
	Info muxcore.Info
}

// Collection tells whether it is a collection itself.
func (m *Member) Collection() bool { return strings.HasSuffix(m.Key, "/") }

// Walk lists a store that knows collections (folders) only, in the order of the keys. Empty collections do not show.
type Walk struct {
	Opts  *muxcore.ListOptions
	Yield func(muxcore.Entry, error) bool

	// Members reads a collection, sorted by key, and IsGone tells of its error whether there is no such collection.
	Members func(ctx context.Context, dir string) ([]Member, error)
	IsGone  func(error) bool

	yielded int
	rolled  string // the last rolled-up prefix, whether it was listed or not: what is below it needs no look
}

// CheckCollection tells whether keys can be below dir. CheckPrefix alone takes a last segment ".." for a beginning.
func CheckCollection(dir string) error {
	if dir == "" || dir == muxcore.ReservedPrefix+"/" {
		return nil
	}
	return muxcore.CheckPrefix(dir + "x")
}

// ParentOf is the collection that key is in, "" for the top.
func ParentOf(key string) string { return key[:strings.LastIndexByte(key, '/')+1] }

// Visit lists what is in a collection. It ends in ErrDone when nobody wants more.
func (w *Walk) Visit(ctx context.Context, dir string, members []Member) error {
	for i := range members {
		m := &members[i]
		if w.rolled != "" && strings.HasPrefix(dir, w.rolled) {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return Broke(ctx, muxcore.OpList, dir, err)
		}
		if !m.Collection() {
			if err := w.object(m); err != nil {
				return err
			}
			continue
		}
		if !w.worthwhile(m.Key) {
			continue
		}
		inner, err := w.Members(ctx, m.Key)
		if w.IsGone(err) {
			continue // it went meanwhile
		}
		if err != nil {
			return err
		}
		if err := w.Visit(ctx, m.Key, inner); err != nil {
			return err
		}
	}
	return nil
}

// worthwhile tells whether any key below dir can be listed.
func (w *Walk) worthwhile(dir string) bool {
	o := w.Opts
	switch {
	case !strings.HasPrefix(dir, o.Prefix) && !strings.HasPrefix(o.Prefix, dir), CheckCollection(dir) != nil:
		return false
	case muxcore.HiddenFrom(o.Prefix, dir) && !strings.HasPrefix(o.Prefix, muxcore.ReservedPrefix):
		return false
	case o.After > dir && !strings.HasPrefix(o.After, dir):
		return false
	}
	if prefix, ok := o.RollUp(dir); ok && (prefix == w.rolled || prefix <= o.After) {
		return false
	}
	return true
}

// shows tells whether a list of this prefix has key.
func (w *Walk) shows(key string) bool {
	return strings.HasPrefix(key, w.Opts.Prefix) && !muxcore.HiddenFrom(w.Opts.Prefix, key) && muxcore.CheckStoreKey(key) == nil
}

// object lists an object, or the prefix that it is rolled up in.
func (w *Walk) object(m *Member) error {
	o := w.Opts
	if !w.shows(m.Key) {
		return nil
	}
	e := muxcore.Entry{Info: m.Info}
	e.Key = m.Key
	if prefix, ok := o.RollUp(m.Key); ok {
		if prefix == w.rolled {
			return nil
		}
		w.rolled = prefix
		e = muxcore.Entry{Info: muxcore.Info{Key: prefix}, IsPrefix: true}
	}
	if e.Key <= o.After {
		return nil
	}
	if !w.Yield(e, nil) {
		return ErrDone
	}
	if w.yielded++; w.yielded == o.Limit {
		return ErrDone
	}
	return nil
}
