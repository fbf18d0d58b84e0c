package muxcore

import (
	"context"
	"sync"
	"time"
)

// checker runs the active health checks of one backend, on a goroutine of its own.
type checker struct {
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// watchHealth starts the checks of b, if the settings ask for any. A nested mux looks after itself.
func (m *Mux) watchHealth(b *backend) {
	if m.set.HealthInterval <= 0 || b.nested != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := &checker{cancel: cancel}
	b.checker.Store(c)
	c.done.Go(func() { m.checkLoop(ctx, b) })
}

// stopHealth ends the checks of b and waits for the one under way, which ends with its context.
func (b *backend) stopHealth() {
	if c := b.checker.Swap(nil); c != nil {
		c.cancel()
		c.done.Wait()
	}
}

// checkLoop checks at once, and then at intervals spread by a tenth, so that the nodes of a fleet do not fall into step.
func (m *Mux) checkLoop(ctx context.Context, b *backend) {
	for {
		m.check(ctx, b)
		jitter := 1 + (m.set.Float64()-0.5)/5
		if !pauseFor(ctx, time.Duration(float64(m.set.HealthInterval)*jitter)) {
			return
		}
	}
}

// minCheckTimeout is the least time that a check has: checks more often than that must not be impatient as well.
const minCheckTimeout = 5 * time.Second

// check asks once. The outcome counts unless the backend's state changed meanwhile. A failed check takes a backend down
// only if no call on it has succeeded since the check began, and never the last one that is up: real traffic knows better.
func (m *Mux) check(ctx context.Context, b *backend) {
	if b.drain.out() || b.overrun() {
		return
	}
	reads, writes, hits := b.reads.generation.Load(), b.writes.view(), b.stats.hits.Load()
	var a answer
	c := call{op: OpHealth, key: b.HealthKey}
	w := newWatch(ctx, min(b.Timeout, max(m.set.HealthInterval, minCheckTimeout)))
	defer w.stop()
	c.abandonable(w, b, &a)
	if ctx.Err() != nil {
		return // ended by us: neutral
	}
	if a.err != nil && w.stalled() {
		a.err = &Error{Code: CodeBackendTimeout, Op: OpHealth, Err: errNoProgress}
	}
	if class := Classify(ctx, a.err); !class.Counts() {
		m.apply(b, OpGet, b.reads.checked(reads, nil, m.set.Now(), rests{}), nil)
		if writes.down && CodeOf(writes.err) == CodeHealthcheckFailed {
			m.apply(b, OpPut, b.writes.checked(writes.generation, nil, m.set.Now(), rests{}), nil)
		}
		return
	}
	if b.stats.hits.Load() != hits || m.lastUp(b) {
		return
	}
	err := &Error{Code: CodeHealthcheckFailed, Op: OpHealth, Backend: b.Name, Err: a.err}
	m.apply(b, OpGet, b.reads.checked(reads, err, m.set.Now(), m.rests(b, OpGet)), err)
	if !writes.down {
		m.apply(b, OpPut, b.writes.checked(writes.generation, err, m.set.Now(), m.rests(b, OpPut)), err)
	}
}

// lastUp tells whether b is the only backend that reads may be sent to.
func (m *Mux) lastUp(b *backend) bool {
	for _, other := range m.snapshot.Load().reads.members {
		if other != b && !other.reads.down.Load() {
			return false
		}
	}
	return !b.reads.down.Load()
}
