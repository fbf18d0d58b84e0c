package journal

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// handedFor is how long the process that has the journal waits to hear how a write of another one ended. Only commits lie
// between, not the upload.
const handedFor = 10 * time.Minute

// Step is what is to be done with what another process hands over.
type Step string

// The steps, named by the methods of [Scope] that they are.
const (
	StepBegin     Step = "begin"
	StepSettle    Step = "settle"
	StepWithdraw  Step = "withdraw"
	StepLeave     Step = "leave"
	StepLeaveOpen Step = "leave_open"
)

// Handed is one call of a [Scope] on its way to the process that has the journal.
type Handed struct {
	Step   Step     `json:"step"`
	Scope  string   `json:"scope,omitempty"`
	Key    string   `json:"key"`
	Seq    uint64   `json:"seq,omitempty"`
	Write  Write    `json:"write,omitzero"`
	Asks   []string `json:"asks,omitempty"`
	Skips  []string `json:"skips,omitempty"`
	Done   []string `json:"done,omitempty"`
	Missed []string `json:"missed,omitempty"`
}

// Backends are all that are named.
func (h *Handed) Backends() []string {
	return slices.Concat(h.Asks, h.Skips, h.Done, h.Missed, h.Write.Late)
}

// Handover brings h to the process that has the journal, where [Journal.Take] is called with it, and gives its answer: once
// that is on disk.
type Handover func(h Handed) (seq uint64, err error)

// HandOver has the journal hand over, for as long as another process has it, what it would else refuse with [ErrLocked]. Every
// write is told to that process then, for only it knows whether there is something to remember of its key. always says that
// another process uses the tree, which is to be told even if it has not yet had a reason to take the journal.
func (j *Journal) HandOver(to Handover, always bool) {
	j.to.Store(&to)
	j.always.Store(always)
}

// handover is whom to tell in place of writing to the file; nil: nobody. A journal that has become free is taken.
func (j *Journal) handover() Handover {
	to := j.to.Load()
	switch {
	case to == nil:
		return nil
	case !j.always.Load() && (!j.foreign.Load() || !errors.Is(j.Load(), ErrLocked)):
		return nil
	}
	return *to
}

// hand hands over h.
func (s *Scope) hand(to Handover, h Handed) (uint64, error) {
	h.Scope = s.name
	seq, err := to(h)
	if err != nil {
		return 0, s.j.wrap(fmt.Errorf("%w, and did not take it: %w", ErrLocked, err))
	}
	return seq, nil
}

// ErrUnknownStep is the error of [Journal.Take] for a step that is none.
var ErrUnknownStep = errors.New("unknown step")

// Take does what another process hands over, and returns when it is on disk. What was begun, and is not heard of for ten minutes,
// is looked after like a write whose process was killed.
func (j *Journal) Take(h Handed) (seq uint64, err error) {
	s := j.Scope(h.Scope)
	switch h.Step {
	case StepBegin:
		return s.takeBegin(h)
	case StepSettle:
		return 0, s.takeSettle(h)
	case StepWithdraw:
		j.hear(h.Seq)
		s.Withdraw(h.Key, h.Seq)
	case StepLeave:
		j.hear(h.Seq)
		s.leave(h.Key, h.Seq)
	case StepLeaveOpen:
		_, err = s.begin(h.Key, Intent{Deleted: h.Write.Deleted, ETag: h.Write.ETag, Asks: h.Asks, Skips: h.Skips})
	default:
		err = fmt.Errorf("%w %q", ErrUnknownStep, h.Step)
	}
	return 0, err
}

func (s *Scope) takeBegin(h Handed) (seq uint64, err error) {
	if _, marked := s.Lookup(h.Key); !marked && len(h.Skips) == 0 {
		return 0, nil
	}
	seq, err = s.begin(h.Key, Intent{Deleted: h.Write.Deleted, ETag: h.Write.ETag, Asks: h.Asks, Skips: h.Skips, running: true})
	if err != nil || seq == 0 {
		return seq, err
	}
	s.j.mu.Lock()
	defer s.j.mu.Unlock()
	s.j.handed[seq] = time.AfterFunc(handedFor, func() {
		s.j.hear(seq)
		s.leave(h.Key, seq)
	})
	return seq, nil
}

// takeSettle is Settle of a write that may have begun before this process has. One that nothing is known of by now, as it
// was looked after meanwhile and had not been committed yet, is looked after once more.
func (s *Scope) takeSettle(h Handed) error {
	s.j.hear(h.Seq)
	m, marked := s.Lookup(h.Key)
	switch open := slices.ContainsFunc(m.Open, func(i Intent) bool { return i.Seq == h.Seq }); {
	case h.Seq == 0, open, h.Write.Deleted && marked:
		return s.Settle(h.Key, h.Seq, h.Write, h.Done, h.Missed)
	case !m.told():
		return s.Settle(h.Key, 0, h.Write, h.Done, h.Missed)
	}
	_, err := s.begin(h.Key, Intent{ETag: h.Write.ETag, Asks: with(h.Done, h.Missed)})
	return err
}

// hear ends the wait for the end of a write.
func (j *Journal) hear(seq uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if t := j.handed[seq]; t != nil {
		t.Stop()
		delete(j.handed, seq)
	}
}

// forgetHanded ends all of these waits.
func (j *Journal) forgetHanded() {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, t := range j.handed {
		t.Stop()
	}
	clear(j.handed)
}
