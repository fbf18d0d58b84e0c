package journal

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// owner and other are journals in one directory, the second of which cannot have it.
func ownerAndOther(t *testing.T, settings Settings) (owner, other *Journal) {
	t.Helper()
	dir := newDir(t)
	owner, s := open(t, dir, settings)
	must(t, s.Settle("first", 0, object, []string{"a"}, []string{"c"}))
	other, _ = open(t, dir, settings)
	if err := other.Load(); !errors.Is(err, ErrLocked) {
		t.Fatalf("Load of a journal that another one has = %v", err)
	}
	return owner, other
}

func TestWithoutHandoverALockedJournalSaysSo(t *testing.T) {
	_, other := ownerAndOther(t, Settings{})
	s := other.Scope("")
	if _, err := s.Begin("k", object, []string{"a"}, []string{"b"}); !errors.Is(err, ErrLocked) {
		t.Errorf("Begin = %v", err)
	}
	if err := s.Settle("k", 0, object, []string{"a"}, []string{"b"}); !errors.Is(err, ErrLocked) {
		t.Errorf("Settle = %v", err)
	}
	refusal := errors.New("nobody listens")
	other.HandOver(func(Handed) (uint64, error) { return 0, refusal }, false)
	if _, err := s.Begin("k", object, []string{"a"}, nil); !errors.Is(err, ErrLocked) || !errors.Is(err, refusal) {
		t.Errorf("Begin, which is refused = %v", err)
	}
}

// What a journal hands over is on disk in the other's, as if it had been told there.
func TestWhatIsHandedOverIsRemembered(t *testing.T) {
	owner, other := ownerAndOther(t, Settings{})
	other.HandOver(owner.Take, false)
	here, there := other.Scope("eu"), owner.Scope("eu")

	seq, err := here.Begin("missed", object, []string{"a"}, []string{"b"})
	if m, _ := there.Lookup("missed"); err != nil || len(m.Open) != 1 || m.Open[0].Seq != seq || len(m.Left()) != 0 {
		t.Errorf("after Begin = %d, %v: %+v", seq, err, m)
	}
	must(t, here.Settle("missed", seq, object, []string{"a"}, []string{"b"}))
	want(t, there, "missed", Mark{Known: true, ETag: object.ETag, Lacks: []string{"b"}})

	seq, err = here.Begin("fine", object, []string{"a", "b"}, nil)
	if err != nil || seq != 0 {
		t.Errorf("Begin with nothing to remember = %d, %v", seq, err)
	}
	must(t, here.Settle("fine", seq, object, []string{"a", "b"}, nil))
	want(t, there, "fine", Mark{})

	// The mark that makes a write one to be remembered is the other's alone.
	must(t, there.Settle("deleted", 0, gone, []string{"a"}, []string{"b"}))
	seq, err = here.Begin("deleted", object, []string{"a", "b"}, nil)
	if err != nil || seq == 0 {
		t.Errorf("Begin over a mark of the other = %d, %v", seq, err)
	}
	must(t, here.Settle("deleted", seq, object, []string{"a", "b"}, nil))
	want(t, there, "deleted", Mark{})

	seq, _ = here.Begin("withdrawn", object, []string{"a"}, []string{"b"})
	here.Withdraw("withdrawn", seq)
	want(t, there, "withdrawn", Mark{})
	seq, _ = here.Begin("left", object, []string{"a"}, []string{"b"})
	here.Leave("left", seq)
	must(t, here.LeaveOpen("open", object, []string{"a"}, []string{"b"}))
	if got := there.Owed([]string{"a"}); !slices.Equal(got, []string{"left", "open"}) {
		t.Errorf("to be looked at: %v", got)
	}
	if _, err := owner.Take(Handed{Step: "sing", Key: "k"}); !errors.Is(err, ErrUnknownStep) {
		t.Errorf("an unknown step = %v", err)
	}
	_, there = reopened(t, owner)
	want(t, there, "missed", Mark{})
	if there = there.j.Scope("eu"); there.Count("b") != 3 {
		t.Errorf("%d marks after a restart, want 3", there.Count("b"))
	}
}

// Whoever has begun and is not heard of again is looked after; what it says all the same is not lost.
func TestAHandedWriteThatIsNotHeardOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		owner, other := ownerAndOther(t, Settings{})
		other.HandOver(owner.Take, false)
		here, there := other.Scope(""), owner.Scope("")
		seq, err := here.Begin("k", object, []string{"a"}, []string{"b"})
		must(t, err)
		time.Sleep(handedFor + time.Second)
		m, _ := there.Lookup("k")
		if len(m.Left()) != 1 {
			t.Errorf("the mark is %+v, want one to be looked after", m)
		}
		must(t, there.Discard("k", m.Seq)) // a look has found nothing
		must(t, here.Settle("k", seq, object, []string{"a"}, []string{"b"}))
		want(t, there, "k", Mark{Known: true, ETag: object.ETag, Lacks: []string{"b"}})

		seq, err = here.Begin("k", Write{ETag: `"2"`}, []string{"a"}, []string{"b"})
		must(t, err)
		m, _ = there.Lookup("k")
		must(t, there.Discard("k", m.Seq))
		must(t, here.Settle("k", seq, Write{ETag: `"2"`}, []string{"a"}, []string{"b"}))
		if m, _ = there.Lookup("k"); len(m.Left()) != 1 || m.Left()[0].ETag != `"2"` {
			t.Errorf("the mark is %+v, want the late write looked after", m)
		}
	})
}

// Once its owner is gone, the journal is this process's own, with all that was handed over.
func TestAJournalThatBecomesFreeIsTaken(t *testing.T) {
	owner, other := ownerAndOther(t, Settings{})
	other.HandOver(owner.Take, false)
	s := other.Scope("")
	seq, err := s.Begin("k", object, []string{"a"}, []string{"b"})
	must(t, err)
	must(t, owner.Close())
	other.HandOver(func(Handed) (uint64, error) { return 0, errClosed }, false)
	must(t, s.Settle("k", seq, object, []string{"a"}, []string{"b"}))
	seq, err = s.Begin("l", object, []string{"a"}, []string{"b"})
	must(t, err)
	must(t, s.Settle("l", seq, object, []string{"a"}, []string{"b"}))
	if got := s.Owed([]string{"b"}); !slices.Equal(got, []string{"k", "l"}) {
		t.Errorf("marks of %v, want k and l", got)
	}
}
