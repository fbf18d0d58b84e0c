package journal

import (
	"maps"
	"slices"
)

// Begin remembers that a write is about to be committed by the backends asks, while skips should have it and are not
// asked. [Scope.Settle], [Scope.Withdraw] or [Scope.Leave] must follow, with seq. On an error nothing is remembered, and
// nothing may be committed.
func (s *Scope) Begin(key string, w Write, asks, skips []string) (seq uint64, err error) {
	_ = s.j.Load() // so that what another process knows of the key is not overlooked; an error shows once there is a need
	if to := s.j.handover(); to != nil {
		return s.hand(to, Handed{Step: StepBegin, Key: key, Write: w, Asks: asks, Skips: skips})
	}
	if _, marked := s.Lookup(key); !marked && len(skips) == 0 {
		return 0, nil
	}
	return s.begin(key, Intent{Deleted: w.Deleted, ETag: w.ETag, Asks: asks, Skips: skips, running: true})
}

// LeaveOpen remembers a write without Begin of which nobody knows how it ended on those that were asked.
func (s *Scope) LeaveOpen(key string, w Write, asks, skips []string) error {
	if to := s.j.handover(); to != nil {
		_, err := s.hand(to, Handed{Step: StepLeaveOpen, Key: key, Write: w, Asks: asks, Skips: skips})
		return err
	}
	_, err := s.begin(key, Intent{Deleted: w.Deleted, ETag: w.ETag, Asks: asks, Skips: skips})
	return err
}

func (s *Scope) begin(key string, i Intent) (seq uint64, err error) {
	err = s.change(key, func(m Mark, had bool) (Mark, bool) {
		if !i.Deleted {
			i.Skips = slices.DeleteFunc(slices.Clone(i.Skips), s.covered)
		}
		if !had && len(i.Skips) == 0 && i.running {
			return m, false
		}
		seq = s.j.seq
		i.Seq = seq
		return m.begun(i), true
	})
	if err != nil {
		s.undo(key, seq)
		return 0, err
	}
	return seq, nil
}

// undo takes an open write out of memory.
func (s *Scope) undo(key string, seq uint64) {
	s.j.mu.Lock()
	defer s.j.mu.Unlock()
	if m, ok := s.marks[key]; ok && seq != 0 {
		if m = m.withdrawn(seq); m.empty() && !m.Known {
			m = Mark{}
		}
		s.set(key, m)
	}
}

// Settle says how a write ended: done have it, missed do not; backends in neither are left as they were. seq is that of
// Begin, or 0 if there was none. An error says that missed could not be remembered.
func (s *Scope) Settle(key string, seq uint64, w Write, done, missed []string) error {
	if to := s.j.handover(); to != nil {
		_, err := s.hand(to, Handed{Step: StepSettle, Key: key, Seq: seq, Write: w, Done: done, Missed: missed})
		if len(missed) == 0 {
			return nil // as below
		}
		return err
	}
	if _, marked := s.Lookup(key); !marked && len(missed) == 0 {
		return nil
	}
	err := s.change(key, func(m Mark, had bool) (Mark, bool) {
		planned := slices.ContainsFunc(m.Open, func(i Intent) bool { return i.Seq == seq && len(without(missed, i.Skips)) == 0 })
		switch own := slices.ContainsFunc(m.Open, func(i Intent) bool { return i.Seq == seq }); {
		case seq == 0:
			seq = s.j.seq
		case !own:
			return m, false // a later write has settled it
		}
		next := m.settled(seq, w, done, missed)
		next.Seq = s.j.seq
		if !w.Deleted {
			next.Lacks = slices.DeleteFunc(next.Lacks, s.covered)
			next = next.punctual(func(l Late) bool { return s.covered(l.Backend) })
		}
		if !had && next.empty() {
			return m, false
		}
		return next, !planned || next.empty()
	})
	if len(missed) == 0 {
		return nil // what is still on disk is looked after once more, and found done
	}
	return err
}

// Withdraw says that nobody has committed the write of Begin. What is on disk, if that cannot be changed, is looked after
// once more and found undone.
func (s *Scope) Withdraw(key string, seq uint64) {
	if to := s.j.handover(); to != nil {
		_, _ = s.hand(to, Handed{Step: StepWithdraw, Key: key, Seq: seq})
		return
	}
	_ = s.change(key, func(m Mark, _ bool) (Mark, bool) {
		next := m.withdrawn(seq)
		return next, next.empty()
	})
}

