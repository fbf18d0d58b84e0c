package breaker

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestForcedStatesHoldUntilTakenBackOrTheirTimeIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, Settings{FailureThreshold: 1, SuccessThreshold: 1})
		b.ForceOpen(0)
		pass(time.Hour)
		if _, err := b.Allow(); !errors.Is(err, ErrPathOpen) {
			t.Fatalf("Allow while forced open = %v, want CB.PATH_OPEN", err)
		}
		b.Auto()
		fail(t, b)
		b.ForceClosed(time.Minute)
		for range 10 {
			fail(t, b)
		}
		if got := b.State(); got != Closed {
			t.Fatalf("state while forced closed = %v, want CLOSED", got)
		}
		pass(10 * time.Second)
		b.Auto()
		if got := b.State(); got != Open {
			t.Fatalf("state taken back within the open time = %v, want OPEN as before", got)
		}
		b.ForceOpen(time.Minute)
		pass(time.Minute)
		if s := b.Snapshot(); s.State != HalfOpen || s.NextTrialAt != nil {
			t.Errorf("after the time of the forced state: %v (%s), want HALF_OPEN by the clock", s.State, s.Reason)
		}
		b.Reset()
		if s := b.Snapshot(); s.State != Closed || s.OpenedTotal != 2 || s.Reason != "reset" {
			t.Errorf("after reset: %v, opened %d, %q; want CLOSED, 2, reset", s.State, s.OpenedTotal, s.Reason)
		}
	})
}

// envoy#26877: the check ran before the ejection, so all could go.
func TestAGroupNeverLosesItsLastClosedPaths(t *testing.T) {
	for _, keep := range []int{1, 2, 3} {
		g := NewGroup(keep, nil)
		members := make([]*Breaker, 3)
		for i := range members {
			members[i] = newBreaker(t, Settings{FailureThreshold: 2})
		}
		g.Set(members...)
		g.Set(members...) // no second membership
		var wg sync.WaitGroup
		for _, b := range members {
			for range 20 {
				wg.Go(func() {
					if p, err := b.Allow(); err == nil {
						p.Failure("all are sick")
					}
				})
			}
		}
		wg.Wait()
		open := 0
		for _, b := range members {
			if b.State() == Open {
				open++
			}
		}
		if open != 3-keep {
			t.Errorf("keep %d of 3: %d open, want %d", keep, open, 3-keep)
		}
		for _, b := range members {
			if b.State() == Open {
				b.Reset()
				break
			}
		}
		g.Set()
		if g.Len() != 0 {
			t.Errorf("group has %d members after all left", g.Len())
		}
	}
}

func TestSubscribersMayUseTheBreakerAndSeeChangesInOrder(t *testing.T) {
	b := newBreaker(t, Settings{FailureThreshold: 1})
	var seen []string
	unsubscribe := b.Subscribe(func(c Change) {
		seen = append(seen, c.From.String()+">"+c.To.String())
		if c.To == Open {
			b.Reset() // a change from within: must neither deadlock nor overtake
		}
		_ = b.Snapshot()
	})
	fail(t, b)
	unsubscribe()
	b.ForceOpen(0)
	if got := strings.Join(seen, " "); got != "CLOSED>OPEN OPEN>CLOSED" {
		t.Errorf("subscriber saw %q", got)
	}
}

func TestAClosedDownBreakerStillFollowsTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, Settings{FailureThreshold: 1})
		fail(t, b)
		b.Close()
		if _, err := b.Allow(); !errors.Is(err, ErrPathOpen) {
			t.Fatalf("Allow while open = %v", err)
		}
		pass(30 * time.Second)
		if p := allow(t, b); !p.IsTrial() {
			t.Error("the permit after the open time is no trial")
		}
	})
}

func TestRecordCountsWithoutAPermit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, Settings{FailureThreshold: 2, SuccessThreshold: 2})
		b.Record(Failure, "status 500")
		b.Record(Success, "")
		b.Record(Failure, "status 500")
		b.Record(Failure, strings.Repeat("é", 300))
		if s := b.Snapshot(); s.State != Open || len(s.Recent[3].Cause) > causeLength+4 {
			t.Fatalf("after two recorded failures: %v, cause of %d bytes", s.State, len(s.Recent[3].Cause))
		}
		pass(30 * time.Second)
		b.Record(Success, "")
		b.Record(Success, "")
		if got := b.State(); got != Closed {
			t.Errorf("state after two recorded successes while half-open = %v, want CLOSED", got)
		}
	})
}

func TestASubscriberThatPanicsCostsNobodyTheChangesAfterIt(t *testing.T) {
	b := newBreaker(t, Settings{FailureThreshold: 1})
	var seen []State
	panics := true
	b.Subscribe(func(c Change) {
		seen = append(seen, c.To)
		if panics {
			panics = false
			b.Reset() // is queued behind
			panic("subscriber")
		}
	})
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		b.ForceOpen(0)
	}()
	b.ForceOpen(0)
	if want := []State{Open, Closed, Open}; !slices.Equal(seen, want) {
		t.Errorf("subscriber saw %v, want %v", seen, want)
	}
}

func TestACallIsSlowFromWhenItWasSent(t *testing.T) {
	for name, row := range map[string]struct {
		sent time.Duration
		slow bool
	}{
		"sent at last":     {4*time.Second + time.Millisecond, false},
		"sent in between":  {3 * time.Second, true},
		"before the call":  {-time.Hour, true},
		"later than right": {time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBreaker(t, Settings{SlowCall: time.Second})
				begin := time.Now()
				p := allow(t, b)
				pass(5 * time.Second)
				p.Sent(begin.Add(row.sent))
				if got := p.Answered(); got != row.slow {
					t.Errorf("slow: %v, want %v", got, row.slow)
				}
				p.Success()
			})
		})
	}
}

func TestOnlyTheFailureThatOpensThePathSaysWhenToComeBack(t *testing.T) {
	for name, between := range map[string]func(*Breaker){
		"a success after it":         func(b *Breaker) { b.Record(Success, "") },
		"the last failure was quiet": func(*Breaker) {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBreaker(t, Settings{FailureThreshold: 2, OpenDuration: time.Minute})
				p := allow(t, b)
				p.FailureRetryAfter("status 503", 5*time.Minute)
				between(b)
				for b.State() == Closed {
					fail(t, b)
				}
				if got := b.RetryAfter(); got != time.Minute {
					t.Errorf("open for %s, want 1m0s: the Retry-After was of an older failure", got)
				}
			})
		})
	}
}
