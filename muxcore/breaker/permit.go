package breaker

import "time"

// Permit is the right to make one call, and takes one result: the first of
// Success, Failure, FailureRetryAfter or Neutral; later ones are no-ops, so
// `defer permit.Neutral()` covers every way out. It must not be copied once a
// result was given, and is not safe for concurrent use. The zero Permit takes
// any result and does nothing.
type Permit struct {
	b     *Breaker
	gen   uint64
	trial uint64 // the place it holds while half-open; 0: none
	slot  bool   // it counts against MaxConcurrent
	// Since the breaker was made; small enough for a Permit to stay in registers.
	start time.Duration // set only where SlowCall is
	took  time.Duration
}

// Sent has the clock of Settings.SlowCall begin at t, if that is later than the
// call: until then it waited for its caller. It must come before Answered.
func (p *Permit) Sent(t time.Time) {
	if p.b != nil && p.start != 0 && p.took == 0 {
		p.start = max(p.start, p.b.age(t))
	}
}

// Answered stops the clock of Settings.SlowCall: the call was answered, what
// follows is the transfer of the answer. It reports whether that was too slow;
// Success then counts as a failure.
func (p *Permit) Answered() bool {
	if p.b == nil || p.start == 0 {
		return false
	}
	if p.took == 0 {
		p.took = max(p.b.age(time.Now())-p.start, 1)
	}
	return p.took >= p.b.set.SlowCall
}

// Success reports that the call went well.
func (p *Permit) Success() {
	b := p.b
	if b == nil {
		return
	}
	p.b = nil
	// A clean closed breaker of the same generation has nothing to learn, as no
	// permit of such a one is measured or limited.
	if b.word.Load() == p.gen<<modeBits|modeFree {
		return
	}
	b.report(*p, outcome{kind: Success})
}

// Failure reports that the path failed; cause is shown to operators.
func (p *Permit) Failure(cause string) { p.FailureRetryAfter(cause, 0) }

// FailureRetryAfter is Failure by someone who said when to come back. If this
// failure opens the breaker, it stays open for d, within the cap. A d of 0 or
// less says nothing.
func (p *Permit) FailureRetryAfter(cause string, d time.Duration) {
	b := p.b
	if b == nil {
		return
	}
	p.b = nil
	b.report(*p, outcome{kind: Failure, cause: cause, retryAfter: d})
}

// Neutral gives the permit back without a verdict: the caller went away, or the
// call says nothing about the path.
func (p *Permit) Neutral() { p.NeutralBecause("") }

// NeutralBecause is Neutral with a cause for operators to see.
func (p *Permit) NeutralBecause(cause string) {
	b := p.b
	if b == nil {
		return
	}
	p.b = nil
	if b.word.Load() == p.gen<<modeBits|modeFree {
		return
	}
	b.report(*p, outcome{kind: Neutral, cause: cause})
}

// IsTrial reports whether the call was admitted to find out if the path is well.
func (p *Permit) IsTrial() bool { return p.trial != 0 }

// Holds reports whether the permit takes a place that others may wait for: that
// of a trial, or one of MaxConcurrent. A permit that does not may be dropped
// without a result, which is then simply not counted.
func (p *Permit) Holds() bool { return p.trial != 0 || p.slot }

// Outcome is what became of a call.
type Outcome uint8

// The three outcomes.
const (
	Success Outcome = iota
	Failure
	Neutral
)

// String returns success, failure or neutral.
func (o Outcome) String() string {
	switch o {
	case Success:
		return "success"
	case Failure:
		return "failure"
	default:
		return "neutral"
	}
}

// MarshalText implements encoding.TextMarshaler.
func (o Outcome) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

type outcome struct {
	kind       Outcome
	cause      string
	retryAfter time.Duration
}