// Leave says that nobody knows how the write of Begin ended.
func (s *Scope) Leave(key string, seq uint64) {
	if to := s.j.handover(); to != nil {
		_, _ = s.hand(to, Handed{Step: StepLeave, Key: key, Seq: seq})
		return
	}
	s.leave(key, seq)
}

func (s *Scope) leave(key string, seq uint64) {
	s.j.mu.Lock()
	defer s.j.mu.Unlock()
	if m, ok := s.marks[key]; ok {
		s.set(key, m.left(seq))
	}
}

// Repaired says that a backend has the newest state of a key by now, if the mark is still the one of seq.
func (s *Scope) Repaired(key string, seq uint64, backend string) error {
	return s.since(key, seq, func(m Mark) Mark {
		m.Lacks = without(m.Lacks, []string{backend})
		return m
	})
}

// Resolve says what the newest state is, and who lacks it, after a look at those whose writes were left open, if the mark
// is still the one of seq.
func (s *Scope) Resolve(key string, seq uint64, w Write, lacks []string) error {
	return s.since(key, seq, func(m Mark) Mark { return m.resolved(w, lacks) })
}

// Discard says that nobody has committed the writes left open, if the mark is still the one of seq.
func (s *Scope) Discard(key string, seq uint64) error {
	return s.since(key, seq, Mark.discarded)
}

// GaveUp says that a backend may yet commit what it was last given of a key, w, if the mark is still the one of seq.
func (s *Scope) GaveUp(key string, seq uint64, w Write) error {
	return s.since(key, seq, func(m Mark) Mark {
		m.mayBeLate(w, w.Late)
		return m
	})
}

// CameLate says that a write was committed late, and that its backend lacks the newest state again, if the mark is still
// the one of seq.
func (s *Scope) CameLate(key string, seq uint64, late Late) error {
	return s.since(key, seq, func(m Mark) Mark {
		m.Lacks = with(m.Lacks, []string{late.Backend})
		return m.punctual(func(l Late) bool { return l == late })
	})
}

// Trusted says that a backend will commit nothing late any more, if the mark is still the one of seq.
func (s *Scope) Trusted(key string, seq uint64, backend string) error {
	return s.since(key, seq, func(m Mark) Mark {
		return m.punctual(func(l Late) bool { return l.Backend == backend })
	})
}

// since changes the mark of a key if it is still the one of seq.
func (s *Scope) since(key string, seq uint64, next func(Mark) Mark) error {
	return s.change(key, func(m Mark, had bool) (Mark, bool) {
		if !had || m.Seq != seq {
			return m, false
		}
		m = next(m)
		m.Seq = s.j.seq
		return m, true
	})
}

// change replaces the mark of a key by what next makes of it, and writes that down. next is called with s.j.mu held and a new
// number in s.j.seq, which a mark that it changes must take on. It tells whether the change must be durable before anything goes
// on. A mark without meaning stays in memory until the file has lost it as well: until then, writes of the key are remembered.
func (s *Scope) change(key string, next func(m Mark, had bool) (Mark, bool)) error {
	if err := s.j.acquire(); err != nil {
		return err
	}
	s.j.mu.Lock()
	was, had := s.marks[key]
	s.j.seq++
	m, sync := next(was, had)
	if len(m.Open) != len(was.Open) {
		m.Seq = s.j.seq
	}
	if m.Seq == was.Seq {
		s.j.mu.Unlock()
		return nil
	}
	if err := s.room(key, &was, &m); err != nil {
		s.j.mu.Unlock()
		return err
	}
	r := record{Scope: s.name, Key: key}
	if !m.empty() {
		r.Mark = &m
	}
	s.set(key, m)
	b := s.j.record(r, sync)
	s.j.mu.Unlock()
	err := s.j.flush(b)
	if err == nil && m.empty() {
		s.j.forget([]spent{{s, key, m.Seq}})
	}
	return err
}

// set replaces a mark in memory, by none if it is the zero one. It must be called with s.j.mu held.
func (s *Scope) set(key string, m Mark) {
	was, had := s.marks[key]
	s.count(key, &was, -1)
	s.count(key, &m, 1)
	if m.Seq == 0 {
		delete(s.marks, key)
	} else {
		s.marks[key] = m
	}
	if _, has := s.marks[key]; has != had {
		s.pending.Add(map[bool]int64{true: 1, false: -1}[has])
	}
	if len(without(m.owed(), was.owed())) > 0 || len(m.Late) > 0 {
		for c := range s.watchers {
			select {
			case c <- struct{}{}:
			default:
			}
		}
	}
}

