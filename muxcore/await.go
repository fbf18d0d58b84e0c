package muxcore

import (
	"slices"
	"time"
)

// trialPoll is how often a body looks whether a trial that somebody else has out has ended.
const trialPoll = 20 * time.Millisecond

// patience is until when a body that broke on a backend may wait for others that are down: for as long as the backend
// might have kept its reader waiting. A reader in the middle of a body cannot be told to come again, as one at the
// beginning is. Zero: not at all, since that time is over already (a stall), since a mux above has others to go on
// with, or since not enough has come since the last time: a body must get on.
func (r *body) patience(broken *backend, class Class) time.Time {
	if class == ClassTimeout || !r.patient || r.off-r.awaitedAt < headSize {
		return time.Time{}
	}
	return time.Now().Add(min(broken.Timeout, r.m.set.Timeout))
}

// await waits for a backend that was down when the body broke to come back or to be due for its trial. Cooldowns and single
// trials hold for it as for all.
func (r *body) await(until time.Time) (*backend, permit) {
	for !r.closed.Load() {
		b, wait := r.due()
		if b == nil || time.Now().Add(wait).After(until) {
			break
		}
		if wait == 0 {
			if p, ok := r.m.admit(b, OpGet, false); ok {
				r.awaitedAt = r.off
				return b, p
			}
			wait = trialPoll
		}
		if !pauseFor(r.ctx, wait) {
			break
		}
	}
	return nil, permit{}
}

// due is the backend that can be asked first, and how long that takes, but for those that could not go on from here.
func (r *body) due() (first *backend, wait time.Duration) {
	for _, b := range r.m.current().reads.members {
		if slices.Contains(r.brokeHere, b) || b.overrun() || b.drain.out() {
			continue
		}
		d := time.Duration(0)
		switch hv := b.reads.view(); {
		case hv.down && hv.trial:
			d = trialPoll
		case hv.down:
			d = max(0, hv.until.Sub(r.m.set.Now()))
		}
		if first == nil || d < wait {
			first, wait = b, d
		}
	}
	return first, wait
}
