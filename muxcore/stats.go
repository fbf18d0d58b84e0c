package muxcore

import (
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"
)

// Stats of a mux at one moment. Durations are milliseconds, as in the seeds of the design; times are zero where unknown.
type Stats struct {
	Mode                Mode           `json:"mode"`
	TotalCalls          uint64         `json:"total_calls"`
	TotalFailovers      uint64         `json:"total_failovers"`
	TotalFanoutPartials uint64         `json:"total_fanout_partials"`
	TotalResumes        uint64         `json:"total_resumes"`
	Removed             []string       `json:"removed,omitempty"` // backends that are configured, and were removed at run time
	Backends            []BackendStats `json:"backends"`
}

// totals are what a mux counts as a whole.
type totals struct {
	calls, failovers, partials, resumes atomic.Uint64
	slowness                            quantile // of reads, as multiples of what is typical of their backend
}

// Change is what was done to a backend at run time, so that it is not as configured.
type Change string

// The changes.
const (
	ChangeAdded   Change = "added"
	ChangeWeight  Change = "weight"
	ChangeDrained Change = "drained"
)

// BackendStats of one backend. Status, Reason, Since and NextTrialAt are those of reads; WritesDown tells where writes differ.
type BackendStats struct {
	Name                string     `json:"name"`
	Status              Status     `json:"status"`
	Reason              string     `json:"reason,omitempty"`
	WritesDown          bool       `json:"writes_down"`
	Weight              int        `json:"weight"`
	Changed             []Change   `json:"changed,omitempty"` // at run time
	Hits                uint64     `json:"hits"`
	Misses              uint64     `json:"misses"`
	Errors              uint64     `json:"errors"`
	Timeouts            uint64     `json:"timeouts"`
	LastLatencyMs       float64    `json:"last_latency_ms"`
	P50LatencyMs        float64    `json:"p50_latency_ms"`
	P99LatencyMs        float64    `json:"p99_latency_ms"`
	ConsecutiveFailures int        `json:"consecutive_failures"`
	Since               time.Time  `json:"since"`
	LastTransitionAt    time.Time  `json:"last_transition_at"`
	NextTrialAt         *time.Time `json:"next_trial_at,omitempty"`
	InFlightCount       int64      `json:"in_flight_count"`
	PendingRepairs      int        `json:"pending_repairs"`              // keys of which it lacks the newest state
	RepairError         string     `json:"repair_error,omitempty"`       // why one of them could last not be given to it
	FullRepairNeeded    bool       `json:"full_repair_needed,omitempty"` // it lacks more than is remembered, and is to be compared in full
	Resumes             uint64     `json:"resumes"`                      // bodies of others that were continued here
	Hedges              uint64     `json:"hedges"`                       // second reads made because this one took its time
	HedgeWins           uint64     `json:"hedge_wins"`                   // second reads that were answered here first
	Mux                 *Stats     `json:"mux,omitempty"`                // of a backend that is a mux

	// RecentLatencyMs are the latencies of the last calls, the newest last, at most 32.
	RecentLatencyMs []float64 `json:"-"`
}

// counters of one backend, each updated without a lock.
type counters struct {
	hits, misses, errors, timeouts, resumes atomic.Uint64
	denial                                  atomic.Pointer[string] // why the backend last would not let us; nil since it did
	unrepaired                              atomic.Pointer[string] // why it last could not be given what it lacks; nil once it lacks nothing
	hedges, hedgeWins                       atomic.Uint64          // reads besides one that took its time here; those won here
	typical                                 quantile               // the median of seconds to the answers of reads, for the automatic hedge
	latency                                 reservoir
}

// record counts a result. What we cancelled ourselves says nothing about the backend.
func (c *counters) record(class Class, err error, took time.Duration) {
	switch class {
	case ClassAbort:
		return
	case ClassOK:
		c.hits.Add(1)
		if c.denial.Load() != nil {
			c.denial.Store(nil)
		}
	case ClassSemantic:
		if CodeOf(err) == CodeKeyNotFound {
			c.misses.Add(1)
		}
	case ClassDenied:
		c.errors.Add(1)
		reason := err.Error()
		c.denial.Store(&reason)
	case ClassTransient, ClassTimeout:
		c.failed(class)
	}
	c.latency.add(took)
}

// failed counts a failure, of a call or of a body after its answer.
func (c *counters) failed(class Class) {
	c.errors.Add(1)
	if class == ClassTimeout {
		c.timeouts.Add(1)
	}
}

