package muxcore

import (
	"sync"
	"sync/atomic"
	"time"
)

// Status of a backend.
type Status string

// The statuses.
const (
	StatusUp       Status = "up"
	StatusDown     Status = "down"
	StatusDraining Status = "draining"
)

// health is what a mux believes of one kind of operation on one backend. It goes down at the first failure, is left alone
// for a cooldown that doubles with every failed trial, and comes back with a trial that succeeds; one is out at a time.
//
// Results count only in the state in which their call was admitted (generation): what was under way when a backend
// went down neither lengthens the cooldown nor revives it.
type health struct {
	down atomic.Bool // fast path: nothing below matters while false

	mu         sync.Mutex
	generation atomic.Uint64 // guards against results from before the last transition
	failures   int           // consecutive, of trials included
	until      time.Time
	trial      bool // one is out
	since      time.Time
	err        error
}

// void is a generation that no state ever has.
const void = ^uint64(0)

// permit admits one call. The zero value is none.
type permit struct {
	h          *health
	generation uint64
	trial      bool
}

// cooldown is min(base * 2^min(f, 6), most), f being the failures before the one that is about to count.
func cooldown(base, most time.Duration, f int) time.Duration {
	return doubled(base, most, min(f, 6))
}

// doubled is min(base * 2^n, most), however long base is.
func doubled(base, most time.Duration, n int) time.Duration {
	if base > most>>n {
		return most
	}
	return base << n
}

// restJitter is the part of a grown cooldown that is drawn at random.
const restJitter = 0.1

// rests are the cooldowns of a mux's backends.
type rests struct {
	base, most time.Duration
	float64    func() float64
	until      time.Time // when the first backend of a nested mux is due for its trial; zero: it is no such mux
}

// after is how long to leave a backend alone that failed so many times before. Grown cooldowns are shortened at random, so
// that nodes which lost a backend at the same moment do not all try it at the same moment, time and again.
func (r rests) after(failures int) time.Duration {
	d := cooldown(r.base, r.most, failures)
	if failures == 0 || r.most <= r.base {
		return d
	}
	return d - time.Duration(float64(d)*restJitter*r.float64())
}

// rests of b. A nested mux leaves its backends alone itself. While none of them can be asked, neither can it: it is due when the first of
// them is, or a trial from above would come too early, find nobody, and count as one that failed.
func (m *Mux) rests(b *backend, op Op) rests {
	r := rests{base: m.set.Cooldown, most: m.set.MaxCooldown, float64: m.set.Float64}
	if b.nested == nil {
		return r
	}
	v := b.nested.current()
	p := &v.reads
	if op.Writes() {
		p = &v.writes
	}
	if len(p.ready)+len(p.backups) == 0 {
		_, r.until = p.due(op)
	}
	return r
}

// enter admits a call while up, without a lock. The generation is read first: a permit from the moment of going down is
// then of the old one, and its result is void.
func (h *health) enter() (permit, bool) {
	p := permit{h: h, generation: h.generation.Load()}
	return p, !h.down.Load()
}

// later is a permit for what becomes of a body after its answer. If the state has changed by then, it is void.
func (h *health) later() permit {
	p, ok := h.enter()
	if !ok {
		p.generation = void
	}
	return p
}

// eligible tells whether acquire would admit a call at now.
func (h *health) eligible(now time.Time) bool {
	v := h.view()
	return !v.down || !v.trial && !now.Before(v.until)
}

// acquire admits a call: freely while up, as the only trial once the cooldown is over, or if force is set before that.
// changed says that the view of the backends is out of date.
func (h *health) acquire(now time.Time, force bool) (p permit, ok, changed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.down.Load() {
		return permit{h: h, generation: h.generation.Load()}, true, false
	}
	if h.trial || !force && now.Before(h.until) {
		return permit{}, false, false
	}
	h.trial = true
	return permit{h: h, generation: h.generation.Load(), trial: true}, true, true
}

// transition is what a result did.
type transition struct {
	changed   bool // the view of the backends is out of date
	wentDown  bool
	recovered bool
	downFor   time.Duration
}

// record takes the result of an admitted call. Only success and blame change anything; all else gives a trial back.
func (h *health) record(p permit, class Class, err error, now time.Time, rest rests) transition {
	if !p.trial && !class.Counts() {
		return transition{} // the common case; h.down is false, or the call is of an older generation
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if p.generation != h.generation.Load() {
		return transition{}
	}
	if p.trial {
		h.trial = false
	}
	switch {
	case class.Counts():
		went := h.fail(err, now, rest)
		return transition{changed: true, wentDown: went}
	case !provesLife(class, err):
		return transition{changed: p.trial}
	default: // an answer of any kind is a sign of life
		downFor := h.revive(now)
		return transition{changed: true, recovered: true, downFor: downFor}
	}
}

// fail must be called with h.mu held. It tells whether the backend was up.
func (h *health) fail(err error, now time.Time, rest rests) bool {
	wasUp := !h.down.Load()
	if h.until = rest.until; h.until.IsZero() {
		h.until = now.Add(rest.after(h.failures))
	}
	h.failures++
	h.err = err
	h.trial = false
	if wasUp {
		h.since = now
		h.down.Store(true)
	}
	h.generation.Add(1) // after down: see enter
	return wasUp
}

// revive must be called with h.mu held, and h down.
func (h *health) revive(now time.Time) time.Duration {
	downFor := now.Sub(h.since)
	h.failures, h.err, h.until, h.since, h.trial = 0, nil, time.Time{}, now, false
	h.generation.Add(1)
	h.down.Store(false)
	return downFor
}

// checked takes the result of an active check that asked at the generation given.
func (h *health) checked(generation uint64, err error, now time.Time, rest rests) transition {
	h.mu.Lock()
	defer h.mu.Unlock()
	down := h.down.Load()
	switch {
	case generation != h.generation.Load(), err == nil && !down:
		return transition{}
	case err != nil:
		return transition{changed: true, wentDown: h.fail(err, now, rest)}
	}
	return transition{changed: true, recovered: true, downFor: h.revive(now)}
}

// healthView is a consistent copy for stats and for the view.
type healthView struct {
	down       bool
	trial      bool
	generation uint64
	failures   int
	until      time.Time
	since      time.Time
	err        error
}

func (h *health) view() healthView {
	h.mu.Lock()
	defer h.mu.Unlock()
	return healthView{h.down.Load(), h.trial, h.generation.Load(), h.failures, h.until, h.since, h.err}
}
