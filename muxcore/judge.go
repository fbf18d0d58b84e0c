package muxcore

import "slices"

// row is what the backends of a tree hold at one key, by seat.
type row struct {
	key string
	at  []holding
}

// verdict is what a row should be.
type verdict struct {
	decided bool        // false: those whose word counts could not be asked, or what they hold is rotten
	source  *holding    // what everybody should hold; nil: nothing
	states  []CopyState // by seat
}

// suspect tells whether the bytes of a copy have to be read before the row can be judged.
func (r *row) suspect() bool {
	return slices.ContainsFunc(r.at, func(h holding) bool { return h.known && h.held && h.suspect() })
}

// differs tells whether anything is wrong.
func (v *verdict) differs() bool { return slices.ContainsFunc(v.states, CopyState.Differs) }

// judge decides what a row should be. truth is the limb whose word counts; the top of the tree means that of its mode:
// the origin in shield, else the newest copy. A copy whose bytes are not those of its own record never wins, unless somebody
// has altered it who may: at the origin of a shield, or where the truth was named. If the truth is not to be had, the row
// stays undecided, or with anyway is judged by the newest copy that there is.
func judge(r *row, truth *limb, anyway bool) verdict {
	var v verdict
	v.source, v.decided = truth.word(r)
	if v.decided && v.source != nil && v.source.altered {
		v.decided = truth.decides()
	}
	if !v.decided {
		v.source = standIn(r, truth)
		if v.source == nil && anyway {
			v.source = newest(r)
		}
		v.decided = v.source != nil
	}
	if v.source != nil {
		v.source = better(r, v.source)
	}
	v.states = make([]CopyState, len(r.at))
	for i := range r.at {
		v.states[i] = state(r, &r.at[i], &v)
	}
	return v
}

// word is what the limb holds by its own rule: nil and true if nothing, nil and false if nobody knows.
func (l *limb) word(r *row) (*holding, bool) {
	if l.seat != nil {
		h := &r.at[l.seat.index]
		switch {
		case !h.known || h.held && h.corrupt:
			return nil, false
		case !h.held:
			return nil, true
		}
		return h, true
	}
	if d := l.decider(); d != l {
		return d.word(r)
	}
	var best *holding
	decided := true
	for _, part := range l.parts {
		h, ok := part.word(r)
		decided = decided && ok
		if h != nil && (best == nil || newer(h, best)) {
			best = h
		}
	}
	return best, decided || best != nil && !best.altered
}

// decides tells whether the limb's word counts whatever has become of its copies: it was named, or is one backend.
func (l *limb) decides() bool { return l.name != "" || l.decider().seat != nil }

// decider is the limb whose word is that of l: the origin of a shield decides alone.
func (l *limb) decider() *limb {
	for l.seat == nil && l.m.mode.origin {
		l = l.parts[0]
	}
	return l
}

// standIn takes the place of a truth whose bytes are rotten: a copy of the same version elsewhere, else the newest. For what
// was altered nothing does that the journal knows to be out of date: of that version, these are the only bytes there are.
func standIn(r *row, truth *limb) *holding {
	var rotten, best *holding
	altered := false
	for i := range r.at {
		h := &r.at[i]
		if !h.known || !h.held || !h.corrupt && (!h.altered || truth.decides()) || !truth.decider().has(h.seat) {
			continue
		}
		altered = altered || h.altered
		if rotten == nil || newer(h, rotten) {
			rotten = h
		}
	}
	if rotten == nil {
		return nil
	}
	for i := range r.at {
		h := &r.at[i]
		if !h.good() || altered && h.stale {
			continue
		}
		alike := sameRecord(rotten, h)
		switch {
		case best == nil, alike && !sameRecord(rotten, best):
			best = h
		case alike == sameRecord(rotten, best) && newer(h, best):
			best = h
		}
	}
	return best
}

// newest is the copy that was modified last.
func newest(r *row) (best *holding) {
	for i := range r.at {
		if h := &r.at[i]; h.good() && (best == nil || newer(h, best)) {
			best = h
		}
	}
	return best
}

// sameRecord tells whether two copies are of one version by what is recorded of them, whatever their bytes are now.
func sameRecord(one, other *holding) bool {
	a, b := one.recorded(), other.recorded()
	if a.Digests.contradict(&b.Digests) {
		return false
	}
	sameDigest := a.Digests.SHA256 != nil && b.Digests.SHA256 != nil
	return sameDigest || a.ETagStored && b.ETagStored && a.ETag == b.ETag
}

// better is the copy to go by among those that are the same as h as far as anybody can tell: one with an identity of ours
// says more than one without, and the newest of them is the likeliest to be the same indeed.
func better(r *row, h *holding) *holding {
	if h.altered || h.identity().ETagStored {
		return h
	}
	var best *holding
	for i := range r.at {
		other := &r.at[i]
		if other.good() && other.identity().ETagStored && compare(h, other) == CopySame && (best == nil || newer(other, best)) {
			best = other
		}
	}
	if best == nil {
		return h
	}
	return best
}

// state of one copy.
func state(r *row, h *holding, v *verdict) CopyState {
	switch {
	case !h.known:
		return CopyUnknown
	case h.held && v.decided && v.source == nil:
		return CopyExtra
	case h.held && h.corrupt:
		return CopyCorrupt
	case h.altered && h != v.source:
		return CopyAltered
	case !v.decided:
		return CopyUnknown
	case v.source == nil:
		return CopyAbsent
	case h.held:
		return compare(v.source, h)
	case h.seat.wants(r.key):
		return CopyMissing
	}
	return CopyAbsent
}