const (
	reservoirSize = 256
	recentSize    = 32
)

// reservoir is a uniform sample of all latencies seen (Vitter's algorithm R), in bounded memory and without a lock: two
// writers may meet in one slot, and then one of two equally good samples stays.
type reservoir struct {
	seen  atomic.Uint64
	last  atomic.Int64
	slots [reservoirSize]atomic.Int64

	recent [recentSize]atomic.Int64 // the last ones, in a ring
}

func (r *reservoir) add(took time.Duration) {
	r.last.Store(int64(took))
	n := r.seen.Add(1)
	r.recent[(n-1)%recentSize].Store(int64(took))
	if n <= reservoirSize {
		r.slots[n-1].Store(int64(took))
	} else if i := rand.Uint64N(n); i < reservoirSize { //nolint:gosec // a sample, not a secret
		r.slots[i].Store(int64(took))
	}
}

// quantiles of the sample, each the value at that share of its sorted length, 0 without any.
func (r *reservoir) quantiles(qs ...float64) []time.Duration {
	n := int(min(r.seen.Load(), reservoirSize))
	sample := make([]time.Duration, n)
	for i := range sample {
		sample[i] = time.Duration(r.slots[i].Load())
	}
	slices.Sort(sample)
	out := make([]time.Duration, len(qs))
	for i, q := range qs {
		if n > 0 {
			out[i] = sample[min(n-1, int(q*float64(n)))]
		}
	}
	return out
}

// newest lists the last ones, the newest last.
func (r *reservoir) newest() []time.Duration {
	n := r.seen.Load()
	list := make([]time.Duration, 0, recentSize)
	for i := n - min(n, recentSize); i < n; i++ {
		list = append(list, time.Duration(r.recent[i%recentSize].Load()))
	}
	return list
}

// Stats reads the counters. It may be called at any time.
func (m *Mux) Stats() Stats {
	s := Stats{
		Mode: m.set.Mode, TotalCalls: m.calls.Load(), TotalFailovers: m.failovers.Load(),
		TotalFanoutPartials: m.partials.Load(), TotalResumes: m.resumes.Load(), Removed: m.gone(), Backends: []BackendStats{},
	}
	for _, b := range m.snapshot.Load().all {
		one := b.statistics()
		if m.pending() {
			one.PendingRepairs, one.FullRepairNeeded = m.journal.Count(b.Name), m.journal.Doubtful(b.Name)
			if why := b.stats.unrepaired.Load(); why != nil && one.PendingRepairs > 0 {
				one.RepairError = *why
			}
		}
		s.Backends = append(s.Backends, one)
	}
	return s
}

func (b *backend) statistics() BackendStats {
	q := b.stats.latency.quantiles(0.5, 0.99)
	s := BackendStats{
		Name: b.Name, Weight: int(b.weight.Load()), Changed: b.changes(), Status: StatusUp, InFlightCount: b.drain.inFlight.Load(),
		Hits: b.stats.hits.Load(), Misses: b.stats.misses.Load(), Errors: b.stats.errors.Load(), Timeouts: b.stats.timeouts.Load(),
		Resumes: b.stats.resumes.Load(), Hedges: b.stats.hedges.Load(), HedgeWins: b.stats.hedgeWins.Load(),
		LastLatencyMs: milliseconds(time.Duration(b.stats.latency.last.Load())), P50LatencyMs: milliseconds(q[0]), P99LatencyMs: milliseconds(q[1]),
	}
	for _, took := range b.stats.latency.newest() {
		s.RecentLatencyMs = append(s.RecentLatencyMs, milliseconds(took))
	}
	r := b.reads.view()
	s.ConsecutiveFailures, s.Since, s.LastTransitionAt = r.failures, r.since, r.since
	if denial := b.stats.denial.Load(); denial != nil {
		s.Reason = *denial
	}
	if w := b.writes.view(); w.down {
		s.WritesDown, s.Reason = true, w.err.Error()
	}
	if r.down {
		s.Status, s.Reason, s.NextTrialAt = StatusDown, r.err.Error(), &r.until
	}
	switch b.drain.stage.Load() {
	case draining:
		s.Status, s.Reason, s.NextTrialAt = StatusDraining, "draining", nil
	case drained, removed:
		s.Status, s.Reason, s.NextTrialAt = StatusDown, "drained", nil
	}
	if b.nested != nil {
		inner := b.nested.Stats()
		s.Mux = &inner
	}
	return s
}
