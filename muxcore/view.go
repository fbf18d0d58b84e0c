package muxcore

import (
	"slices"
	"time"
)

// view is what operations see of a mux: who there is and who may be asked, all decided once for many. It is immutable;
// whatever changes one of its facts replaces it (see [Mux.refresh]).
type view struct {
	all      []*backend // in config order, draining ones included
	reads    pool
	writes   pool
	cutoff   time.Time  // the facts hold until then: a cooldown ends; zero: for good
	writers  []*backend // in service, writable, whatever their weight
	away     []*backend // writable, but draining or drained: they miss what is written
	canWrite bool       // some backend is writable, in service or not
}

// pool is who may be asked for one kind of operation.
type pool struct {
	members []*backend // in service, first the ordinary ones, then backups: whoever could answer if well
	ready   []*backend // of them, ordinary ones that are up or due for a trial
	backups []*backend // likewise, of the backups
	stale   []*backend // likewise, of those that lack what is asked for: asked when nobody else could answer
	alias   *aliasTable
}

// current is the view as it stands. It reads no clock unless a backend is down.
func (m *Mux) current() *view {
	v := m.snapshot.Load()
	if !v.cutoff.IsZero() && !m.set.Now().Before(v.cutoff) {
		return m.refresh()
	}
	return v
}

// refresh replaces the view by one of the facts as they are now.
func (m *Mux) refresh() *view {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.refreshLocked()
}

// refreshLocked must be called with m.mu held.
func (m *Mux) refreshLocked() *view {
	now := m.set.Now()
	v := &view{all: append([]*backend(nil), m.backends...)}
	for _, b := range v.all {
		v.canWrite = v.canWrite || b.writable()
		if b.drain.out() {
			if b.writable() {
				v.away = append(v.away, b)
			}
			continue
		}
		if b.weight.Load() > 0 {
			v.reads.add(b, &b.reads, now, &v.cutoff)
		}
		if b.writable() {
			v.writers = append(v.writers, b)
			if b.weight.Load() > 0 {
				v.writes.add(b, &b.writes, now, &v.cutoff)
			}
		}
	}
	for _, p := range []*pool{&v.reads, &v.writes} {
		p.members = backupsLast(p.members)
		if m.set.Mode == Weighted && len(p.ready) > 0 {
			p.alias = newAliasTable(p.ready)
		}
	}
	m.snapshot.Store(v)
	return v
}

func (p *pool) add(b *backend, h *health, now time.Time, cutoff *time.Time) {
	p.members = append(p.members, b)
	if hv := h.view(); hv.down && (hv.trial || now.Before(hv.until)) {
		if now.Before(hv.until) && (cutoff.IsZero() || hv.until.Before(*cutoff)) {
			*cutoff = hv.until
		}
		return
	}
	if b.Backup {
		p.backups = append(p.backups, b)
	} else {
		p.ready = append(p.ready, b)
	}
}

func backupsLast(members []*backend) []*backend {
	var first, last []*backend
	for _, b := range members {
		if b.Backup {
			last = append(last, b)
		} else {
			first = append(first, b)
		}
	}
	return append(first, last...)
}

// due is the backend whose cooldown ends first, and when; nil if all are up or have a trial out.
func (p *pool) due(op Op) (first *backend, at time.Time) {
	for _, b := range p.members {
		hv := b.health(op).view()
		if hv.down && !hv.trial && (first == nil || hv.until.Before(at)) {
			first, at = b, hv.until
		}
	}
	return first, at
}

// walk hands out the backends of a pool in the order of the mode, each once, as their health admits.
type walk struct {
	m       *Mux
	p       *pool
	op      Op
	key     string
	i       int   // of the ready ones, handed out
	j       int   // of the backups
	k       int   // of the stale ones
	only    int   // the phase that ends the walk; 0: all
	first   int   // index of the first, by mode
	rest    []int // order after the first, where the mode has one of its own
	inOrder bool  // config order instead of the mode's
	forced  bool  // the last resort was handed out
	ran     bool  // anyone was handed out
}

// next is the next backend to ask, with its permit, or nil. Those in skip are left out.
func (w *walk) next(skip []*backend) (*backend, permit) {
	for {
		b := w.candidate()
		if b == nil && w.only != 0 {
			return nil, permit{}
		}
		if b == nil {
			return w.lastResort()
		}
		if slices.Contains(skip, b) {
			continue
		}
		if p, ok := w.m.admit(b, w.op, false); ok {
			w.ran = true
			return b, p
		}
	}
}

func (w *walk) candidate() *backend {
	ready := w.p.ready
	if w.only != 0 && w.phase() != w.only {
		return nil
	}
	switch {
	case w.i == 0 && len(ready) > 0:
		w.first = 0
		if len(ready) > 1 && !w.inOrder {
			w.first = w.m.mode.first(w.m, w.p, w.key)
		}
		w.i = 1
		return ready[w.first]
	case w.i < len(ready):
		if w.i == 1 && w.m.mode.rest != nil && !w.inOrder {
			w.rest = w.m.mode.rest(w.m, w.p, w.key, w.first)
		}
		w.i++
		if w.rest != nil {
			return ready[w.rest[w.i-2]]
		}
		return ready[(w.first+w.i-1)%len(ready)]
	case w.j < len(w.p.backups):
		w.j++
		return w.p.backups[w.j-1]
	case w.k < len(w.p.stale):
		w.k++
		return w.p.stale[w.k-1]
	}
	return nil
}

// phases of a walk, the last of which is its end.
const phases = 4

// phase is whose turn it is: 1 of the ready ones, 2 of the backups, 3 of the stale ones, 4 nobody's any more.
func (w *walk) phase() int {
	switch {
	case w.i < len(w.p.ready):
		return 1
	case w.j < len(w.p.backups):
		return 2
	case w.k < len(w.p.stale):
		return 3
	}
	return phases
}

// lastResort is the backend that is due back first, if nobody else could be asked and the settings say so.
func (w *walk) lastResort() (*backend, permit) {
	if w.ran || w.forced || !w.m.set.LastResort {
		return nil, permit{}
	}
	w.forced = true
	if b, _ := w.p.due(w.op); b != nil {
		if p, ok := w.m.admit(b, w.op, true); ok {
			return b, p
		}
	}
	return nil, permit{}
}

// left is how many more backends the walk may hand out, an upper bound.
func (w *walk) left() int { return w.fresh() + len(w.p.stale) - w.k }

// fresh is how many of them have what is asked for, as far as is known.
func (w *walk) fresh() int { return len(w.p.ready) - w.i + len(w.p.backups) - w.j }

// admit takes a permit of b for op and counts the call as in flight; [Mux.release] must follow.
func (m *Mux) admit(b *backend, op Op, force bool) (permit, bool) {
	if b.overrun() || !b.drain.enter() {
		return permit{}, false
	}
	h := b.health(op)
	p, ok := h.enter()
	if !ok {
		var changed bool
		p, ok, changed = h.acquire(m.set.Now(), force)
		if changed {
			m.refresh()
		}
	}
	if !ok {
		b.drain.leave()
	}
	return p, ok
}
