package muxcore

import (
	"context"
	"math"
	"sync/atomic"
	"time"
)

// Hedge starts a second read when the first has not answered within a delay. The zero value is off.
type Hedge struct {
	// After is the delay. 0: none, unless Auto.
	After time.Duration

	// Auto takes the delay from the backend itself: the time within which it answers 95 of 100 reads.
	Auto bool

	// Share is the most extra reads, as a share of all reads. Default: 0.05. A burst of 10 is allowed beyond it.
	Share float64
}

// on tells whether reads are hedged at all.
func (h *Hedge) on() bool { return h.Auto || h.After > 0 }

const (
	hedgeBurst     = 10
	hedgeToken     = 1 << 20 // one extra read, in units of the budget
	hedgeQuantile  = 0.95
	hedgeStep      = 0.1 // how fast the estimate follows, as a share of itself
	hedgeMinSample = 20  // answers before an estimate is worth anything
)

// hedgeBudget lets through a share of all reads and a burst, as a bucket of tokens without a lock. The zero value is full.
type hedgeBudget struct{ spent atomic.Int64 }

// earn puts back what one read is worth.
func (b *hedgeBudget) earn(share float64) {
	worth := int64(share * hedgeToken)
	for {
		spent := b.spent.Load()
		if spent == 0 || b.spent.CompareAndSwap(spent, max(0, spent-worth)) {
			return
		}
	}
}

// take takes a token, if there is one.
func (b *hedgeBudget) take() bool {
	for {
		spent := b.spent.Load()
		if spent+hedgeToken > hedgeBurst*hedgeToken {
			return false
		}
		if b.spent.CompareAndSwap(spent, spent+hedgeToken) {
			return true
		}
	}
}

// quantile estimates the time within which a backend answers, as answers stream by: stochastic approximation (Robbins and
// Monro, 1951) on the logarithm, so that it follows a change within some dozens of answers whatever the scale.
type quantile struct {
	n    atomic.Int64
	bits atomic.Uint64 // float64, seconds
}

func (q *quantile) add(took time.Duration) {
	x := max(took.Seconds(), 1e-9)
	if q.n.Add(1) == 1 {
		q.bits.Store(math.Float64bits(x))
		return
	}
	for {
		old := q.bits.Load()
		at := math.Float64frombits(old)
		if x > at {
			at *= math.Exp(hedgeStep * hedgeQuantile)
		} else {
			at *= math.Exp(-hedgeStep * (1 - hedgeQuantile))
		}
		if q.bits.CompareAndSwap(old, math.Float64bits(at)) {
			return
		}
	}
}

// learn takes in how long a read took. One that was called off took at least that long, which tells something if it is long.
func (q *quantile) learn(class Class, took time.Duration) {
	if class == ClassOK || class == ClassAbort && took > q.estimate() {
		q.add(took)
	}
}

// estimate is the quantile, 0 while too little is known.
func (q *quantile) estimate() time.Duration {
	if q.n.Load() < hedgeMinSample {
		return 0
	}
	return time.Duration(math.Float64frombits(q.bits.Load()) * float64(time.Second))
}

// hedges tells whether the operation may be worth a second read.
func (m *Mux) hedges(o *operation) bool { return m.set.Hedge.on() && !m.mode.race && o.walk.left() > 1 }

// hedgeDelay is how long b may take before another is asked besides, 0 if nobody is to be.
func (m *Mux) hedgeDelay(b *backend) time.Duration {
	if m.set.Hedge.Auto {
		return b.stats.typical.estimate()
	}
	return m.set.Hedge.After
}

// hedge makes the operation's call on one backend after the other, each besides the last if that takes its time and the
// budget allows, or instead of it if it fails. It gives back the one that answers first, as race does.
func (m *Mux) hedge(ctx context.Context, o *operation) *racer {
	m.budgeted.earn(m.set.Hedge.Share)
	c := &contest{m: m, finished: make(chan *racer, o.walk.left()+1)} // and one as a last resort
	var field []*racer
	running := 0
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	start := func(extra bool) bool {
		b, p := m.nextReader(ctx, o)
		if b == nil {
			return false
		}
		r := m.racer(o, b, p, running, o.walk.left())
		r.extra = extra
		field = append(field, r)
		running++
		m.goRace(ctx, c, r)
		timer.Stop()
		if delay := m.hedgeDelay(b); delay > 0 {
			timer.Reset(delay)
		}
		return true
	}
	if !start(false) {
		return nil
	}
	for running > 0 {
		select {
		case r := <-c.finished:
			running--
			if m.heard(o, r) {
				c.end(field, r)
				m.hedgeEnded(r)
				return r
			}
			m.drop(r)
			if running == 0 && !start(false) {
				return nil
			}
		case <-ctx.Done():
			c.end(field, nil)
			return nil
		case <-timer.C:
			if o.walk.left() > 0 && m.budgeted.take() && start(true) {
				field[len(field)-2].b.stats.hedges.Add(1)
			}
		}
	}
	return nil
}

// hedgeEnded counts a second read that was faster.
func (m *Mux) hedgeEnded(winner *racer) {
	if winner.extra && winner.class == ClassOK {
		winner.b.stats.hedgeWins.Add(1)
	}
}
