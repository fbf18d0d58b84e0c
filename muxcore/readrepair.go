package muxcore

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	readRepairQueue = 1024                  // keys that may wait
	readRepairKnown = 4096                  // keys that wait, or failed lately
	readRepairPause = 50 * time.Millisecond // from one key to the next, at least
	readRepairAgain = time.Minute           // until a key that failed is taken up again
)

// readRepair copies what a read found late to the backends that were asked before and do not have it: one key at a time,
// in the background, at a bounded rate. It is for what got lost, not for what is old: nothing is overwritten.
type readRepair struct {
	m    *Mux
	jobs chan readJob

	cancel context.CancelFunc
	done   sync.WaitGroup

	mu    sync.Mutex
	known map[string]time.Time // keys that wait (zero), or are not taken up before then
}

// newReadRepair begins to work; [readRepair.stop] ends it.
func newReadRepair(m *Mux) *readRepair {
	r := &readRepair{m: m, jobs: make(chan readJob, readRepairQueue), known: make(map[string]time.Time)}
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	r.done.Go(func() { r.run(ctx) })
	return r
}

// readJob is a key that some backends lack and one has.
type readJob struct {
	key  string
	from *backend
	to   []*backend
}

// lacks notes that b does not have the key of a read that goes on elsewhere.
func (o *operation) lacks(m *Mux, b *backend) {
	if m.readRepair != nil {
		o.lacking = append(o.lacking, b)
	}
}

// found has a read's answer copied to those that lack it. What the origin of a shield lacks, nobody needs, and what the
// journal holds to be out of date, nobody should get.
func (m *Mux) found(o *operation, from *backend) {
	if len(o.lacking) == 0 || slices.Contains(o.stale, from) || m.mode.origin && slices.Contains(o.lacking, o.view.all[0]) {
		return
	}
	if m.set.ReadRepairIf != nil && !m.set.ReadRepairIf() {
		return
	}
	var to []*backend
	for _, b := range o.lacking {
		if b.writable() && (&seat{m: m, b: b}).wants(o.call.key) && CheckKeyOf(b.Store, o.call.key) == nil {
			to = append(to, b)
		}
	}
	if len(to) > 0 {
		m.readRepair.take(readJob{o.call.key, from, to})
	}
}

// take queues a job, unless its key waits already, has failed lately, or there is no room: a later read will ask again.
func (r *readRepair) take(job readJob) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.m.set.Now()
	if until, ok := r.known[job.key]; ok && (until.IsZero() || now.Before(until)) {
		return
	}
	if len(r.known) >= readRepairKnown {
		maps.DeleteFunc(r.known, func(_ string, until time.Time) bool { return !until.IsZero() && !now.Before(until) })
	}
	if len(r.known) >= readRepairKnown {
		return
	}
	select {
	case r.jobs <- job:
		r.known[job.key] = time.Time{}
	default:
	}
}

// run works until ctx ends.
func (r *readRepair) run(ctx context.Context) {
	for {
		select {
		case job := <-r.jobs:
			r.finish(job.key, r.repair(ctx, job))
		case <-ctx.Done():
			return
		}
		if !pauseFor(ctx, readRepairPause) {
			return
		}
	}
}

// finish forgets a key, or remembers that it has failed.
func (r *readRepair) finish(key string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		delete(r.known, key)
	} else {
		r.known[key] = r.m.set.Now().Add(readRepairAgain)
	}
}

// repair copies one key. That things have changed meanwhile is no error.
func (r *readRepair) repair(ctx context.Context, job readJob) error {
	var errs []error
	for _, b := range job.to {
		err := r.copy(ctx, job.key, &seat{m: r.m, b: job.from}, &seat{m: r.m, b: b})
		if err != nil && !errors.Is(err, errChanged) && !errors.Is(err, ErrPreconditionFailed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// copy gives one backend what it lacks, if it still does and the key was not deleted meanwhile.
func (r *readRepair) copy(ctx context.Context, key string, from, to *seat) error {
	lacks := holding{seat: to, known: true}
	still := func(ctx context.Context, copied *Info) error {
		if r.m.tombstoned(key) {
			return errChanged
		}
		return errors.Join(unchanged(ctx, key, from, copied, false), unchanged(ctx, key, to, nil, false))
	}
	if err := unchanged(ctx, key, to, nil, false); err != nil {
		return err // before the body is fetched
	}
	rules := copyRules{intact: true, target: lacks.guard(), still: still, stored: func() { r.m.madeGood(key, to.b) }}
	if _, err := copyObject(ctx, key, from, to, rules); err != nil {
		return err
	}
	r.m.emit(Event{Kind: EventRepaired, Op: OpPut, Key: key, Name: to.b.Name, From: from.b.Name, Cause: CauseRead})
	return nil
}

// stop ends the work and waits for what is under way, which is done whole or not at all.
func (r *readRepair) stop() {
	r.cancel()
	r.done.Wait()
}
