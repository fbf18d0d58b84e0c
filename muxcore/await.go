package muxcore

import (
	"slices"
	"time"
)

const (
	// trialPoll is how often a body looks whether a trial that somebody else has out has ended.
	trialPoll = 20 * time.Millisecond
	// mostAsked is how often a backend is asked to go on from one offset. With the default cooldown, one that is being
	// restarted has three seconds to come back, and a reader is not kept longer by copies that are gone for good.
	mostAsked = 3
)

// breaks is what a body remembers of its breaks.
type breaks struct {
	at         int64      // where the last one was
	asked      []*backend // who broke there, or was asked to go on from there and did not
	spent      []*backend // of those: who need not be asked there again
	awaitedAt  int64      // where others were waited for last
	awaitUntil time.Time  // how long that might have taken; zero: it was not done yet
}

// here records that b broke at off.
func (k *breaks) here(off int64, b *backend) {
	if off != k.at {
		k.at, k.asked, k.spent = off, nil, nil
	}
	k.failed(b, true)
}

// failed records that b does not go on from here, and whether it need not be asked again.
func (k *breaks) failed(b *backend, spent bool) {
	k.asked = append(k.asked, b)
	if spent {
		k.spent = append(k.spent, b)
	}
}

// times is how often b was asked to go on from here.
func (k *breaks) times(b *backend) (n int) {
	for _, a := range k.asked {
		if a == b {
			n++
		}
	}
	return n
}

// patience is until when a body that broke on a backend may wait for others that are down: for as long as the backend
// might have kept its reader waiting. A reader in the middle of a body cannot be told to come again, as one at the
// beginning is. A body must get on: until a little has come since the last wait, what is left of the time for that one is
// all there is. Zero: not at all, since a mux above has others to go on with.
func (r *body) patience(broken *backend) time.Time {
	switch {
	case !r.patient:
		return time.Time{}
	case !r.breaks.awaitUntil.IsZero() && r.off-r.breaks.awaitedAt < headSize:
		return r.breaks.awaitUntil
	}
	return time.Now().Add(min(broken.Timeout, r.m.set.Timeout))
}

// await waits for a backend that was down when the body broke to come back or to be due for its trial. Cooldowns and single
// trials hold for it as for all.
func (r *body) await(until time.Time) (*backend, permit) {
	for !r.closed.Load() {
		b, wait := r.due()
		if b == nil || time.Now().Add(wait).After(until) || !pauseFor(r.ctx, wait) {
			break
		}
		if p, ok := r.m.admit(b, OpGet, false); ok {
			r.breaks.awaitedAt, r.breaks.awaitUntil = r.off, until
			return b, p
		}
		if wait == 0 && !pauseFor(r.ctx, trialPoll) {
			break
		}
	}
	return nil, permit{}
}

// due is the backend that can be asked first, and how long that takes, but for those that need not be asked from here.
func (r *body) due() (first *backend, wait time.Duration) {
	for _, b := range r.m.current().reads.members {
		asked := r.breaks.times(b)
		if asked == mostAsked || slices.Contains(r.breaks.spent, b) || b.overrun() || b.drain.out() {
			continue
		}
		d := time.Duration(0)
		switch hv := b.reads.view(); {
		case hv.down && hv.trial:
			d = trialPoll
		case hv.down:
			d = max(0, hv.until.Sub(r.m.set.Now()))
		}
		if asked > 0 {
			d = max(d, trialPoll) // it has just failed here, whatever its health says
		}
		if first == nil || d < wait {
			first, wait = b, d
		}
	}
	return first, wait
}
