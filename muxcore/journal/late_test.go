package journal

import (
	"fmt"
	"slices"
	"testing"
)

// What a backend may commit late is remembered besides what it lacks, for as long as somebody wants to look.
func TestWhatMayComeLateIsRemembered(t *testing.T) {
	j, s := open(t, newDir(t), Settings{})
	one, two := Late{Backend: "b", ETag: `"one"`}, Late{Backend: "b", Deleted: true}
	late := object
	late.Late = []string{"b"}
	must(t, s.Settle("k", 0, late, []string{"a"}, []string{"b"}))
	m := want(t, s, "k", Mark{Known: true, ETag: `"one"`, Lacks: []string{"b"}, Late: []Late{one}})
	must(t, s.Repaired("k", m.Seq, "b"))
	want(t, s, "k", Mark{Known: true, ETag: `"one"`, Late: []Late{one}})
	if s.Count("b") != 0 || !slices.Equal(s.Late(), []string{"k"}) || !s.Pending() {
		t.Errorf("b is owed %d, late are %q", s.Count("b"), s.Late())
	}
	seq, err := s.Begin("k", gone, []string{"a", "b"}, nil) // whoever writes meanwhile says so
	must(t, err)
	late = gone
	late.Late = []string{"b"}
	must(t, s.Settle("k", seq, late, []string{"a"}, []string{"b"}))
	j, s = reopened(t, j)
	m = want(t, s, "k", Mark{Known: true, Deleted: true, Lacks: []string{"b"}, Late: []Late{one, two}})
	must(t, s.Repaired("k", m.Seq, "b"))
	must(t, s.CameLate("k", m.Seq, one)) // of a mark that is another one by now
	m = want(t, s, "k", Mark{Known: true, Deleted: true, Late: []Late{one, two}})
	must(t, s.CameLate("k", m.Seq, one))
	m = want(t, s, "k", Mark{Known: true, Deleted: true, Lacks: []string{"b"}, Late: []Late{two}})
	must(t, s.GaveUp("k", m.Seq, Write{Deleted: true, Late: []string{"b"}}))
	m = want(t, s, "k", Mark{Known: true, Deleted: true, Lacks: []string{"b"}, Late: []Late{two}})
	must(t, s.Repaired("k", m.Seq, "b"))
	m = want(t, s, "k", Mark{Known: true, Deleted: true, Late: []Late{two}})
	must(t, s.Trusted("k", m.Seq, "b"))
	if j, s = reopened(t, j); s.Pending() || s.Late() != nil {
		t.Errorf("still late: %q", s.Late())
	}

	// Nobody knows how it ended: those that do not have it may commit it yet.
	seq, err = s.Begin("l", object, []string{"a", "b"}, []string{"c"})
	must(t, err)
	s.Leave("l", seq)
	m, _ = s.Lookup("l")
	must(t, s.Resolve("l", m.Seq, object, []string{"b", "c"}))
	want(t, s, "l", Mark{Known: true, ETag: `"one"`, Lacks: []string{"b", "c"}, Late: []Late{one}})
	seq, err = s.Begin("n", object, []string{"b"}, []string{"c"})
	must(t, err)
	s.Leave("n", seq)
	m, _ = s.Lookup("n")
	must(t, s.Discard("n", m.Seq))
	want(t, s, "n", Mark{Late: []Late{one}})
	must(t, j.Close())
}

// It takes no room from what is known to be missed.
func TestWhatMayComeLateIsBounded(t *testing.T) {
	_, s := open(t, newDir(t), Settings{MaxMarks: 3})
	for i := range 10 {
		w := Write{ETag: fmt.Sprint(i), Late: []string{"b"}}
		must(t, s.Settle("many", 0, w, []string{"a"}, []string{"b"}))
	}
	for i := range 2 * maxLate {
		must(t, s.Settle("one", 0, Write{ETag: fmt.Sprint(i), Late: []string{"b"}}, []string{"a"}, []string{"b"}))
	}
	m, _ := s.Lookup("one")
	if len(m.Late) != maxLate || m.Late[maxLate-1].ETag != fmt.Sprint(2*maxLate-1) {
		t.Errorf("late are %v, want the last %d", m.Late, maxLate)
	}
	for i := range 10 {
		w := Write{ETag: "x", Late: []string{"b"}}
		must(t, s.Settle(fmt.Sprint("k", i), 0, w, []string{"a"}, []string{"c"}))
	}
	if n := len(s.Late()); n != 3 {
		t.Errorf("%d keys may be late, want 3", n)
	}
	if !s.Doubtful("c") || s.Doubtful("b") {
		t.Error("c lacks more than is remembered, and b does not")
	}
}
