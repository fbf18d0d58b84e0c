package caddymux

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"

	"go.uber.org/zap"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// legacy is what a mux of a new tree goes on with: of the tree whose place it takes, or of the Caddy that ran before. nil is
// nothing.
type legacy struct {
	state   *muxcore.State
	added   []*member // at run time, and made again
	removed []*member // at run time
	inner   map[string]*legacy
}

// takeOver finds what t goes on with. It is of the tree of that name in the running config, if that has one: then t is made
// of an edited config, and backends that were not edited stay as they are. Otherwise it is what the last Caddy left on disk.
func (t *tree) takeOver() *legacy {
	if t.alone.Load() {
		return nil
	}
	old := t.before()
	if old == nil {
		return t.recall()
	}
	defer old.release()
	changing.Lock()
	defer changing.Unlock()
	t.tookOver = true
	l := t.root.inherit(t, old.root, old.store.State())
	t.root.eachKept(l, func(mux *branch, one *member) { t.counters.share(&old.counters, backendID{mux.name, one.Name}) })
	return l
}

// before is the tree whose place t takes, to be released; nil if there is none.
func (t *tree) before() *tree {
	for _, other := range activeTrees() {
		if other.name == t.name && other != t {
			return other.peek()
		}
	}
	return nil
}

// inherit takes over from the mux that was made of was and stands as state says.
func (b *branch) inherit(t *tree, was *branch, state *muxcore.State) *legacy {
	next := *state
	next.Backends, next.Removed = nil, nil
	l := &legacy{state: &next, inner: make(map[string]*legacy)}
	var added []muxcore.BackendState
	for _, s := range state.Backends {
		made, known := s.Spec.(*member)
		switch {
		case !known:
		case s.Added:
			added = append(added, s)
		default:
			b.inheritOne(t, l, made, s)
		}
	}
	if slices.Equal(b.names(), was.names()) {
		b.inheritList(t, l, was, state.Removed, added)
	}
	return l
}

// inheritOne takes over the state of a backend of the config. One that was edited starts afresh, and one that is a mux goes on as
// such if only what is in it was edited: but whether that is well is to be seen.
func (b *branch) inheritOne(t *tree, l *legacy, made *member, s muxcore.BackendState) {
	one := b.member(s.Name)
	if one == nil {
		return
	}
	l.inheritInner(t, one, made, s.Mux)
	if one.itself() != made.itself() {
		return
	}
	if !one.equal(made) {
		s.Reads, s.Writes = muxcore.HealthState{}, muxcore.HealthState{}
	}
	l.state.Backends = append(l.state.Backends, s)
}

func (l *legacy) inheritInner(t *tree, one, made *member, state *muxcore.State) {
	if one.nested != nil && made.nested != nil && state != nil {
		l.inner[one.Name] = one.nested.inherit(t, made.nested, state)
	}
}

// inheritList takes over what was added and removed at run time, unless the mux could not be made so any more.
func (b *branch) inheritList(t *tree, l *legacy, was *branch, removed []string, added []muxcore.BackendState) {
	states := len(l.state.Backends)
	for _, name := range removed {
		one, made := b.member(name), was.member(name)
		if !one.equal(made) {
			continue
		}
		if err := t.checkRemoval(b.dotted(name)); err != nil {
			t.warn("a backend that was removed at run time is back", b, name, err)
			continue
		}
		l.removed = append(l.removed, one)
		l.state.Removed = append(l.state.Removed, name)
	}
	for _, s := range added {
		if b.member(s.Name) != nil && !slices.Contains(l.state.Removed, s.Name) {
			continue // in the place of one that was edited
		}
		made := s.Spec.(*member) // inherit has seen to that
		one, err := makeMember(made.raw, t, b.scope, t.maker())
		if err != nil {
			t.warn("a backend that was added at run time is not there any more", b, s.Name, err)
			continue
		}
		l.added = append(l.added, one)
		l.inheritInner(t, one, made, s.Mux)
		if !one.equal(made) {
			s.Reads, s.Writes = muxcore.HealthState{}, muxcore.HealthState{}
		}
		l.state.Backends = append(l.state.Backends, s)
	}
	if err := b.checkList(l); err != nil {
		t.warn("what was added and removed at run time does not go with the new config, and is undone", b, "", err)
		for _, one := range l.added {
			_ = one.close()
			delete(l.inner, one.Name)
		}
		l.added, l.removed, l.state.Removed = nil, nil, nil
		l.state.Backends = l.state.Backends[:states]
	}
}

