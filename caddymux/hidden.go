package caddymux

import "sync/atomic"

// hidden are the keys that are not there for a handler. Paths of the file system in its patterns hide what lies below the file
// backends that there are, which change at run time.
type hidden struct {
	patterns []string // known to be well-formed

	now atomic.Pointer[hiddenNow]
}

// hiddenNow is what they come to in a tree as it stood after so many changes.
type hiddenNow struct {
	t       *tree
	changes uint64
	list    hideList
}

// hides tells whether a key, a whole one, is not there for anyone.
func (x *exchange) hides(key string) bool { return x.h.hidden.in(x.t).hides(key, x.repl) }

// in prepares the patterns for a tree.
func (h *hidden) in(t *tree) *hideList {
	changes := changing.count.Load() // before the look at the tree: what comes later is seen the next time
	if now := h.now.Load(); now != nil && now.t == t && now.changes == changes {
		return &now.list
	}
	next := &hiddenNow{t: t, changes: changes}
	next.list, _ = newHideList(h.patterns, t.fileRoots()) // Provision has seen to their form
	h.now.Store(next)
	return &next.list
}

// fileRoots lists the folders of the file backends, also of those that are about to be added.
func (t *tree) fileRoots() (roots []string) {
	var all []*tree
	t.eachSeatNow(func(s seat) {
		roots = append(roots, rootsOf(s)...)
		for _, in := range s.in {
			all = append(all, in.t)
		}
	})
	for _, one := range all {
		if more := one.coming.Load(); more != nil {
			roots = append(roots, *more...)
		}
	}
	return roots
}

func rootsOf(s seat) []string {
	if rooted, ok := s.module.(Rooted); ok {
		return []string{rooted.FileRoot()}
	}
	return nil
}

// announce has handlers hide what a backend will have that is added next. It must be called with changing locked.
func (t *tree) announce(one *member) {
	var roots []string
	alone := &branch{members: []member{*one}}
	alone.eachSeatNow(nil, seat{}, func(s seat) { roots = append(roots, rootsOf(s)...) })
	t.coming.Store(&roots)
	changing.count.Add(1)
}
