package breaker

import (
	"fmt"
	"slices"
	"time"
)

// Change is a transition, as subscribers see it.
type Change struct {
	Path     string
	From, To State
	// Reason is the rule that fired, for people to read.
	Reason string
	At     time.Time
	// Until is when an open breaker turns half-open; zero otherwise.
	Until time.Time
}

type subscription struct{ f func(Change) }

// Subscribe has f called for each change of state, in order and without any
// lock held; f may use the breaker. It runs on the goroutine that caused the
// change, so it must be quick. The returned function ends it.
func (b *Breaker) Subscribe(f func(Change)) (unsubscribe func()) {
	s := &subscription{f: f}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.subs = append(slices.Clip(b.subs), s)
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		kept := make([]*subscription, 0, len(b.subs))
		for _, other := range b.subs {
			if other != s {
				kept = append(kept, other)
			}
		}
		b.subs = kept
	}
}

// ForceOpen refuses every call until Auto, or for ttl if that is positive.
func (b *Breaker) ForceOpen(ttl time.Duration) { b.force(Open, ttl) }

// ForceClosed admits every call until Auto, or for ttl if that is positive.
func (b *Breaker) ForceClosed(ttl time.Duration) { b.force(Closed, ttl) }

// Auto takes back a forced state: the breaker goes on where it was, by the clock.
func (b *Breaker) Auto() {
	defer b.deliver()
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.settle(now)
	if f, ok := b.phase.(*forcedPhase); ok {
		b.resume(f, now, "no longer forced")
		b.settle(now) // it may have been open, with its time over meanwhile
	}
}

// Forced reports whether an operator decided the state, and it still holds.
func (b *Breaker) Forced() bool {
	defer b.deliver()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.settle(time.Now())
	_, forced := b.phase.(*forcedPhase)
	return forced
}

// Reset makes the breaker as new: closed, nothing counted, nothing forced. The
// totals of its life stay.
func (b *Breaker) Reset() {
	defer b.deliver()
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.settle(now)
	b.reopens, b.lastOpen, b.retryAt = 0, 0, time.Time{}
	b.enter(newClosed(&b.set, now), now, "reset")
}

func (b *Breaker) force(to State, ttl time.Duration) {
	defer b.deliver()
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.settle(now)
	f := &forcedPhase{to: to, under: b.phase}
	if before, ok := b.phase.(*forcedPhase); ok {
		f.under = before.under
	}
	reason := "forced " + to.String()
	if ttl > 0 {
		f.until = now.Add(ttl)
		reason = fmt.Sprintf("%s for %s", reason, ttl)
	}
	if to == Open && b.phase.state() != Open {
		b.opened++
	}
	b.enter(f, now, reason)
}

// settle acts on what the clock did since the last call. It must be called with
// mu held, before anything else is read.
func (b *Breaker) settle(now time.Time) {
	for {
		due := b.phase.due()
		if due.IsZero() || now.Before(due) {
			return
		}
		if f, ok := b.phase.(*forcedPhase); ok {
			b.resume(f, due, "the time of the forced state is over")
			continue
		}
		b.enter(&halfOpenPhase{}, due, "the open time is over")
	}
}

// resume must be called with mu held.
func (b *Breaker) resume(f *forcedPhase, now time.Time, why string) {
	switch under := f.under.(type) {
	case *openPhase:
		b.enter(under, now, why)
	case *halfOpenPhase:
		b.enter(&halfOpenPhase{}, now, why)
	default:
		b.enter(newClosed(&b.set, now), now, why)
	}
}

// open must be called with mu held.
func (b *Breaker) open(now time.Time, rule string) {
	// A trip soon after a recovery is the same trouble: it goes on growing.
	if b.phase.state() == HalfOpen || (b.lastOpen > 0 && now.Sub(b.since) < b.lastOpen) {
		b.reopens++
	} else {
		b.reopens = 0
	}
	b.lastOpen = b.set.jittered(b.reopens)
	if b.retryAt.After(now) {
		b.lastOpen = b.retryAt.Sub(now)
		rule += ", the path asked for " + b.lastOpen.Round(time.Second).String()
	}
	b.retryAt = time.Time{}
	b.opened++
	b.enter(&openPhase{until: now.Add(b.lastOpen)}, now, rule)
}

// enter starts a phase. It must be called with mu held.
func (b *Breaker) enter(to phase, now time.Time, reason string) {
	from := b.phase.state()
	b.phase = to
	b.gen++
	b.since, b.reason = now, reason
	until := to.due()
	if to.state() == Open {
		b.refusal.Store(&Error{Code: CodePathOpen, Path: b.path, RetryAt: until})
	}
	b.arm(until)
	b.publish()
	for _, g := range b.groups {
		if g.set(b, to.state() == Closed) {
			b.short = append(b.short, g)
			b.pending.Store(true)
		}
	}
	if from != to.state() {
		b.queue = append(b.queue, Change{
			Path: b.path, From: from, To: to.state(), Reason: reason, At: now, Until: until,
		})
		b.pending.Store(true)
	}
}

// arm sees to it that the clock is acted on without any caller. It must be
// called with mu held.
func (b *Breaker) arm(due time.Time) {
	if b.timer != nil {
		b.timer.Stop()
		b.timer = nil
	}
	if !due.IsZero() && !b.shut {
		b.timer = time.AfterFunc(max(0, time.Until(due)), b.tick)
	}
}

func (b *Breaker) tick() {
	defer b.deliver()
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.settle(now)
	if due := b.phase.due(); !due.IsZero() {
		b.arm(due) // woken early, or a later phase has its own time
	}
}

// publish tells the fast path what it may do. It must be called with mu held.
func (b *Breaker) publish() {
	mode := b.phase.mode(b)
	if mode == modeRefuse && b.shut && !b.phase.due().IsZero() {
		mode = modeCareful // no timer will end it
	}
	if w := b.gen<<modeBits | mode; w != b.word.Load() {
		b.word.Store(w)
	}
}

// deliver does what has to wait until the lock is free: it has groups fill up
// again, and empties the queue to the subscribers. One goroutine at a time does
// that, so each sees the changes in order. It must be called without mu held.
func (b *Breaker) deliver() {
	for b.pending.Load() {
		for _, g := range b.takeShort() {
			g.refill()
		}
		changes, subs := b.take()
		if changes == nil {
			return
		}
		b.hand(changes, subs)
	}
}

// takeShort returns the groups that miss closed members.
func (b *Breaker) takeShort() []*Group {
	b.mu.Lock()
	defer b.mu.Unlock()
	short := b.short
	b.short = nil
	b.pending.Store(len(b.queue) > 0)
	return short
}

// take makes the caller the one that delivers what is queued; nil: somebody
// else is, or there is nothing.
func (b *Breaker) take() ([]Change, []*subscription) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.deliverer || len(b.queue) == 0 {
		return nil, nil
	}
	changes := b.queue
	b.queue = nil
	b.pending.Store(len(b.short) > 0)
	b.deliverer = true
	return changes, b.subs
}

// hand calls the subscribers. One that panics costs its own change and no
// other: whoever delivers next goes on after it.
func (b *Breaker) hand(changes []Change, subs []*subscription) {
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.deliverer = false
		if len(changes) > 0 {
			b.queue = append(changes, b.queue...)
			b.pending.Store(true)
		}
	}()
	for len(changes) > 0 {
		c := changes[0]
		changes = changes[1:]
		for _, s := range subs {
			s.f(c)
		}
	}
}
