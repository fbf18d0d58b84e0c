package muxcore

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore/journal"
)

const (
	replayWorkers = 4 // keys worked on at the same time
	replayDelay   = time.Second
	replayMost    = time.Minute // the longest a key is left alone after it could not be repaired
)

// replays bring to backends what they missed, on a goroutine of their own.
type replays struct {
	cancel context.CancelFunc
	done   sync.WaitGroup
	nudge  chan struct{}
}

// startReplay reads what the journal holds from before, and begins to look after it.
func (m *Mux) startReplay() {
	if m.journal == nil {
		return
	}
	m.replays.nudge = make(chan struct{}, 1)
	r := &replayer{m: m, tries: make(map[string]try), backlog: make(map[*backend]*backlog)}
	r.load()
	ctx, cancel := context.WithCancel(context.Background())
	m.replays.cancel = cancel
	m.replays.done.Go(func() { r.loop(ctx) })
}

func (m *Mux) stopReplay() {
	if m.replays.cancel != nil {
		m.replays.cancel()
		m.replays.done.Wait()
	}
}

// nudgeReplay says that a backend may be back.
func (m *Mux) nudgeReplay() {
	if m.replays.nudge == nil {
		return
	}
	select {
	case m.replays.nudge <- struct{}{}:
	default:
	}
}

// replayer is the work on what is pending. Its maps belong to the loop.
type replayer struct {
	m       *Mux
	foreign bool // the journal is another process's, which looks after it
	failed  bool // it could not be read
	backlog map[*backend]*backlog

	vigils map[suspect]*vigil // over what may come late

	mu    sync.Mutex
	tries map[string]try // keys that could not be repaired
}

// try is when a key may be tried again.
type try struct {
	n     int
	until time.Time
}

// backlog is what a backend's observers were told.
type backlog struct {
	since  time.Time
	failed bool
}

// load reads the journal, if it is not read yet.
func (r *replayer) load() {
	err := r.m.journal.Load()
	r.foreign = errors.Is(err, journal.ErrLocked)
	if failed := err != nil && !r.foreign; failed != r.failed {
		if r.failed = failed; failed {
			r.m.emit(Event{Kind: EventJournalFailed, Err: err})
		}
	}
}

