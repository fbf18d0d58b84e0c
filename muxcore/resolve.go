package muxcore

import (
	"context"
	"slices"

	"github.com/suaveplan/caddy-storage-mux/muxcore/journal"
)

// resolveOpen finds out how writes ended of which nobody said so, as their process was killed or every backend failed: by
// what the backends hold that were asked. It works in the key's turn, so that no write is under way.
func (m *Mux) resolveOpen(ctx context.Context, key string) error {
	if mark, _ := m.journal.Lookup(key); len(mark.Left()) == 0 {
		return nil
	}
	unlock, err := m.commits.lock(ctx, key)
	if err != nil {
		return err
	}
	defer unlock()
	mark, _ := m.journal.Lookup(key)
	f := &finding{m: m, key: key, mark: mark, held: make(map[string]*Info)}
	for _, i := range mark.Left() {
		f.asked = append(f.asked, i.Asks...)
		f.skipped = append(f.skipped, i.Skips...)
	}
	if len(f.asked)+len(f.skipped) == 0 {
		return nil
	}
	f.look(ctx)
	return f.conclude()
}

// finding is what a look at a key with open writes brought.
type finding struct {
	m       *Mux
	key     string
	mark    journal.Mark
	asked   []string
	skipped []string
	held    map[string]*Info // by those that answered; nil: nothing
	unasked error
}

func (f *finding) look(ctx context.Context) {
	for _, name := range f.asked {
		b := f.m.memberOf(name)
		if _, known := f.held[name]; b == nil || known {
			continue
		}
		info, err := (&seat{m: f.m, b: b}).stat(ctx, f.key, false)
		switch {
		case err == nil:
			f.held[name] = &info
		case isMiss(err):
			f.held[name] = nil
		default:
			f.unasked = err
		}
	}
}

// conclude has the journal know. The newest write that anybody has is the newest state. If nobody has any, none was
// committed; that is only known once all were asked.
func (f *finding) conclude() error {
	left := f.mark.Left()
	for _, i := range slices.Backward(left) {
		if have := f.having(&i); len(have) > 0 {
			return f.settle(journal.Write{Deleted: i.Deleted, ETag: i.ETag}, have)
		}
	}
	if f.unasked != nil {
		return f.unasked
	}
	if newest, have := f.foreign(); newest {
		return f.settle(journal.Write{}, have)
	}
	return f.m.journal.Discard(f.key, f.mark.Seq)
}

// having are those that have the write.
func (f *finding) having(i *journal.Intent) (names []string) {
	for name, info := range f.held {
		switch {
		case !slices.Contains(i.Asks, name):
		case i.Deleted && info == nil, !i.Deleted && info != nil && info.ETagStored && info.ETag == i.ETag:
			names = append(names, name)
		}
	}
	return names
}

// foreign is the newest copy, where what was put does not keep its identity, or where an object is that was deleted.
func (f *finding) foreign() (found bool, have []string) {
	puts := slices.ContainsFunc(f.mark.Left(), func(i journal.Intent) bool { return !i.Deleted })
	var newest *Info
	for name, info := range f.held {
		if info == nil || !puts {
			continue
		}
		back := f.mark.Known && f.mark.Deleted && !slices.Contains(f.mark.Lacks, name)
		if (back || !f.m.memberOf(name).abilities().Metadata) && (newest == nil || info.ModTime.After(newest.ModTime)) {
			newest = info
		}
	}
	for name, info := range f.held {
		if newest != nil && info != nil && (info == newest || SameIdentity(info, newest)) {
			have = append(have, name)
		}
	}
	return newest != nil, have
}

// settle says that those in have are up to date, and all others that the writes were meant for are not.
func (f *finding) settle(w journal.Write, have []string) error {
	lacks := slices.Concat(f.mark.Lacks, f.asked, f.skipped)
	lacks = slices.DeleteFunc(lacks, func(name string) bool { return slices.Contains(have, name) })
	return f.m.journal.Resolve(f.key, f.mark.Seq, w, lacks)
}