var errOriginGone = errors.New("the origin of the shield was removed at run time")

// checkList tells whether a mux can be made of what l leaves of the branch.
func (b *branch) checkList(l *legacy) error {
	if len(l.removed) == 0 && len(l.added) == 0 {
		return nil
	}
	if b.set.Mode == muxcore.Shield && slices.Contains(l.removed, &b.members[0]) {
		return errOriginGone
	}
	return b.checkCore(b.listed(l))
}

// listed are the members of the mux that is made of the branch: those of the config without what was removed, and then what
// was added.
func (b *branch) listed(l *legacy) []*member {
	var list []*member
	for i := range b.members {
		if one := &b.members[i]; l == nil || !slices.Contains(l.removed, one) {
			list = append(list, one)
		}
	}
	if l != nil {
		list = append(list, l.added...)
	}
	return list
}

// eachKept calls f for every backend of the tree that is to be made, with the mux it is in.
func (b *branch) eachKept(l *legacy, f func(mux *branch, one *member)) {
	for _, one := range b.listed(l) {
		f(b, one)
		if one.nested != nil {
			one.nested.eachKept(l.of(one.Name), f)
		}
	}
}

// abandon closes what was made again for a mux that could not be made.
func (l *legacy) abandon() error {
	if l == nil {
		return nil
	}
	var errs []error
	for _, one := range l.added {
		errs = append(errs, one.close())
	}
	for _, inner := range l.inner {
		errs = append(errs, inner.abandon())
	}
	return errors.Join(errs...)
}

// of is the part of a nested mux.
func (l *legacy) of(name string) *legacy {
	if l == nil {
		return nil
	}
	return l.inner[name]
}

// core is the part of the mux itself.
func (l *legacy) core() *muxcore.State {
	if l == nil {
		return nil
	}
	return l.state
}

// dotted is the name of a backend of the mux in the tree.
func (b *branch) dotted(name string) string { return joinName(b.scope, name) }

// names of the backends in the config, in its order: an edit of that is an edit of the list.
func (b *branch) names() []string {
	var all []string
	for i := range b.members {
		all = append(all, b.members[i].Name)
	}
	return all
}

// equal tells whether two configs of a backend mean the same.
func (one *member) equal(other *member) bool {
	return one != nil && other != nil && bytes.Equal(one.canonical, other.canonical)
}

// itself is what the config says of the backend itself: where it is a mux, not of what is in it.
func (one *member) itself() string {
	var kind string
	switch use, _ := one.module.(*UseBackend); {
	case one.nested != nil:
		kind = string(one.nested.set.Mode)
	case use != nil:
		kind = use.Tree
	default:
		return string(one.canonical)
	}
	shared, err := json.Marshal(&one.Backend)
	if err != nil {
		return string(one.canonical)
	}
	return string(shared) + kind
}

// maker is the app of the newest config that uses the tree.
func (t *tree) maker() *App {
	if o := t.current.Load(); o != nil {
		return o.app
	}
	return nil
}

// warn writes to the log of the newest config that uses the tree.
func (t *tree) warn(text string, mux *branch, backend string, err error) {
	o := t.current.Load()
	if o == nil {
		return
	}
	fields := []zap.Field{zap.String("tree", mux.name), zap.Error(err)}
	if backend != "" {
		fields = append(fields, zap.String("backend", backend))
	}
	o.logger.Warn(text, fields...)
}
