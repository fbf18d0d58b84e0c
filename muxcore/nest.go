package muxcore

import "slices"

// depthOf is how many muxes stand in the longest chain that begins at s.
func depthOf(s Store) int {
	m, ok := s.(*Mux)
	if !ok {
		return 0
	}
	deepest := 0
	for _, b := range m.snapshot.Load().all {
		deepest = max(deepest, depthOf(b.Store))
	}
	return 1 + deepest
}

// cycle names the muxes from m to s and on, inside of it, to m again; nil if s does not hold m.
func cycle(s Store, m *Mux) []string {
	var path func(*Mux) []string
	path = func(at *Mux) []string {
		if at == m {
			return []string{at.set.Name}
		}
		for _, b := range at.snapshot.Load().all {
			if b.nested == nil {
				continue
			}
			if rest := path(b.nested); rest != nil {
				return append([]string{at.set.Name}, rest...)
			}
		}
		return nil
	}
	if inner, ok := s.(*Mux); ok {
		if found := path(inner); found != nil {
			return append([]string{m.set.Name}, found...)
		}
	}
	return nil
}

// nest tells a nested mux what is above it, so that what is added to it later is measured in the whole chain, and so that
// what it can do is known above.
func (b *backend) nest(parent *Mux) {
	if b.nested == nil {
		return
	}
	b.nested.mu.Lock()
	if !slices.Contains(b.nested.parents, parent) {
		b.nested.parents = append(slices.Clip(b.nested.parents), parent)
	}
	b.nested.mu.Unlock()
	b.nested.measure()
}

// unnest takes back what nest told a mux that has other users, and so outlives this one.
func (b *backend) unnest(parent *Mux) {
	if b.nested == nil || b.Release == nil {
		return
	}
	b.nested.mu.Lock()
	b.nested.parents = slices.DeleteFunc(slices.Clone(b.nested.parents), func(m *Mux) bool { return m == parent })
	b.nested.mu.Unlock()
	b.nested.measure()
}

// measure counts the muxes above this one, and above those in it.
func (m *Mux) measure() {
	m.mu.Lock()
	var above int64
	for _, p := range m.parents {
		above = max(above, p.base.Load()+1)
	}
	inner := m.backends
	m.mu.Unlock()
	m.base.Store(above)
	for _, b := range inner {
		if b.nested != nil {
			b.nested.measure()
		}
	}
}

// refreshAbove renews the views of the muxes above, for which this one's abilities may have changed.
func (m *Mux) refreshAbove() {
	m.mu.Lock()
	parents := m.parents
	m.mu.Unlock()
	for _, p := range parents {
		p.refresh()
		p.refreshAbove()
	}
}