// count takes a mark into the sums, or out of them.
func (s *Scope) count(key string, m *Mark, by int) {
	if m.Seq == 0 {
		return
	}
	s.j.bytes += int64(by) * m.size(key)
	if len(m.Late) > 0 {
		s.late += by
	}
	for _, name := range m.owed() {
		s.owed[name] += by
	}
	if m.Known && m.Deleted {
		for _, name := range m.Lacks {
			s.deletes[name] += by
		}
	}
}

// room keeps the journal within its bounds: what is to be deleted is refused beyond them; a backend that lacks too much else
// is to be compared in full, and its marks go. It must be called with s.j.mu held.
func (s *Scope) room(key string, was, m *Mark) error {
	full := s.j.bytes+m.size(key)-was.size(key) > s.j.set.MaxBytes
	if len(m.Late) > len(was.Late) && (full || s.late >= s.j.set.MaxMarks) {
		m.Late = was.Late // what is known to be missed needs the room
	}
	names := m.Lacks
	deletes := m.Known && m.Deleted
	if n := len(m.Open); n > len(was.Open) {
		names, deletes = m.Open[n-1].Skips, m.Open[n-1].Deleted
	}
	for _, name := range without(names, was.Lacks) {
		switch {
		case deletes && (full || s.deletes[name] >= s.j.set.MaxMarks):
			return s.j.wrap(ErrFull)
		case deletes:
		case full || s.owed[name]-s.deletes[name] >= s.j.set.MaxMarks:
			s.overflow(name)
			m.Lacks = without(m.Lacks, []string{name})
		}
	}
	return nil
}

// overflow gives up remembering what a backend should be given.
func (s *Scope) overflow(backend string) {
	doubtful := maps.Clone(s.doubtful)
	doubtful[backend] = false
	s.doubt(doubtful)
	for key, m := range s.marks {
		if m.Known && !m.Deleted && slices.Contains(m.Lacks, backend) {
			m.Lacks = without(m.Lacks, []string{backend})
			if m.empty() {
				m = Mark{}
			}
			s.set(key, m)
		}
	}
	s.j.batch.anew = true
}

// covered tells whether what a backend misses need not be remembered. It must be called with s.j.mu held.
func (s *Scope) covered(backend string) bool {
	recorded, one := s.doubtful[backend]
	if !one {
		recorded, one = s.doubtful[anyBackend]
	}
	return one && !recorded
}

// doubt replaces the backends in doubt. It must be called with s.j.mu held.
func (s *Scope) doubt(doubtful map[string]bool) {
	s.pending.Add(int64(len(doubtful) - len(s.doubtful)))
	s.doubtful = doubtful
}

// Compare says that a full comparison of all backends of the mux begins: from now on, what they miss is remembered again.
func (s *Scope) Compare(all []string) {
	s.j.mu.Lock()
	defer s.j.mu.Unlock()
	doubtful := make(map[string]bool)
	for _, name := range all {
		if s.inDoubt(name) {
			doubtful[name] = true
		}
	}
	s.doubt(doubtful)
}

// Compared says that backends were found to agree with the others, or made to, since [Scope.Compare]. One that has missed
// too much again meanwhile stays in doubt.
func (s *Scope) Compared(agree ...string) error {
	if err := s.j.acquire(); err != nil {
		return err
	}
	s.j.mu.Lock()
	doubtful := maps.Clone(s.doubtful)
	for _, name := range agree {
		if doubtful[name] {
			delete(doubtful, name)
		}
	}
	s.doubt(doubtful)
	b := s.j.record(record{Scope: s.name, Doubtful: slices.Sorted(maps.Keys(doubtful))}, true)
	s.j.mu.Unlock()
	return s.j.flush(b)
}

// adopt replaces everything by what the file says. It must be called with s.j.mu held, before there is anything.
func (s *Scope) adopt(from *scopeContent) {
	for key := range s.marks {
		s.set(key, Mark{})
	}
	doubtful := make(map[string]bool)
	for _, name := range from.doubtful {
		doubtful[name] = false
	}
	s.doubt(doubtful)
	for key, m := range from.marks {
		s.set(key, m)
	}
}
