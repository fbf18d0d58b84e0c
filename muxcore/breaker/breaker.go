package breaker

import (
	"sync"
	"sync/atomic"
	"time"
)

// The low bits of Breaker.word say what may be done without the lock; the rest
// is the generation.
const (
	modeBits = 2

	modeFree     uint64 = 0 // admit; a success changes nothing
	modeCounting uint64 = 1 // admit; every result must be booked
	modeRefuse   uint64 = 2 // refuse; a timer ends this mode in time
	modeCareful  uint64 = 3 // ask under the lock

	modeMask uint64 = 1<<modeBits - 1
)

// Breaker guards one path. It is safe for concurrent use and must not be copied.
type Breaker struct {
	path string
	set  Settings
	made time.Time

	word     atomic.Uint64         // generation and mode; written with mu held
	refusal  atomic.Pointer[Error] // what an open breaker answers
	crowded  *Error                // what a half-open one answers
	full     *Error                // what one at MaxConcurrent answers
	rejected counter
	pending  atomic.Bool // queue or short may hold something

	mu sync.Mutex

	phase     phase
	gen       uint64
	trials    uint64 // trials admitted ever; numbers them
	inFlight  int    // permits out; counted only under MaxConcurrent
	since     time.Time
	reason    string
	reopens   int           // re-opens in a row
	lastOpen  time.Duration // how long it was open last
	retryAt   time.Time     // what the last result asked for
	opened    uint64
	recent    ring
	timer     *time.Timer
	shut      bool
	groups    []*Group
	short     []*Group // of those, which were left with too few closed members
	subs      []*subscription
	queue     []Change
	deliverer bool // somebody is emptying queue
}

// New returns a closed breaker for path.
func New(path string, s Settings) (*Breaker, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	now := time.Now()
	b := &Breaker{
		path:    path,
		set:     s.Effective(),
		crowded: &Error{Code: CodePathHalfOpenRejected, Path: path},
		full:    &Error{Code: CodePathFull, Path: path},
		made:    now,
		since:   now,
		reason:  "new",
	}
	b.phase = newClosed(&b.set, now)
	b.publish()
	return b, nil
}

// Path returns what the breaker guards.
func (b *Breaker) Path() string { return b.path }

// Settings returns the settings in effect.
func (b *Breaker) Settings() Settings { return b.set }

// Allow admits a call, or refuses it with an [*Error]. Every permit must be
// given one result. An open breaker does not look at the clock here: a timer
// ends the open time, or whoever reads the state first after it.
func (b *Breaker) Allow() (Permit, error) {
	w := b.word.Load()
	switch w & modeMask {
	case modeFree, modeCounting:
		return Permit{b: b, gen: w >> modeBits}, nil
	case modeRefuse:
		if refused := b.refusal.Load(); refused != nil {
			b.rejected.add()
			return Permit{}, refused
		}
	}
	return b.allowLocked(caller)
}

// TryAllow is Allow for a caller that has other paths to go to: a refusal is not
// counted as a rejection.
func (b *Breaker) TryAllow() (Permit, error) {
	if w := b.word.Load(); w&modeMask <= modeCounting {
		return Permit{b: b, gen: w >> modeBits}, nil
	}
	return b.allowLocked(chooser)
}

// AllowProbe admits a probe, which only a half-open breaker does. Its result
// counts like that of a trial, and it takes the place of one.
func (b *Breaker) AllowProbe() (Permit, error) { return b.allowLocked(prober) }

// State returns the state as of now. It takes no permit.
func (b *Breaker) State() State {
	if w := b.word.Load(); w&modeMask <= modeCounting {
		return Closed
	}
	defer b.deliver()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.settle(time.Now())
	return b.phase.state()
}

// Ready reports whether Allow would admit a call now. It takes no permit, so by
// the time of the call somebody else may have taken the last place.
func (b *Breaker) Ready() bool {
	if w := b.word.Load(); w&modeMask <= modeCounting {
		return true
	}
	defer b.deliver()
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.settle(now)
	return b.room() && b.phase.ready(b, now)
}

