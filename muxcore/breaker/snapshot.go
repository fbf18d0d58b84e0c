package breaker

import (
	"strings"
	"time"
)

// Snapshot is a breaker at one moment, for operators.
type Snapshot struct {
	PathID           string     `json:"path_id"`
	Registry         string     `json:"registry"`
	State            State      `json:"state"`
	Since            time.Time  `json:"since"`
	Reason           string     `json:"reason"`
	Failures         int        `json:"failures"`
	Successes        int        `json:"successes"`
	HalfOpenInFlight int        `json:"half_open_in_flight"`
	NextTrialAt      *time.Time `json:"next_trial_at"`
	RejectedTotal    uint64     `json:"rejected_total"`
	OpenedTotal      uint64     `json:"opened_total"`
	Recent           []Result   `json:"recent"`
}

// Result is one outcome as remembered. The successes of a breaker that is
// closed with nothing counted are not: they cost nothing because nobody writes
// them down.
type Result struct {
	At      time.Time `json:"at"`
	Outcome Outcome   `json:"outcome"`
	Cause   string    `json:"cause,omitempty"`
	Trial   bool      `json:"trial,omitempty"`
}

// Snapshot returns the breaker as of now. Registry is left empty.
func (b *Breaker) Snapshot() Snapshot {
	defer b.deliver()
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.settle(now)
	s := Snapshot{
		PathID:        b.path,
		State:         b.phase.state(),
		Since:         b.since,
		Reason:        b.reason,
		RejectedTotal: b.rejected.sum(),
		OpenedTotal:   b.opened,
		Recent:        b.recent.list(),
	}
	switch p := b.phase.(type) {
	case *closedPhase:
		s.Failures = p.failures
		if p.window != nil {
			p.window.roll(now)
			s.Failures = p.window.failed
		}
	case *halfOpenPhase:
		p.free(b, now)
		s.Successes, s.HalfOpenInFlight = p.successes, len(p.trials)
	}
	if due := b.phase.due(); s.State == Open && !due.IsZero() {
		s.NextTrialAt = &due
	}
	return s
}

// Rejected returns how many calls were refused so far.
func (b *Breaker) Rejected() uint64 { return b.rejected.sum() }

const (
	recentResults = 16
	causeLength   = 200
)

// ring remembers the last results.
type ring struct {
	results [recentResults]Result
	next    int
	n       int
}

func (r *ring) add(res Result) {
	r.results[r.next] = res
	r.next = (r.next + 1) % recentResults
	r.n = min(r.n+1, recentResults)
}

// list returns the results, oldest first.
func (r *ring) list() []Result {
	out := make([]Result, 0, r.n)
	for i := range r.n {
		out = append(out, r.results[(r.next-r.n+i+recentResults)%recentResults])
	}
	return out
}

// clip bounds a cause, which may quote what a peer sent.
func clip(cause string) string {
	if len(cause) <= causeLength {
		return cause
	}
	return strings.ToValidUTF8(cause[:causeLength], "") + "…"
}