// loop works whenever there is something to do, until ctx ends.
func (r *replayer) loop(ctx context.Context) {
	more, stop := r.m.journal.Watch()
	defer stop()
	for ctx.Err() == nil {
		if r.foreign || r.failed {
			r.load()
		}
		wait := replayDelay
		if !r.foreign && !r.failed {
			wait = r.round(ctx)
		}
		if wait == 0 {
			wait = never
		}
		timer := time.NewTimer(wait)
		select {
		case <-more:
		case <-r.m.replays.nudge:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// round works on what can be done now, and says when there may be more; 0: when somebody says so.
func (r *replayer) round(ctx context.Context) time.Duration {
	var jobs []func()
	for _, key := range r.due() {
		jobs = append(jobs, func() { r.key(ctx, key) })
	}
	for _, s := range r.watchLate() {
		v := r.vigils[s]
		jobs = append(jobs, func() { r.look(ctx, s, v) })
	}
	work := make(chan func())
	var workers sync.WaitGroup
	for range min(replayWorkers, len(jobs)) {
		workers.Go(func() {
			for job := range work {
				job()
			}
		})
	}
	for _, job := range jobs {
		if ctx.Err() != nil {
			break
		}
		work <- job
	}
	close(work)
	workers.Wait()
	r.report()
	return r.next()
}

// able are the backends that can be written to now.
func (r *replayer) able() (names []string) {
	now := r.m.set.Now()
	for _, b := range r.m.snapshot.Load().all {
		if b.writable() && !b.drain.out() && b.writes.eligible(now) {
			names = append(names, b.Name)
		}
	}
	return names
}

// due are the keys on which work can be done now.
func (r *replayer) due() []string {
	if !r.m.pending() {
		return nil
	}
	able := r.able()
	for _, b := range r.m.snapshot.Load().all {
		n := r.m.journal.Count(b.Name)
		if n == 0 || r.backlog[b] != nil || !slices.Contains(able, b.Name) {
			continue
		}
		r.backlog[b] = &backlog{since: r.m.set.Now()}
		r.m.emit(Event{Kind: EventRepairStarted, Name: b.Name, Pending: n})
	}
	now := r.m.set.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(r.m.journal.Owed(able), func(key string) bool { return now.Before(r.tries[key].until) })
}

// next is the time until a key may be tried again, or a backend asked.
func (r *replayer) next() time.Duration {
	var at time.Time
	sooner := func(t time.Time) {
		if at.IsZero() || t.Before(at) {
			at = t
		}
	}
	now := r.m.set.Now()
	for _, b := range r.m.snapshot.Load().all {
		if v := b.writes.view(); v.down && !b.drain.out() && b.writable() && r.m.journal.Count(b.Name) > 0 {
			sooner(v.until)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, t := range r.tries {
		if _, ok := r.m.journal.Lookup(key); !ok {
			delete(r.tries, key)
			continue
		}
		if now.Before(t.until) {
			sooner(t.until)
		}
	}
	for _, v := range r.vigils {
		sooner(v.at)
	}
	if len(r.backlog) > 0 {
		sooner(now.Add(replayMost)) // writes may have brought it, too
	}
	if at.IsZero() {
		return 0
	}
	jitter := 1 + r.m.set.Float64()/5
	return time.Duration(float64(max(at.Sub(now), replayDelay/10)) * jitter)
}

// report tells of backends that lack nothing any more.
func (r *replayer) report() {
	for b, told := range r.backlog {
		if r.m.journal.Count(b.Name) == 0 {
			delete(r.backlog, b)
			b.stats.unrepaired.Store(nil)
			r.m.emit(Event{Kind: EventRepairCompleted, Name: b.Name, Took: r.m.set.Now().Sub(told.since)})
		}
	}
}

// key repairs one key on all backends that can be asked. What could not be done is tried later.
func (r *replayer) key(ctx context.Context, key string) {
	err := r.m.resolveOpen(ctx, key)
	for _, name := range r.m.lackers(key) {
		b := r.m.memberOf(name)
		if b == nil || !b.writable() || b.drain.out() || !b.writes.eligible(r.m.set.Now()) {
			continue
		}
		one := r.m.bring(ctx, key, b)
		if one != nil && ctx.Err() == nil {
			r.tellFailed(b, one)
			if b.writes.eligible(r.m.set.Now()) { // else it has a cooldown, after which the key need not wait besides
				err = one
			}
		}
	}
	if ctx.Err() != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		delete(r.tries, key)
		return
	}
	t := r.tries[key]
	delay := min(replayDelay<<min(t.n, 10), replayMost)
	jitter := 0.5 + r.m.set.Float64()/2
	r.tries[key] = try{t.n + 1, r.m.set.Now().Add(time.Duration(float64(delay) * jitter))}
}

// tellFailed tells of the first failure on a backend; the last one shows in its stats.
func (r *replayer) tellFailed(b *backend, err error) {
	why := err.Error()
	b.stats.unrepaired.Store(&why)
	r.mu.Lock()
	told := r.backlog[b]
	first := told != nil && !told.failed
	if first {
		told.failed = true
	}
	r.mu.Unlock()
	if first {
		r.m.emit(Event{Kind: EventRepairFailed, Name: b.Name, Err: err, Code: CodeOf(err), Pending: r.m.journal.Count(b.Name)})
	}
}

// lackers are the backends that lack the newest state of a key.
func (m *Mux) lackers(key string) []string {
	mark, _ := m.journal.Lookup(key)
	if !mark.Known {
		return nil
	}
	return mark.Lacks
}

func (m *Mux) memberOf(name string) *backend {
	for _, b := range m.snapshot.Load().all {
		if b.Name == name {
			return b
		}
	}
	return nil
}

// bring gives b the newest state of a key.
func (m *Mux) bring(ctx context.Context, key string, b *backend) error {
	mark, ok := m.journal.Lookup(key)
	if !ok || !mark.Known || !slices.Contains(mark.Lacks, b.Name) {
		return nil
	}
	switch {
	case len(mark.Open) > 0:
		return errChanged // a write is under way
	case mark.Deleted:
		return m.bringDelete(ctx, key, b)
	}
	from, err := m.sourceOf(ctx, key, &mark)
	if err != nil {
		return err
	}
	if from == nil { // removed behind our back: there is nothing to bring
		return m.journal.Resolve(key, mark.Seq, journal.Write{ETag: mark.ETag}, nil)
	}
	origin := m.mode.origin && from.seat.b == m.snapshot.Load().all[0] // what is altered there is a newer version
	rules := copyRules{source: &from.info, intact: !origin, still: func(context.Context, *Info) error { return m.unmoved(key, mark.Seq) }}
	rules.late = func() { m.gaveUp(key, &mark, b) }
	rules.stored = func() { err = m.journal.Repaired(key, mark.Seq, b.Name) }
	_, copyErr := m.copyTo(ctx, key, from.seat.b, b, rules)
	if copyErr == nil && err == nil {
		m.emit(Event{Kind: EventRepaired, Op: OpPut, Key: key, Name: b.Name, From: from.seat.b.Name, Cause: CauseMissed})
	}
	return errors.Join(copyErr, err)
}

// unmoved is errChanged if the mark of a key is not that of seq any more.
func (m *Mux) unmoved(key string, seq uint64) error {
	if mark, ok := m.journal.Lookup(key); !ok || mark.Seq != seq {
		return errChanged
	}
	return nil
}

// bringDelete deletes what b should not hold any more, in the key's turn.
func (m *Mux) bringDelete(ctx context.Context, key string, b *backend) error {
	unlock, err := m.commits.lock(ctx, key)
	if err != nil {
		return err
	}
	defer unlock()
	mark, ok := m.journal.Lookup(key)
	if !ok || !mark.Known || !mark.Deleted || len(mark.Open) > 0 {
		return errChanged
	}
	if err := (&seat{m: m, b: b}).remove(ctx, key, Conditions{}, false); err != nil && !isMiss(err) && b.canHold(key) {
		if Classify(ctx, err).leavesOpen() {
			m.gaveUp(key, &mark, b)
		}
		return err
	}
	if err := m.journal.Repaired(key, mark.Seq, b.Name); err != nil {
		return err
	}
	m.emit(Event{Kind: EventRepaired, Op: OpDelete, Key: key, Name: b.Name, Cause: CauseMissed})
	return nil
}

var errNoSource = errors.New("no backend is left that has it")

// sourceOf finds who holds what a mark says is newest: whoever has its identity, else the newest copy of those that do
// not lack it. nil: all were asked, and nobody has any.
func (m *Mux) sourceOf(ctx context.Context, key string, mark *journal.Mark) (*holding, error) {
	var best *holding
	unasked := errNoSource // until somebody has answered
	for _, b := range m.snapshot.Load().all {
		if mark.LackedBy(b.Name) {
			continue
		}
		h := &holding{seat: &seat{m: m, b: b}}
		var err error
		h.info, err = h.seat.stat(ctx, key, false)
		h.altered = h.info.Record != nil // or may be: others are the better source
		if errors.Is(unasked, errNoSource) && (err == nil || isMiss(err)) {
			unasked = nil
		}
		switch {
		case isMiss(err):
		case err != nil:
			unasked = err
		case mark.ETag != "" && h.info.ETagStored && h.info.ETag == mark.ETag:
			return h, nil
		case best == nil || newer(h, best):
			best = h
		}
	}
	switch {
	case best != nil && (unasked == nil || m.mode.fanout):
		return best, nil
	case unasked != nil:
		return nil, unasked
	}
	return best, nil
}
