package journal

import "slices"

// Write is what a write makes of a key.
type Write struct {
	Deleted bool   `json:"deleted,omitempty"`
	ETag    string `json:"etag,omitempty"` // of the object that was put, "" unknown

	// Late are backends that may commit it yet, although nobody waits for them any more.
	Late []string `json:"late,omitempty"`
}

// Mark is what is known of a key of which not every backend has the newest state. It is a copy; nobody may change what its
// slices hold.
type Mark struct {
	// Seq grows with every change of the mark.
	Seq uint64 `json:"q"`

	// Known says that Deleted and ETag describe the newest state, and Lacks the backends that do not have it. It is
	// false while all that is known are writes in Open.
	Known   bool     `json:"w,omitempty"`
	Deleted bool     `json:"d,omitempty"`
	ETag    string   `json:"e,omitempty"`
	Lacks   []string `json:"l,omitempty"`

	// Open are writes that have begun and of which nobody has said how they ended, oldest first.
	Open []Intent `json:"i,omitempty"`

	// Late are writes that may yet be committed over the newest state, although nobody waits for them any more, oldest
	// first. Those that were given up last are kept.
	Late []Late `json:"t,omitempty"`
}

// maxLate is how many writes that may come late are remembered of a key.
const maxLate = 16

// Late is a write that was given up without a word from a backend that had all of it.
type Late struct {
	Backend string `json:"b"`
	Deleted bool   `json:"d,omitempty"`
	ETag    string `json:"e,omitempty"`
}

// Intent is a write that has begun.
type Intent struct {
	Seq     uint64   `json:"q"`
	Deleted bool     `json:"d,omitempty"`
	ETag    string   `json:"e,omitempty"`
	Asks    []string `json:"a,omitempty"` // backends that it goes to
	Skips   []string `json:"s,omitempty"` // backends that should have it and are not asked

	running bool // by a write of this process
}

// LackedBy tells whether backend is known not to have the newest state, or will not have it once what is open is done.
func (m *Mark) LackedBy(backend string) bool {
	if m.Known && slices.Contains(m.Lacks, backend) {
		return true
	}
	return slices.ContainsFunc(m.Open, func(i Intent) bool { return slices.Contains(i.Skips, backend) })
}

// Left are the open writes that nobody is at work on any more: how they ended must be found out.
func (m *Mark) Left() []Intent {
	var left []Intent
	for _, i := range m.Open {
		if !i.running {
			left = append(left, i)
		}
	}
	return left
}

// owed lists the backends that the mark is about: those that lack the newest state, and those that must be looked at.
func (m *Mark) owed() []string {
	all := slices.Clone(m.Lacks)
	for _, i := range m.Open {
		if !i.running {
			all = with(with(all, i.Asks), i.Skips)
		}
	}
	return all
}

// told tells whether the mark is about who has the newest state, and not only about what may come late.
func (m *Mark) told() bool { return m.Known || len(m.Open) > 0 }

// empty tells whether there is nothing left to remember.
func (m *Mark) empty() bool { return len(m.Lacks) == 0 && len(m.Open) == 0 && len(m.Late) == 0 }

// mayBeLate adds writes that backends may commit yet.
func (m *Mark) mayBeLate(w Write, backends []string) {
	for _, name := range backends {
		one := Late{Backend: name, Deleted: w.Deleted, ETag: w.ETag}
		if !slices.Contains(m.Late, one) {
			m.Late = append(slices.Clip(m.Late), one)
		}
	}
	m.Late = m.Late[max(0, len(m.Late)-maxLate):]
}

// givenUp adds an open write of which nobody will hear any more, but from those in have.
func (m *Mark) givenUp(i *Intent, have []string) {
	m.mayBeLate(Write{Deleted: i.Deleted, ETag: i.ETag}, without(i.Asks, have))
}

// size is what the mark costs, roughly.
func (m *Mark) size(key string) int64 {
	if m.Seq == 0 {
		return 0
	}
	n := len(key) + len(m.ETag)
	for i := range m.Open {
		n += len(m.Open[i].ETag)
	}
	for _, l := range m.Late {
		n += len(l.Backend) + len(l.ETag)
	}
	return int64(n)
}

// begun is the mark with one more open write.
func (m Mark) begun(i Intent) Mark {
	m.Seq, m.Open = i.Seq, append(slices.Clip(m.Open), i)
	return m
}

// settled is the mark after a write of which it is known who has it: what was said before is out of date, and whoever was
// asked by a write whose end nobody knows may hold something else.
func (m Mark) settled(seq uint64, w Write, done, missed []string) Mark {
	lacks, next := with(m.Lacks, missed), Mark{Seq: seq, Known: true, Deleted: w.Deleted, ETag: w.ETag, Late: m.Late}
	for _, i := range m.Open {
		switch {
		case i.Seq > seq:
			next.Open = append(next.Open, i)
		case i.Seq < seq:
			lacks = with(with(lacks, i.Asks), i.Skips)
			next.givenUp(&i, nil)
		}
	}
	next = next.punctual(func(l Late) bool {
		return l.Deleted == w.Deleted && l.ETag == w.ETag && slices.Contains(done, l.Backend)
	})
	next.mayBeLate(w, w.Late)
	next.Lacks = without(lacks, done)
	return next
}

// resolved is the mark after a look at those whose writes were left open: who lacks the newest state, and who may commit yet
// what he was asked for and does not have.
func (m Mark) resolved(w Write, lacks []string) Mark {
	next := Mark{Known: true, Deleted: w.Deleted, ETag: w.ETag, Lacks: with(nil, lacks), Late: m.Late}
	for _, i := range m.Open {
		var have []string
		if i.Deleted == w.Deleted && i.ETag == w.ETag {
			have = without(i.Asks, lacks)
		}
		next.givenUp(&i, have)
	}
	return next
}

// discarded is the mark after nobody was found to have committed what was left open.
func (m Mark) discarded() Mark {
	for _, i := range m.Open {
		m.givenUp(&i, nil)
	}
	m.Open = nil
	return m
}

// punctual is the mark without a write that might have come late, or without all of a backend.
func (m Mark) punctual(is func(Late) bool) Mark {
	m.Late = slices.DeleteFunc(slices.Clone(m.Late), is)
	return m
}

// withdrawn is the mark without one open write.
func (m Mark) withdrawn(seq uint64) Mark {
	m.Open = slices.DeleteFunc(slices.Clone(m.Open), func(i Intent) bool { return i.Seq == seq })
	return m
}

// left is the mark after nobody is at work any more on one open write.
func (m Mark) left(seq uint64) Mark {
	m.Open = slices.Clone(m.Open)
	for i := range m.Open {
		if m.Open[i].Seq == seq {
			m.Open[i].running = false
		}
	}
	return m
}

// with is the sorted union.
func with(set, more []string) []string {
	all := append(slices.Clone(set), more...)
	slices.Sort(all)
	return slices.Compact(all)
}

// without is the difference.
func without(set, less []string) []string {
	return slices.DeleteFunc(slices.Clone(set), func(name string) bool { return slices.Contains(less, name) })
}
