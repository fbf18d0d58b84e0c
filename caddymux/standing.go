package caddymux

import (
	"slices"
	"strings"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// stands is how the tree stands, with what was changed at run time; nil while it is as its config says, since it is not open yet.
func (t *tree) stands() *muxcore.State {
	if !t.made.Load() {
		return nil
	}
	return t.store.State()
}

// eachSeatNow calls f for every backend that is no mux itself, with what was added at run time, and without what was removed.
func (t *tree) eachSeatNow(f func(seat)) {
	t.root.eachSeatNow(t.stands(), seat{in: []guarded{{t: t}}}, f)
}

// eachSeatNow is that for a mux which stands as state says; above is where it is.
func (b *branch) eachSeatNow(state *muxcore.State, above seat, f func(seat)) {
	for _, one := range b.listedNow(state) {
		s := above.below(one.member)
		switch inner := one.inner(); {
		case one.used == nil && inner == nil:
			f(s)
		case one.used == nil:
			inner.eachSeatNow(one.state, s, f)
		default:
			used := one.used.kept()
			if used != nil {
				s.in = append(s.in, guarded{t: used})
				inner = used.root
			}
			if one.state == nil && used != nil {
				one.state = used.stands()
			}
			inner.eachSeatNow(one.state, s, f)
		}
	}
}

// memberNow is a member, and of one that is a mux how that stands, where it is known.
type memberNow struct {
	*member
	state *muxcore.State
}

// listedNow are the members of a mux that stands as state says.
func (b *branch) listedNow(state *muxcore.State) (all []memberNow) {
	if state == nil {
		for i := range b.members {
			all = append(all, memberNow{&b.members[i], nil})
		}
		return all
	}
	for i := range state.Backends {
		s := &state.Backends[i]
		if one, ok := s.Spec.(*member); ok {
			all = append(all, memberNow{one, s.Mux})
		}
	}
	return all
}

// below is the seat of a member of the mux at s.
func (s seat) below(one *member) seat {
	next := seat{member: one, name: joinName(s.name, one.Name), readOnly: s.readOnly || one.ReadOnly, in: slices.Clone(s.in)}
	for i := range next.in {
		next.in[i].name = joinName(next.in[i].name, one.Name)
	}
	return next
}

// joinName is the dotted name of a backend of the mux that is named above, "" for the outermost.
func joinName(above, name string) string {
	if above == "" {
		return name
	}
	return above + "." + name
}

// owner is the tree that has the backend of a dotted name, this one or one that it uses, and its name in there. A name that
// leads nowhere is left as it is.
func (t *tree) owner(name string) (*tree, string) {
	for {
		inner, rest := t.usedNow(name)
		if inner == nil {
			return t, name
		}
		t, name = inner, rest
	}
}

// usedNow is the first tree on the way to a backend that this one uses, and the backend's name in there; nil if there is none.
func (t *tree) usedNow(name string) (inner *tree, rest string) {
	b, state := t.root, t.stands()
	for {
		first, rest, more := strings.Cut(name, ".")
		all := b.listedNow(state)
		i := slices.IndexFunc(all, func(one memberNow) bool { return one.Name == first })
		switch {
		case !more || i < 0 || all[i].inner() == nil:
			return nil, ""
		case all[i].used != nil:
			return all[i].used.kept(), rest
		}
		b, state, name = all[i].nested, all[i].state, rest
	}
}
