package breaker

import (
	"sync"
	"time"
)

// Permit is the right to make one call, and takes one result: the first of
// Success, Failure, FailureRetryAfter or Neutral; later ones are no-ops, so
// `defer permit.Neutral()` covers every way out. It must not be copied once a
// result was given, and is not safe for concurrent use. The zero Permit takes
// any result and does nothing.
//
// It has four words, so that it is passed in registers: with a fifth, Allow costs
// twice as much.
type Permit struct {
	b     *Breaker
	gen   uint64
	place place
	clock clock
}

// place is what others may wait for: the number of a trial, and below it a bit
// for one of MaxConcurrent. 0: none.
type place uint64

const slotBit place = 1

func (p place) trial() uint64 { return uint64(p >> 1) }

func (p place) slot() bool { return p&slotBit != 0 }

// clock is the time of Settings.SlowCall. Above 0: it runs since that age of the
// breaker; below: it stopped after that long; 0: there is none.
type clock time.Duration

// stop ends a running clock at an age of the breaker.
func (c *clock) stop(age time.Duration) {
	if *c > 0 {
		*c = clock(-max(age-time.Duration(*c), 1))
	}
}

// took returns how long it ran until it was stopped.
func (c clock) took() time.Duration { return time.Duration(max(-c, 0)) }

// Sent has the clock of Settings.SlowCall begin at t, if that is later than the
// call: until then it waited for its caller. It must come before Answered.
func (p *Permit) Sent(t time.Time) {
	if p.b != nil && p.clock > 0 {
		p.clock = max(p.clock, clock(p.b.age(t)))
	}
}

// Answered stops the clock of Settings.SlowCall: the call was answered, what
// follows is the transfer of the answer. It reports whether that was too slow;
// Success then counts as a failure.
func (p *Permit) Answered() bool {
	if p.b == nil || p.clock == 0 {
		return false
	}
	p.clock.stop(p.b.age(time.Now()))
	return p.clock.took() >= p.b.set.SlowCall
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
func (p *Permit) IsTrial() bool { return p.place.trial() != 0 }

// Holds reports whether the permit takes a place that others may wait for: that
// of a trial, or one of MaxConcurrent. A permit that does not may be dropped
// without a result, which is then simply not counted.
func (p *Permit) Holds() bool { return p.place != 0 }

// KeepPlace parts the permit from its place of Settings.MaxConcurrent, which is
// then taken until the returned function is called, whatever the result: a call
// may be judged before it is over. nil: it has no such place.
func (p *Permit) KeepPlace() (free func()) {
	b := p.b
	if b == nil || !p.place.slot() {
		return nil
	}
	p.place &^= slotBit
	return sync.OnceFunc(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.inFlight--
	})
}

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