// Reject counts a call that was refused on the word of Ready, without Allow.
func (b *Breaker) Reject() { b.rejected.add() }

// RetryAfter returns how long an open breaker will go on refusing; 0 where it is
// not open, or for good.
func (b *Breaker) RetryAfter() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.phase.state() != Open || b.phase.due().IsZero() {
		return 0
	}
	return max(0, time.Until(b.phase.due()))
}

// Record books an outcome without a permit, for callers that only watch. While
// half-open it counts like a trial's.
func (b *Breaker) Record(o Outcome, cause string) {
	defer b.deliver()
	b.mu.Lock()
	defer b.mu.Unlock()
	if o == Failure {
		b.refreshGroups()
	}
	now := time.Now()
	b.settle(now)
	b.book(now, outcome{kind: o, cause: cause}, b.phase.state() == HalfOpen)
}

// Close stops the timer. The breaker goes on working, only slower while open.
func (b *Breaker) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.shut = true
	if b.timer != nil {
		b.timer.Stop()
	}
	b.publish()
}

// asker is who wants a permit.
type asker uint8

const (
	caller  asker = iota // its refusal is a rejection
	chooser              // it has other paths to go to
	prober               // it is no caller at all
)

func (b *Breaker) allowLocked(who asker) (Permit, error) {
	defer b.deliver()
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.settle(now)
	n, refused := b.admit(now, who)
	if refused != nil {
		if who == caller {
			b.rejected.add()
		}
		return Permit{}, refused
	}
	p := Permit{b: b, gen: b.gen, place: place(n << 1)}
	if b.set.MaxConcurrent > 0 {
		p.place |= slotBit
		b.inFlight++
	}
	if b.set.SlowCall > 0 {
		p.clock = clock(b.age(now))
	}
	return p, nil
}

// admit must be called with mu held.
func (b *Breaker) admit(now time.Time, who asker) (trial uint64, refused *Error) {
	switch {
	case who == prober && b.phase.state() != HalfOpen:
		return 0, b.crowded
	case !b.room():
		return 0, b.full
	}
	return b.phase.admit(b, now, who == prober)
}

// report takes back a permit that is not of a clean closed breaker.
func (b *Breaker) report(p Permit, o outcome) {
	defer b.deliver()
	b.mu.Lock()
	defer b.mu.Unlock()
	if o.kind == Failure || o.kind == Success && p.clock != 0 { // which may have been slow
		b.refreshGroups()
	}
	now := time.Now()
	if p.place.slot() {
		b.inFlight--
	}
	b.settle(now)
	if p.gen != b.gen {
		return // given in a state that is over
	}
	b.phase.release(p.place.trial())
	if o.kind == Success && p.clock != 0 {
		p.clock.stop(b.age(now))
		if took := p.clock.took(); took >= b.set.SlowCall {
			o = outcome{kind: Failure, cause: "slow: " + took.Round(time.Millisecond).String()}
		}
	}
	b.book(now, o, p.place.trial() != 0)
}

// book must be called with mu held.
func (b *Breaker) book(now time.Time, o outcome, trial bool) {
	b.recent.add(Result{At: now, Outcome: o.kind, Cause: clip(o.cause), Trial: trial})
	b.retryAt = time.Time{} // only the failure that opens the path is heard
	if o.kind == Failure && o.retryAfter > 0 {
		b.retryAt = now.Add(min(o.retryAfter, b.set.retryAfterCap()))
	}
	b.phase.book(b, now, o)
}

// age returns how old the breaker is: never 0, so that 0 can mean no time.
func (b *Breaker) age(now time.Time) time.Duration { return max(now.Sub(b.made), 1) }

// room must be called with mu held.
func (b *Breaker) room() bool { return b.set.MaxConcurrent == 0 || b.inFlight < b.set.MaxConcurrent }
