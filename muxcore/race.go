package muxcore

import (
	"context"
	"sync"
	"time"
)

// raceGrace is how much longer those may take that others have beaten. Most are about to answer, and their connection is then free for the
// next read; one that is called off at once is lost, and dialling anew costs both sides more than an answer.
const raceGrace = 100 * time.Millisecond

// racer is one backend's part in a race.
type racer struct {
	o      operation
	b      *backend
	permit permit
	class  Class
	extra  bool // a hedge
	done   bool // and heard, where they are hedged
	cancel context.CancelFunc
	unbind func() bool // from the caller's context
	grace  *time.Timer // until it is called off; nil: it is not beaten
}

// contest collects the racers of one race. Once it is over, those who come in late clear up after themselves.
type contest struct {
	m        *Mux
	finished chan *racer // has room for all

	mu   sync.Mutex
	over bool
}

// race makes the operation's call on every backend that may be asked at the same time, ordinary ones first, and gives
// back the first that answers or ends the operation by a final no; the others are called off, which is nobody's fault.
// nil: nobody answered, and o holds what was heard.
func (m *Mux) race(ctx context.Context, o *operation) *racer {
	for field := m.field(o); len(field) > 0; field = m.field(o) {
		if winner := m.run(ctx, o, field); winner != nil {
			return winner
		}
	}
	return nil
}

// field admits all ready backends, or after them all backups, or at last those that lack what is asked for.
func (m *Mux) field(o *operation) []*racer {
	var field []*racer
	for phase := 0; len(field) == 0 && phase < phases; {
		phase = o.walk.phase()
		o.walk.only = phase % phases
		for b, p := o.walk.next(nil); b != nil; b, p = o.walk.next(nil) {
			field = append(field, m.racer(o, b, p, len(field), 0))
		}
	}
	o.walk.only = 0
	for _, r := range field {
		r.o.others = min(1, o.walk.left())
	}
	return field
}

// racer is b's part in the operation. Side by side, nobody has to leave the deadline to others but those who come later.
func (m *Mux) racer(o *operation, b *backend, p permit, index, others int) *racer {
	side := walk{m: m, p: &pool{}}
	return &racer{b: b, permit: p, o: operation{call: o.call, view: o.view, walk: side, deadline: o.deadline, index: o.attempts + index, others: others}}
}

// goRace starts a racer.
func (m *Mux) goRace(ctx context.Context, c *contest, r *racer) {
	own := r.own(ctx)
	r.b.holds.n.Add(1) // it may outlive the operation, and then the mux
	go func() {
		r.class = m.try(own, &r.o, r.b, r.permit)
		c.finish(r)
		_ = r.b.letGo()
	}()
}

// own is the racer's own context, on its own goroutine. It ends with the caller's: that of one with a connection to lose only until it is
// beaten, and that of a trial not at all, as one that is slower than others is well as well.
func (r *racer) own(ctx context.Context) (own context.Context) {
	if !r.permit.trial && r.b.waits != WaitsWithContext {
		own, r.cancel = context.WithCancel(ctx)
		return own
	}
	own, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	if !r.permit.trial {
		r.unbind = context.AfterFunc(ctx, r.cancel)
	}
	return own
}

// beaten calls off a racer that somebody was faster than: at once if the caller waits for it, or if nothing is lost with it.
func (r *racer) beaten() {
	switch {
	case r.permit.trial:
	case r.unbind == nil:
		r.cancel()
	case r.unbind():
		r.grace = time.AfterFunc(raceGrace, r.cancel)
	}
}

// stop ends the racer's context.
func (r *racer) stop() {
	if r.unbind != nil {
		r.unbind()
	}
	if r.grace != nil {
		r.grace.Stop()
	}
	r.cancel()
}

// heard takes in what a racer brings, and tells whether that ends the operation.
func (m *Mux) heard(o *operation, r *racer) bool {
	o.attempts += r.o.attempts
	o.tried++
	o.answer = r.o.answer
	return r.class == ClassOK || !m.goesOn(o, r.b, r.class)
}

// run lets the field race.
func (m *Mux) run(ctx context.Context, o *operation, field []*racer) *racer {
	c := &contest{m: m, finished: make(chan *racer, len(field))}
	for _, r := range field {
		m.goRace(ctx, c, r)
	}
	for range field {
		select {
		case r := <-c.finished:
			if m.heard(o, r) {
				c.end(field, r)
				return r
			}
			m.drop(r)
		case <-ctx.Done():
			c.end(field, nil)
			return nil
		}
	}
	return nil
}

// finish brings a racer in.
func (c *contest) finish(r *racer) {
	c.mu.Lock()
	over := c.over
	if !over {
		c.finished <- r
	}
	c.mu.Unlock()
	if over {
		c.m.drop(r)
	}
}

// end calls off everybody but the winner; nil if there is none, as the caller has gone.
func (c *contest) end(field []*racer, winner *racer) {
	c.mu.Lock()
	c.over = true
	for _, r := range field {
		if winner != nil && r != winner {
			r.beaten()
		}
	}
	c.mu.Unlock()
	for len(c.finished) > 0 {
		c.m.drop(<-c.finished)
	}
	if winner != nil && winner.class != ClassOK {
		c.m.drop(winner)
	}
}

// drop ends a racer's part.
func (m *Mux) drop(r *racer) {
	r.o.answer.dispose()
	r.stop()
	m.release(r.b)
}

// raceGet is Get where several backends are asked at a time.
func (m *Mux) raceGet(ctx context.Context, o *operation, race func(context.Context, *operation) *racer) (*Object, error) {
	r := race(ctx, o)
	switch {
	case r == nil:
		return nil, m.exhausted(ctx, o)
	case r.class != ClassOK:
		return nil, m.final(ctx, o, r.b, r.class)
	}
	if r.permit.trial { // it has proved what it was for: from now on it ends with the caller as any other
		r.unbind = context.AfterFunc(ctx, r.cancel)
	}
	return m.opened(ctx, o, r.b, r.stop), nil
}

// raceStat is Stat where several backends are asked at a time.
func (m *Mux) raceStat(ctx context.Context, o *operation, race func(context.Context, *operation) *racer) (Info, error) {
	r := race(ctx, o)
	switch {
	case r == nil:
		return Info{}, m.exhausted(ctx, o)
	case r.class != ClassOK:
		return Info{}, m.final(ctx, o, r.b, r.class)
	}
	info := o.answer.info
	m.found(o, r.b)
	m.drop(r)
	info.Via = Via{Backend: r.b.dotted(info.Via.Backend), Attempts: o.attempts}
	return info, nil
}
