package muxcore

import (
	"context"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore/journal"
)

// A backend that had all of a write, and did not answer in time, may commit it when nobody waits for it any more: after it was
// brought the newest state. So the journal goes on remembering what may come late, and the backend is looked at some more
// times. What has come up meanwhile is a miss like any other, and is repaired like one.

const (
	lateLooks = 4                // how often a backend is looked at after the first time, at growing intervals
	lateAfter = 30 * time.Second // the first of them, or the backend's timeout where that is longer
)

// suspect is a backend that may commit something late at a key.
type suspect struct{ key, backend string }

// vigil is how far the looks at a suspect are.
type vigil struct {
	seq   uint64 // of the mark; with another one it begins anew
	looks int
	at    time.Time // of the next
	held  *Info     // what the backend held at the first, once it had the newest state; nil: nothing
}

// watchLate takes in what may come late by the journal, and gives what is to be looked at now.
func (r *replayer) watchLate() (due []suspect) {
	known := make(map[suspect]*vigil)
	now := r.m.set.Now()
	for _, key := range r.m.journal.Late() {
		mark, _ := r.m.journal.Lookup(key)
		for _, l := range mark.Late {
			s := suspect{key, l.Backend}
			if known[s] != nil {
				continue
			}
			known[s] = r.vigils[s]
			if known[s] == nil || known[s].seq != mark.Seq {
				known[s] = &vigil{seq: mark.Seq}
			}
			if !now.Before(known[s].at) {
				due = append(due, s)
			}
		}
	}
	r.vigils = known
	return due
}

// look looks at a suspect once. As long as something else is to be done at the key, or the backend cannot be asked, it is
// put off: what counts is what comes after the newest state was brought.
func (r *replayer) look(ctx context.Context, s suspect, v *vigil) {
	b := r.m.memberOf(s.backend)
	first := lateAfter
	if b != nil && b.Timeout < never {
		first = max(first, b.Timeout)
	}
	v.at = r.m.set.Now().Add(first)
	mark, ok := r.m.journal.Lookup(s.key) // a write under way would change it, and what is said of this one is void then
	switch {
	case !ok:
		return
	case b == nil || !b.writable():
		_ = r.m.journal.Trusted(s.key, mark.Seq, s.backend)
		return
	case b.drain.out(), !b.writes.eligible(r.m.set.Now()), len(mark.Open) > 0, mark.LackedBy(s.backend):
		return
	}
	h := &holding{seat: &seat{m: r.m, b: b}, known: true}
	var err error
	h.info, err = h.seat.stat(ctx, s.key, false)
	if h.held = err == nil; err != nil && !isMiss(err) {
		return
	}
	came, err := r.came(ctx, &mark, h, v)
	switch {
	case err != nil:
		return
	case came != nil:
		_ = r.m.cameLate(&mark, s.key, *came) // or at the next look
		return
	case v.looks == 0:
		v.held = h.version()
	}
	if v.looks++; v.looks > lateLooks {
		_ = r.m.journal.Trusted(s.key, mark.Seq, s.backend) // what cannot be written down is looked at again after a restart
		return
	}
	v.at = r.m.set.Now().Add(first << (v.looks - 1))
}

// came finds out which of the writes that may come late h shows; nil: none.
func (r *replayer) came(ctx context.Context, mark *journal.Mark, h *holding, v *vigil) (*journal.Late, error) {
	var maybe *journal.Late
	for i := range mark.Late {
		l := &mark.Late[i]
		switch newest := mark.Known && l.Deleted == mark.Deleted && l.ETag == mark.ETag; {
		case l.Backend != h.seat.b.Name || newest && (l.Deleted || l.ETag != ""):
		case l.Deleted && !h.held && (mark.Known || v.looks > 0 && v.held != nil):
			return l, nil
		case !l.Deleted && h.held && h.info.ETagStored && h.info.ETag == l.ETag:
			return l, nil
		case !l.Deleted && h.held && maybe == nil:
			maybe = l
		}
	}
	if maybe == nil || h.seat.b.abilities().Metadata { // one that keeps identities would show that of the write
		return nil, nil
	}
	switch {
	case v.looks > 0:
		if v.held != nil && sameVersion(v.held, &h.info) {
			return nil, nil
		}
	case mark.Known && mark.Deleted:
	case mark.Known:
		should, err := r.m.sourceOf(ctx, h.info.Key, mark)
		if err != nil || should == nil || !compare(should, h).Differs() {
			return nil, err
		}
	default:
		return nil, nil
	}
	return maybe, nil
}

// cameLate has the journal know of a write that came late: its backend lacks the newest state again. Where nobody has said
// what that is, as the write was thought to have come to nothing, it is the newest itself, and those lack it that should have it.
func (m *Mux) cameLate(mark *journal.Mark, key string, late journal.Late) error {
	if mark.Known && (mark.Deleted || mark.ETag != "") {
		return m.journal.CameLate(key, mark.Seq, late)
	}
	var lacks []string
	for _, b := range m.snapshot.Load().all {
		if b.Name != late.Backend && b.writable() && (m.mode.fanout || late.Deleted) {
			lacks = append(lacks, b.Name)
		}
	}
	return m.journal.Resolve(key, mark.Seq, journal.Write{Deleted: late.Deleted, ETag: late.ETag}, lacks)
}

// gaveUp has the journal know that b may yet commit what it was to be brought.
func (m *Mux) gaveUp(key string, mark *journal.Mark, b *backend) {
	_ = m.journal.GaveUp(key, mark.Seq, journal.Write{Deleted: mark.Deleted, ETag: mark.ETag, Late: []string{b.Name}}) // it has failed in any case
}
