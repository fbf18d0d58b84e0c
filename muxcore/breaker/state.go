package breaker

import (
	"fmt"
	"time"
)

// State is what a breaker does with calls.
type State uint8

// The three states.
const (
	Closed   State = iota // calls pass, failures are counted
	Open                  // calls are refused at once
	HalfOpen              // a few calls pass as trials
)

// String returns CLOSED, OPEN or HALF_OPEN.
func (s State) String() string {
	switch s {
	case Closed:
		return "CLOSED"
	case Open:
		return "OPEN"
	case HalfOpen:
		return "HALF_OPEN"
	default:
		return fmt.Sprintf("State(%d)", uint8(s))
	}
}

// MarshalText implements encoding.TextMarshaler.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// phase is one stay in one state, with what has to be remembered for it. All
// methods are called with the breaker's lock held, and after due was acted on.
type phase interface {
	state() State
	// mode is what the fast path may do without the lock.
	mode(b *Breaker) uint64
	// due returns when the phase ends by itself; zero: never.
	due() time.Time
	// ready reports whether a call would be admitted.
	ready(b *Breaker, now time.Time) bool
	// admit admits a call as trial number n (0: not a trial), or refuses it.
	admit(b *Breaker, now time.Time, probe bool) (trial uint64, refused *Error)
	// release frees the place of a trial.
	release(trial uint64)
	// book takes an outcome that belongs to this phase.
	book(b *Breaker, now time.Time, o outcome)
}

// closedPhase counts failures: in a row, or within a window.
type closedPhase struct {
	failures int
	window   *window // nil: in a row
}

func newClosed(set *Settings, now time.Time) *closedPhase {
	c := &closedPhase{}
	if set.FailureRatio > 0 {
		c.window = newWindow(set.RatioWindow, now)
	}
	return c
}

func (c *closedPhase) state() State { return Closed }

func (c *closedPhase) due() time.Time { return time.Time{} }

func (c *closedPhase) release(uint64) {}

func (c *closedPhase) mode(b *Breaker) uint64 {
	switch {
	case b.set.MaxConcurrent > 0 || b.set.SlowCall > 0:
		return modeCareful // every call is measured
	case c.window != nil || c.failures > 0:
		return modeCounting // successes matter
	default:
		return modeFree
	}
}

func (c *closedPhase) ready(*Breaker, time.Time) bool { return true }

func (c *closedPhase) admit(*Breaker, time.Time, bool) (uint64, *Error) { return 0, nil }

func (c *closedPhase) book(b *Breaker, now time.Time, o outcome) {
	switch o.kind {
	case Neutral:
		return
	case Failure:
		c.failures++
	case Success:
		c.failures = 0
	}
	rule := ""
	if c.window != nil {
		c.window.add(now, o.kind == Failure)
		calls, failed := c.window.calls, c.window.failed
		if calls >= b.set.RatioMinCalls && float64(failed) >= b.set.FailureRatio*float64(calls) {
			rule = fmt.Sprintf("%d of %d calls failed within %s", failed, calls, b.set.RatioWindow)
		}
	} else if c.failures >= b.set.FailureThreshold {
		rule = fmt.Sprintf("%d failures in a row", c.failures)
	}
	switch {
	case rule == "":
		b.publish()
	case b.mayOpen():
		b.open(now, rule)
	default:
		b.reason = rule + ", kept in rotation: too few of its pool would be left"
		b.publish()
	}
}

// openPhase refuses until its time is over.
type openPhase struct{ until time.Time }

func (o *openPhase) state() State                      { return Open }
func (o *openPhase) mode(*Breaker) uint64              { return modeRefuse }
func (o *openPhase) due() time.Time                    { return o.until }
func (o *openPhase) ready(*Breaker, time.Time) bool    { return false }
func (o *openPhase) release(uint64)                    {}
func (o *openPhase) book(*Breaker, time.Time, outcome) {}
func (o *openPhase) admit(b *Breaker, _ time.Time, _ bool) (uint64, *Error) {
	return 0, b.refusal.Load()
}

// halfOpenPhase lets a few trials through.
type halfOpenPhase struct {
	successes int
	trials    []trial
}

// trial is a place taken: who has it, and when the lease runs out.
type trial struct {
	n       uint64
	expires time.Time
}

func (h *halfOpenPhase) state() State         { return HalfOpen }
func (h *halfOpenPhase) mode(*Breaker) uint64 { return modeCareful }
func (h *halfOpenPhase) due() time.Time       { return time.Time{} }

func (h *halfOpenPhase) ready(b *Breaker, now time.Time) bool {
	return !b.set.ProbeOnly && h.free(b, now)
}

func (h *halfOpenPhase) admit(b *Breaker, now time.Time, probe bool) (uint64, *Error) {
	if (b.set.ProbeOnly && !probe) || !h.free(b, now) {
		return 0, b.crowded
	}
	b.trials++
	h.trials = append(h.trials, trial{n: b.trials, expires: now.Add(b.set.TrialTimeout)})
	return b.trials, nil
}

// free reports whether a trial has room, after taking back expired leases.
func (h *halfOpenPhase) free(b *Breaker, now time.Time) bool {
	kept := h.trials[:0]
	for _, t := range h.trials {
		if t.expires.After(now) {
			kept = append(kept, t)
			continue
		}
		b.recent.add(Result{At: now, Outcome: Neutral, Cause: "the lease of a trial ran out", Trial: true})
	}
	h.trials = kept
	return len(h.trials) < b.set.HalfOpenMaxCalls
}

func (h *halfOpenPhase) release(n uint64) {
	for i, t := range h.trials {
		if t.n == n {
			h.trials = append(h.trials[:i], h.trials[i+1:]...)
			return
		}
	}
}

func (h *halfOpenPhase) book(b *Breaker, now time.Time, o outcome) {
	switch o.kind {
	case Failure:
		b.open(now, "a trial failed")
	case Success:
		if h.successes++; h.successes >= b.set.SuccessThreshold {
			b.enter(newClosed(&b.set, now), now, fmt.Sprintf("%d trials in a row succeeded", h.successes))
		}
	case Neutral:
	}
}

// forcedPhase is what an operator decided, until they or its time take it back.
// Outcomes are not counted meanwhile.
type forcedPhase struct {
	to    State     // Open or Closed
	until time.Time // zero: until taken back
	under phase     // what to return to
}

func (f *forcedPhase) state() State                      { return f.to }
func (f *forcedPhase) due() time.Time                    { return f.until }
func (f *forcedPhase) release(uint64)                    {}
func (f *forcedPhase) book(*Breaker, time.Time, outcome) {}
func (f *forcedPhase) ready(*Breaker, time.Time) bool    { return f.to == Closed }

func (f *forcedPhase) mode(b *Breaker) uint64 {
	switch {
	case f.to == Open:
		return modeRefuse
	case b.set.MaxConcurrent > 0:
		return modeCareful
	default:
		return modeFree
	}
}

func (f *forcedPhase) admit(b *Breaker, _ time.Time, _ bool) (uint64, *Error) {
	if f.to == Open {
		return 0, b.refusal.Load()
	}
	return 0, nil
}
