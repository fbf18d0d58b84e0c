package muxcore

import (
	"context"
	"math"
	"slices"
	"sync/atomic"
	"time"
)

// Hedge starts a second read when the first has not answered within a delay. The zero value is off.
type Hedge struct {
	// After is the delay. 0: none, unless Auto.
	After time.Duration

	// Auto takes the delay from the backends themselves: the time within which one answers 95 of 100 reads (more or fewer
	// by Share), as it goes by its own usual time and by how far from theirs all backends stray.
	Auto bool

	// Share is the most extra reads, as a share of all reads. Default: 0.05. A burst of 10 is allowed beyond it.
	Share float64
}

// on tells whether reads are hedged at all.
func (h *Hedge) on() bool { return h.Auto || h.After > 0 }

const (
	hedgeBurst     = 10
	hedgeToken     = 1 << 20 // one extra read, in units of the budget
	hedgeWanted    = 0.9     // how much of the budget the automatic delay aims at; the rest is for when it is off the mark
	hedgeStep      = 0.1     // how fast estimates follow, as a share of themselves
	hedgeMinSample = 20      // answers before an estimate is worth anything
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

// quantile estimates a quantile of what streams by: stochastic approximation (Robbins and Monro, 1951) on the logarithm, so
// that it follows a change within some dozens of values whatever the scale.
type quantile struct {
	n    atomic.Int64
	bits atomic.Uint64 // float64
}

// add takes in a value; the estimate moves towards the one that a share of at of all values is below.
func (q *quantile) add(x, at float64) {
	x = max(x, 1e-9)
	if q.n.Add(1) == 1 {
		q.bits.Store(math.Float64bits(x))
		return
	}
	for {
		old := q.bits.Load()
		v := math.Float64frombits(old)
		if x > v {
			v *= math.Exp(hedgeStep * at)
		} else {
			v *= math.Exp(-hedgeStep * (1 - at))
		}
		if q.bits.CompareAndSwap(old, math.Float64bits(v)) {
			return
		}
	}
}

// estimate is the quantile, 0 while too little is known.
func (q *quantile) estimate() float64 {
	if q.n.Load() < hedgeMinSample {
		return 0
	}
	return math.Float64frombits(q.bits.Load())
}

// learn takes in how long b took for a read: what is typical of it, and how far from that reads of all backends are. One
// that was called off took at least that long, which tells something if it is long.
func (m *Mux) learn(b *backend, class Class, took time.Duration) {
	called := class == ClassAbort
	if class != ClassOK && !called {
		return
	}
	typical := b.stats.typical.estimate()
	if !called || took.Seconds() > typical {
		b.stats.typical.add(took.Seconds(), 0.5)
	}
	if typical == 0 {
		return
	}
	slowness := took.Seconds() / typical
	if m.slowness.n.Load() == 0 {
		slowness = min(slowness, 2) // a high quantile comes up in no time, and down slowly
	}
	if !called || slowness > m.slowness.estimate() {
		m.slowness.add(slowness, 1-hedgeWanted*m.set.Hedge.Share)
	}
}

// hedges tells whether the operation may be worth a second read.
func (m *Mux) hedges(o *operation) bool { return m.set.Hedge.on() && !m.mode.race && o.walk.left() > 1 }

// hedgeDelay is how long b may take before another is asked besides, 0 if nobody is to be. The automatic one is what is
// typical of b, times how far above that as many reads are as the budget allows to hedge, of all backends. The
// quantile of b alone would do where all are alike; but one that is slow more often than the budget allows would have its
// slow answers for its quantile, and never be hedged, while the others spend the budget on their own.
func (m *Mux) hedgeDelay(b *backend) time.Duration {
	if m.set.Hedge.Auto {
		return time.Duration(b.stats.typical.estimate() * m.slowness.estimate() * float64(time.Second))
	}
	return m.set.Hedge.After
}

// hedging is one hedged read under way.
type hedging struct {
	m       *Mux
	ctx     context.Context
	o       *operation
	c       *contest
	field   []*racer
	running int
	timer   *time.Timer      // nil until it is first set
	due     <-chan time.Time // when somebody is to be asked besides the last; nil: not at all
	no      *racer           // has said no, which counts once all that were asked before it have failed
}

// hedge makes the operation's call on one backend after the other, each besides the last if that takes its time and the
// budget allows, or instead of it if it fails. It gives back the first that has an answer with or about the object, as race does. Another
// no, such as that there is no object, is the answer only where it would be without a second read: once whoever was asked before has failed.
//
// Nearly all reads are answered by the first within the delay. So that one is asked right here; once the delay is over, a goroutine sees to
// the rest, and calls the first off if another wins.
func (m *Mux) hedge(ctx context.Context, o *operation) *racer {
	m.budgeted.earn(m.set.Hedge.Share)
	h := &hedging{m: m, ctx: ctx, o: o}
	h.c = &contest{m: m, finished: make(chan *racer, o.walk.left()+1)} // and one as a last resort
	first := h.admit(false)
	switch {
	case first == nil:
		return nil
	case first.permit.trial: // it is not called off
		h.run(first)
		return h.follow()
	}
	var own context.Context
	own, first.cancel = context.WithCancel(ctx)
	delay := m.hedgeDelay(first.b)
	decided := make(chan *racer, 1)
	var late *time.Timer
	if delay > 0 {
		late = time.AfterFunc(delay, func() {
			h.besides()
			decided <- h.follow()
		})
	}
	first.class = m.try(own, &first.o, first.b, first.permit)
	if late != nil && !late.Stop() {
		h.c.finish(first)
		return <-decided
	}
	h.running--
	if winner := h.heard(first); winner != nil {
		return winner
	}
	return h.follow()
}

// follow takes in what the racers bring, asks further ones, and gives the one that ends the read.
func (h *hedging) follow() *racer {
	defer h.arm(0)
	for h.running > 0 {
		select {
		case r := <-h.c.finished:
			h.running--
			if winner := h.heard(r); winner != nil {
				return winner
			}
		case <-h.ctx.Done():
			h.end(nil)
			return nil
		case <-h.due:
			h.besides()
		}
	}
	return nil
}

// besides asks another because the last takes its time.
func (h *hedging) besides() {
	last := h.field[len(h.field)-1]
	if h.no == nil && h.o.walk.fresh() > 0 && h.m.budgeted.take() && h.start(true) {
		last.b.stats.hedges.Add(1)
	}
}

// arm has another asked after the delay; 0: nobody.
func (h *hedging) arm(delay time.Duration) {
	if h.due != nil {
		h.timer.Stop()
		h.due = nil
	}
	if delay > 0 {
		h.timer = time.NewTimer(delay)
		h.due = h.timer.C
	}
}

// heard takes in what a racer brings, and gives the one that ends the read, if any does by now.
func (h *hedging) heard(r *racer) *racer {
	r.done = true
	switch {
	case !h.m.heard(h.o, r):
		h.m.drop(r)
	case r.class == ClassOK, InfoOf(r.o.answer.err) != nil:
		h.m.hedgeEnded(r)
		return h.end(r)
	case h.no == nil || slices.Index(h.field, r) < slices.Index(h.field, h.no):
		if h.no != nil {
			h.m.drop(h.no)
		}
		h.no = r
	default:
		h.m.drop(r)
	}
	if h.no != nil {
		if slices.ContainsFunc(h.field[:slices.Index(h.field, h.no)], func(before *racer) bool { return !before.done }) {
			return nil
		}
		h.o.answer = h.no.o.answer
		return h.end(h.no)
	}
	if last := h.field[len(h.field)-1]; r == last && h.o.walk.fresh() > 0 || h.running == 0 { // an earlier one has somebody besides it already
		h.start(r.extra && h.running > 0)
	}
	return nil
}

// end calls off all but the winner.
func (h *hedging) end(winner *racer) *racer {
	h.c.end(h.field, winner)
	if h.no != nil && h.no != winner {
		h.m.drop(h.no)
	}
	return winner
}

// start asks the next backend, besides those that are asked already if extra is set, and tells whether there was one.
func (h *hedging) start(extra bool) bool {
	r := h.admit(extra)
	if r != nil {
		h.run(r)
	}
	return r != nil
}

// admit is the part of the next backend, or nil.
func (h *hedging) admit(extra bool) *racer {
	b, p := h.m.nextReader(h.ctx, h.o)
	if b == nil {
		return nil
	}
	r := h.m.racer(h.o, b, p, h.running, h.o.walk.left())
	r.extra = extra
	h.field = append(h.field, r)
	h.running++
	return r
}

// run starts a racer, and the time after which another is asked besides.
func (h *hedging) run(r *racer) {
	h.m.goRace(h.ctx, h.c, r)
	h.arm(h.m.hedgeDelay(r.b))
}

// hedgeEnded counts a second read that was faster.
func (m *Mux) hedgeEnded(winner *racer) {
	if winner.extra && winner.class == ClassOK {
		winner.b.stats.hedgeWins.Add(1)
	}
}
