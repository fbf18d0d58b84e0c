package journal

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// Scope is the part of a journal that belongs to one mux. It is safe for concurrent use.
type Scope struct {
	j       *Journal
	name    string
	pending atomic.Int64 // marks, and backends in doubt

	// The rest is guarded by j.mu.

	marks    map[string]Mark
	doubtful map[string]bool // to be compared in full; true: what they miss is remembered again, for it is under way
	owed     map[string]int  // marks by backend
	deletes  map[string]int  // of them, of keys that are deleted
	late     int             // marks with writes that may come late
	watchers map[chan struct{}]bool

	sharing sync.Once
	shared  any
}

func newScope(j *Journal, name string) *Scope {
	return &Scope{
		j: j, name: name, marks: make(map[string]Mark), doubtful: make(map[string]bool),
		owed: make(map[string]int), deletes: make(map[string]int), watchers: make(map[chan struct{}]bool),
	}
}

// Shared is one value for all who use the scope, made by whoever comes first: muxes that follow each other overlap, and
// what orders their writes must be one.
func (s *Scope) Shared(first func() any) any {
	s.sharing.Do(func() { s.shared = first() })
	return s.shared
}

// Load is [Journal.Load].
func (s *Scope) Load() error { return s.j.Load() }

// Pending tells whether anything is remembered. It is one atomic load.
func (s *Scope) Pending() bool { return s.pending.Load() != 0 }

// Lookup gives the mark of a key.
func (s *Scope) Lookup(key string) (Mark, bool) {
	if !s.Pending() {
		return Mark{}, false
	}
	s.j.mu.Lock()
	defer s.j.mu.Unlock()
	m, ok := s.marks[key]
	return m, ok
}

// Doubtful tells whether a backend is to be compared in full: more was missed than is remembered.
func (s *Scope) Doubtful(backend string) bool {
	if !s.Pending() {
		return false
	}
	s.j.mu.Lock()
	defer s.j.mu.Unlock()
	return s.inDoubt(backend)
}

// inDoubt must be called with s.j.mu held.
func (s *Scope) inDoubt(backend string) bool {
	_, one := s.doubtful[backend]
	_, all := s.doubtful[anyBackend]
	return one || all
}

// Count is how many keys there are of which a backend lacks the newest state, or may.
func (s *Scope) Count(backend string) int {
	if !s.Pending() {
		return 0
	}
	s.j.mu.Lock()
	defer s.j.mu.Unlock()
	return s.owed[backend]
}

// Keys are up to n keys in order, greater than after, that begin with prefix and have a mark.
func (s *Scope) Keys(prefix, after string, n int) []string {
	s.j.mu.Lock()
	defer s.j.mu.Unlock()
	var keys []string
	for key := range s.marks {
		if key > after && strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys[:min(n, len(keys))]
}

// Late are the keys, in order, of which a backend may yet commit something else than the newest state.
func (s *Scope) Late() []string {
	if !s.Pending() {
		return nil
	}
	s.j.mu.Lock()
	defer s.j.mu.Unlock()
	if s.late == 0 {
		return nil
	}
	var keys []string
	for key, m := range s.marks {
		if len(m.Late) > 0 {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// Watch makes a channel that gets a value when there is more to remember.
func (s *Scope) Watch() (more <-chan struct{}, stop func()) {
	c := make(chan struct{}, 1)
	s.j.mu.Lock()
	defer s.j.mu.Unlock()
	s.watchers[c] = true
	return c, func() {
		s.j.mu.Lock()
		defer s.j.mu.Unlock()
		delete(s.watchers, c)
	}
}

// Owed are the keys, in order, of which one of the backends lacks the newest state, or may.
func (s *Scope) Owed(backends []string) []string {
	s.j.mu.Lock()
	defer s.j.mu.Unlock()
	if !slices.ContainsFunc(backends, func(name string) bool { return s.owed[name] > 0 }) {
		return nil // without a look at the many keys that the others may lack
	}
	var keys []string
	for key, m := range s.marks {
		if slices.ContainsFunc(m.owed(), func(name string) bool { return slices.Contains(backends, name) }) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}
