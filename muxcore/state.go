package muxcore

import (
	"errors"
	"slices"
	"time"
)

// State is what a mux has learnt of its backends, and what was changed in it at run time. A mux that takes the place of
// another goes on with it ([Settings.State]), backend by backend, by name: whoever is left out starts afresh. Statistics go
// on as well; the two muxes may live side by side, and then count together. Health is each one's own from then on.
type State struct {
	Backends []BackendState
	Removed  []string // backends that the mux was made with, and that were removed since

	totals *totals
}

// BackendState is that of one backend.
type BackendState struct {
	Name    string
	Spec    any // as in [Backend]
	Reads   HealthState
	Writes  HealthState
	Weight  *int   // set at run time; nil: as it was made
	Drained bool   // or on its way there
	Added   bool   // at run time
	Mux     *State // of one that is a mux, what is in it

	stats *counters
}

// HealthState is what is believed of one kind of operation on a backend. The zero value is up.
type HealthState struct {
	Down     bool
	Failures int       // consecutive
	Since    time.Time // zero: now
	Until    time.Time // while down: it is left alone until then
	Err      error     // while down: why
}

// State takes down how the mux stands. It may be called at any time.
func (m *Mux) State() *State {
	m.mu.Lock()
	backends := m.backends // replaced, never changed
	s := &State{Removed: slices.Clone(m.removed), totals: m.totals}
	m.mu.Unlock()
	for _, b := range backends {
		s.Backends = append(s.Backends, b.state())
	}
	return s
}

func (b *backend) state() BackendState {
	s := BackendState{
		Name: b.Name, Spec: b.Spec, Reads: b.reads.state(), Writes: b.writes.state(),
		Drained: b.drain.out(), Added: b.added, stats: b.stats,
	}
	if weight := b.weight.Load(); weight != b.made() {
		s.Weight = new(int(weight))
	}
	if b.nested != nil {
		s.Mux = b.nested.State()
	}
	return s
}

func (h *health) state() HealthState {
	v := h.view()
	return HealthState{Down: v.down, Failures: v.failures, Since: v.since, Until: v.until, Err: v.err}
}

// of finds the state of a backend, nil if there is none.
func (s *State) of(name string) *BackendState {
	if s == nil {
		return nil
	}
	if i := slices.IndexFunc(s.Backends, func(b BackendState) bool { return b.Name == name }); i >= 0 {
		return &s.Backends[i]
	}
	return nil
}

// carried is what belongs to the mux as a whole.
func (s *State) carried() (t *totals, removed []string) {
	if s == nil {
		return new(totals), nil
	}
	if t = s.totals; t == nil {
		t = new(totals)
	}
	return t, slices.Clone(s.Removed)
}

// carryOn has a backend that is new go on with what is known of it.
func (b *backend) carryOn(was *BackendState, now time.Time, most time.Duration) {
	if was == nil {
		return
	}
	b.added = was.Added
	if was.stats != nil {
		b.stats = was.stats
	}
	if was.Weight != nil && *was.Weight >= 0 {
		b.weight.Store(int64(*was.Weight))
	}
	if was.Drained {
		b.drain.stage.Store(drained) // nothing is in flight here
	}
	b.reads.carryOn(&was.Reads, now, most)
	b.writes.carryOn(&was.Writes, now, most)
}

var errUntold = errors.New("down since before; why is not known")

// carryOn has no trial out: that of the mux before is its own. A cooldown of other settings is no longer than one of these.
func (h *health) carryOn(was *HealthState, now time.Time, most time.Duration) {
	if !was.Since.IsZero() {
		h.since = was.Since
	}
	if !was.Down {
		return
	}
	h.failures, h.until, h.err = max(was.Failures, 1), was.Until, was.Err
	if latest := now.Add(most); h.until.After(latest) {
		h.until = latest
	}
	if h.err == nil {
		h.err = &Error{Code: CodeUnavailable, Err: errUntold}
	}
	h.down.Store(true)
}

// keepOneReadable takes all weights back to what they were made with, if those set at run time would leave nobody to read:
// whoever had one may be gone.
func keepOneReadable(backends []*backend) {
	if slices.ContainsFunc(backends, func(b *backend) bool { return b.weight.Load() > 0 }) {
		return
	}
	for _, b := range backends {
		b.weight.Store(b.made())
	}
}

// changes lists in what the backend is not as configured.
func (b *backend) changes() []Change {
	var all []Change
	if b.added {
		all = append(all, ChangeAdded)
	}
	if b.weight.Load() != b.made() {
		all = append(all, ChangeWeight)
	}
	if b.drain.out() {
		all = append(all, ChangeDrained)
	}
	return all
}

// gone lists the configured backends that were removed.
func (m *Mux) gone() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.removed)
}
