package breaker

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// opened returns n breakers that opened one after the other, a second apart.
func opened(t *testing.T, n int) []*Breaker {
	t.Helper()
	all := make([]*Breaker, n)
	for i := range all {
		all[i] = newBreaker(t, Settings{FailureThreshold: 1})
		fail(t, all[i])
		pass(time.Second)
	}
	return all
}

func wantStates(t *testing.T, when string, all []*Breaker, want ...State) {
	t.Helper()
	for i, b := range all {
		if got := b.State(); got != want[i] {
			t.Errorf("%s: member %d is %v, want %v", when, i, got, want[i])
		}
	}
}

func TestAGroupClosesTheMembersDueBackFirstWhereTooFewAreClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := opened(t, 3)
		NewGroup(2, nil).Set(all...)
		wantStates(t, "joined while all are open", all, Closed, Closed, Open)
		if s := all[0].Snapshot(); !strings.Contains(s.Reason, "in rotation again") {
			t.Errorf("the reason shown is %q", s.Reason)
		}
		fail(t, all[0])
		wantStates(t, "after a failure of the last but one", all, Closed, Closed, Open)
		pass(30 * time.Second)
		wantStates(t, "after the open time", all, Closed, Closed, HalfOpen)
	})
}

func TestAHalfOpenMemberComesBackBeforeAnOpenOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := opened(t, 2)
		pass(28 * time.Second)
		wantStates(t, "before", all, HalfOpen, Open)
		NewGroup(1, nil).Set(all[1], all[0])
		wantStates(t, "joined", all, Closed, Open)
	})
}

func TestAGroupFillsUpWhenItsLastClosedMemberLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGroup(1, nil)
		all := []*Breaker{newBreaker(t, Settings{FailureThreshold: 1}), newBreaker(t, Settings{FailureThreshold: 1})}
		g.Set(all...)
		fail(t, all[1])
		wantStates(t, "after one trip", all, Closed, Open)
		g.Set(all[1])
		wantStates(t, "alone", all, Closed, Closed)
		fail(t, all[0])
		wantStates(t, "the one that left is free to trip", all, Open, Closed)
		g.Set()
		fail(t, all[1])
		wantStates(t, "of no group", all, Open, Open)
	})
}

func TestAGroupFillsUpForAMemberThatIsForcedOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := []*Breaker{newBreaker(t, Settings{FailureThreshold: 1}), newBreaker(t, Settings{FailureThreshold: 1})}
		NewGroup(1, nil).Set(all...)
		fail(t, all[1])
		all[0].ForceOpen(0)
		wantStates(t, "the closed one is forced open", all, Open, Closed)
		all[1].ForceOpen(0)
		wantStates(t, "both are forced open", all, Open, Open)
		all[0].Auto()
		wantStates(t, "one is taken back", all, Closed, Open)
	})
}

func TestAGroupFillsUpWhenAForcedStateIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []string
		all := []*Breaker{newBreaker(t, Settings{FailureThreshold: 1}), newBreaker(t, Settings{FailureThreshold: 1})}
		all[1].Subscribe(func(c Change) { seen = append(seen, c.From.String()+">"+c.To.String()) })
		NewGroup(1, nil).Set(all...)
		fail(t, all[1])
		all[1].ForceClosed(10 * time.Second)
		pass(time.Second)
		fail(t, all[0])
		wantStates(t, "while forced closed", all, Open, Closed)
		pass(9 * time.Second)
		wantStates(t, "after", all, Open, Closed)
		if got := strings.Join(seen, " "); got != "CLOSED>OPEN OPEN>CLOSED CLOSED>OPEN OPEN>CLOSED" {
			t.Errorf("subscriber saw %q", got)
		}
	})
}

// The policy asks several paths for one call: only the last no is a rejection.
func TestTryAllowCountsNoRejection(t *testing.T) {
	b := newBreaker(t, Settings{FailureThreshold: 1})
	if p, err := b.TryAllow(); err != nil {
		t.Errorf("TryAllow while closed = %v", err)
	} else {
		p.Failure("down")
	}
	if _, err := b.TryAllow(); err == nil {
		t.Error("admitted while open")
	}
	if n := b.Rejected(); n != 0 {
		t.Errorf("%d rejections, want 0", n)
	}
}

// What others than the breaker take out of rotation keeps nothing in it.
func TestAMemberThatIsAwayCountsForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newBreaker(t, Settings{FailureThreshold: 1}), newBreaker(t, Settings{FailureThreshold: 1})
		away := map[*Breaker]bool{b: true}
		g := NewGroup(1, func(b *Breaker) bool { return !away[b] })
		g.Set(a, b)
		fail(t, a)
		wantStates(t, "a failure of the only one that is there", []*Breaker{a, b}, Closed, Closed)
		away[b] = false
		fail(t, a)
		wantStates(t, "a failure with the other one back", []*Breaker{a, b}, Open, Closed)
		away[b] = true
		g.Refresh()
		wantStates(t, "the other one away again", []*Breaker{a, b}, Closed, Closed)
		away[a] = true
		fail(t, a)
		wantStates(t, "a failure with nobody there", []*Breaker{a, b}, Closed, Closed)
		away[a], away[b] = false, false
		fail(t, a)
		away[a] = true
		g.Refresh()
		wantStates(t, "the open one is away", []*Breaker{a, b}, Open, Closed)
		fail(t, b)
		wantStates(t, "a failure of the only one that is there", []*Breaker{a, b}, Open, Closed)
	})
}
