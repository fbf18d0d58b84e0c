package breaker

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// monix#1080, resilience4j#935: a trial that was cancelled, or never reported
// back, left the breaker half-open for good.
func TestATrialThatIsNeverReportedFreesItsPlaceWhenItsLeaseRunsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, Settings{FailureThreshold: 1, SuccessThreshold: 2, HalfOpenMaxCalls: 1})
		fail(t, b)
		pass(30 * time.Second)
		lost := allow(t, b)
		pass(59 * time.Second)
		if _, err := b.Allow(); !errors.Is(err, ErrPathHalfOpenRejected) {
			t.Fatalf("Allow with the only place taken = %v, want CB.PATH_HALF_OPEN_REJECTED", err)
		}
		pass(time.Second)
		succeed(t, b)
		// Late, yet of this stay in half-open: it still says how the path is.
		lost.Success()
		if got := b.State(); got != Closed {
			t.Errorf("state = %v, want CLOSED", got)
		}
	})
}

func TestANeutralTrialFreesItsPlaceAndSaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, Settings{FailureThreshold: 1, HalfOpenMaxCalls: 2})
		fail(t, b)
		pass(30 * time.Second)
		for range 50 {
			p, q := allow(t, b), allow(t, b)
			if !p.IsTrial() || b.Ready() {
				t.Fatal("two trials must be out, and no third admitted")
			}
			p.Neutral()
			q.Neutral()
		}
		if s := b.Snapshot(); s.State != HalfOpen || s.HalfOpenInFlight != 0 || s.Successes != 0 {
			t.Errorf("snapshot = %v, %d in flight, %d successes; want HALF_OPEN, 0, 0", s.State, s.HalfOpenInFlight, s.Successes)
		}
	})
}

func TestAPermitTakesOneResult(t *testing.T) {
	b := newBreaker(t, Settings{FailureThreshold: 2})
	p := allow(t, b)
	p.Failure("once")
	p.Failure("twice")
	p.Success()
	p.Neutral()
	if s := b.Snapshot(); s.State != Closed || s.Failures != 1 {
		t.Errorf("one permit reported 4 times: %v with %d failures, want CLOSED with 1", s.State, s.Failures)
	}
	var zero Permit
	zero.Success()
	zero.Failure("x")
	zero.Neutral()
}

// gobreaker#91: calls already admitted went on counting after the trip.
func TestAResultOfAnOlderGenerationChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, Settings{FailureThreshold: 3, SuccessThreshold: 1})
		var changes atomic.Int32
		b.Subscribe(func(Change) { changes.Add(1) })
		permits := make([]Permit, 100)
		for i := range permits {
			permits[i] = allow(t, b)
		}
		for i := range 50 {
			permits[i].Failure("late")
		}
		if s := b.Snapshot(); s.State != Open || s.OpenedTotal != 1 || changes.Load() != 1 {
			t.Fatalf("50 failures of one generation: %v, opened %d, %d changes; want OPEN, 1, 1", s.State, s.OpenedTotal, changes.Load())
		}
		pass(30 * time.Second)
		for i := range 25 {
			permits[50+i].Failure("older")
			permits[75+i].Success()
		}
		if s := b.Snapshot(); s.State != HalfOpen || s.Successes != 0 {
			t.Errorf("after results from before the trip: %v with %d successes, want HALF_OPEN with 0", s.State, s.Successes)
		}
	})
}

// envoy#40697: after the first trip, later ones needed more failures.
func TestEveryTripTakesTheSameNumberOfFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, Settings{FailureThreshold: 3, SuccessThreshold: 2})
		for round := range 5 {
			for i := range 3 {
				if got := b.State(); got != Closed {
					t.Fatalf("round %d: state after %d failures = %v, want CLOSED", round, i, got)
				}
				fail(t, b)
			}
			if got := b.State(); got != Open {
				t.Fatalf("round %d: state after 3 failures = %v, want OPEN", round, got)
			}
			pass(30 * time.Second)
			succeed(t, b)
			succeed(t, b)
		}
	})
}

// envoy#26758: the back-off did not grow for one of the detectors.
func TestOpenTimesGrowByRatioAndByFailedTrialsUpToTheCap(t *testing.T) {
	trip := map[string]func(t *testing.T, b *Breaker){
		"failed trials": func(t *testing.T, b *Breaker) { fail(t, b) },
		"ratio after a short recovery": func(t *testing.T, b *Breaker) {
			if b.State() == HalfOpen {
				succeed(t, b)
			}
			for range 4 {
				fail(t, b)
			}
		},
	}
	for name, again := range trip {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBreaker(t, Settings{
					FailureRatio: 0.5, RatioMinCalls: 4, SuccessThreshold: 1,
					OpenDuration: time.Second, OpenDurationMax: 8 * time.Second,
				})
				for range 4 {
					fail(t, b)
				}
				var last time.Duration
				for i, bounds := range [][2]time.Duration{{1000, 1000}, {1800, 2000}, {3600, 4000}, {7200, 8000}, {7200, 8000}} {
					open := b.RetryAfter()
					if open < bounds[0]*time.Millisecond || open > bounds[1]*time.Millisecond {
						t.Fatalf("open time %d = %s, want %v ms", i, open, bounds)
					}
					if i < 4 && open <= last {
						t.Fatalf("open time %d = %s, not above %s", i, open, last)
					}
					last = open
					pass(open)
					again(t, b)
				}
			})
		})
	}
}

func TestALongRecoveryStartsTheOpenTimeAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, Settings{FailureThreshold: 1, SuccessThreshold: 1, OpenDuration: time.Second, OpenDurationMax: time.Minute})
		fail(t, b)
		pass(time.Second)
		fail(t, b)
		pass(2 * time.Second)
		succeed(t, b)
		pass(10 * time.Second)
		fail(t, b)
		if got := b.RetryAfter(); got != time.Second {
			t.Errorf("open time after a long recovery = %s, want 1s", got)
		}
	})
}

func TestRatioNeedsItsMinimumOfCallsAndForgetsWhatIsOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, Settings{FailureRatio: 0.5, RatioWindow: 10 * time.Second, RatioMinCalls: 10})
		for range 9 {
			fail(t, b)
		}
		if got := b.State(); got != Closed {
			t.Fatalf("state below the minimum of calls = %v, want CLOSED", got)
		}
		pass(11 * time.Second)
		for range 6 {
			succeed(t, b)
		}
		for range 5 {
			fail(t, b)
		}
		if s := b.Snapshot(); s.State != Closed || s.Failures != 5 {
			t.Fatalf("5 of 11 failed: %v with %d failures, want CLOSED with 5", s.State, s.Failures)
		}
		fail(t, b)
		if s := b.Snapshot(); s.State != Open || !strings.Contains(s.Reason, "6 of 12") {
			t.Errorf("6 of 12 failed: %v because %q, want OPEN by the ratio", s.State, s.Reason)
		}
	})
}

func TestASlowSuccessIsAFailureUnlessItWasAnsweredInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, Settings{FailureThreshold: 1, SlowCall: time.Second})
		p := allow(t, b)
		pass(900 * time.Millisecond)
		if p.Answered() {
			t.Error("Answered after 900ms = slow, want in time")
		}
		pass(time.Minute) // a long body
		p.Success()
		if got := b.State(); got != Closed {
			t.Fatalf("state after a quick answer with a long body = %v, want CLOSED", got)
		}
		p = allow(t, b)
		pass(time.Second)
		p.Success()
		if s := b.Snapshot(); s.State != Open || s.Recent[len(s.Recent)-1].Cause != "slow: 1s" {
			t.Errorf("after a slow success: %v, %+v; want OPEN and a cause", s.State, s.Recent)
		}
	})
}

// envoy#25487: our own "too many requests" was booked as the path's failure.
func TestMaxConcurrentRefusesWithoutCountingAgainstThePath(t *testing.T) {
	b := newBreaker(t, Settings{FailureThreshold: 1, MaxConcurrent: 2})
	p, q := allow(t, b), allow(t, b)
	if b.Ready() {
		t.Error("Ready() with every place taken = true")
	}
	for range 20 {
		if _, err := b.Allow(); !errors.Is(err, ErrPathFull) {
			t.Fatalf("third Allow = %v, want CB.PATH_FULL", err)
		}
	}
	if s := b.Snapshot(); s.State != Closed || s.Failures != 0 || s.RejectedTotal != 20 {
		t.Errorf("snapshot = %v, %d failures, %d rejected; want CLOSED, 0, 20", s.State, s.Failures, s.RejectedTotal)
	}
	p.Success()
	q.Failure("trips")
	b.Reset()
	r, s := allow(t, b), allow(t, b)
	r.Neutral()
	s.Neutral()
}

func TestARetryAfterSetsTheOpenTimeWithinTheCap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, row := range []struct{ asked, limit, want time.Duration }{
			{asked: 2 * time.Second, want: 2 * time.Second},
			{asked: 2 * time.Minute, want: 2 * time.Minute},
			{asked: time.Hour, want: 5 * time.Minute},
			{asked: time.Hour, limit: time.Minute, want: time.Minute},
			{asked: -time.Second, want: 30 * time.Second},
		} {
			b := newBreaker(t, Settings{FailureThreshold: 1, OpenDurationMax: row.limit})
			p := allow(t, b)
			p.FailureRetryAfter("status 503", row.asked)
			if got := b.RetryAfter(); got != row.want {
				t.Errorf("asked for %s, limit %s: open for %s, want %s", row.asked, row.limit, got, row.want)
			}
		}
	})
}

func TestSettingsThatMakeNoSenseAreNamed(t *testing.T) {
	for want, s := range map[string]Settings{
		"failure_threshold: must be positive, got -1":            {FailureThreshold: -1},
		"success_threshold: must be positive, got -2":            {SuccessThreshold: -2},
		"half_open_max_calls: must be positive, got -1":          {HalfOpenMaxCalls: -1},
		"max_concurrent: must be positive, got -1":               {MaxConcurrent: -1},
		"failure_ratio: min calls: must be positive, got -1":     {RatioMinCalls: -1},
		"open_duration: must be positive, got -1s":               {OpenDuration: -time.Second},
		"open_duration: max: must be positive, got -1s":          {OpenDurationMax: -time.Second},
		"open_duration: max 10s is below the open time 30s":      {OpenDurationMax: 10 * time.Second},
		"trial_timeout: must be positive, got -1s":               {TrialTimeout: -time.Second},
		"failure_ratio: window: must be positive, got -1s":       {RatioWindow: -time.Second},
		"slow_call: must be positive, got -1s":                   {SlowCall: -time.Second},
		"failure_ratio: must be above 0 and at most 1, got 1.5":  {FailureRatio: 1.5},
		"failure_ratio: must be above 0 and at most 1, got -0.5": {FailureRatio: -0.5},
	} {
		if _, err := New("p", s); err == nil || err.Error() != want {
			t.Errorf("New(%+v) = %v, want %q", s, err, want)
		}
		if _, err := NewRegistry(s); err == nil {
			t.Errorf("NewRegistry(%+v) succeeded", s)
		}
	}
	// Leaving out options must never switch the breaker off.
	b := newBreaker(t, Settings{})
	for range 10 {
		if p, err := b.Allow(); err == nil {
			p.Failure("x")
		}
	}
	if got := b.State(); got != Open {
		t.Errorf("zero settings: state after 10 failures = %v, want OPEN", got)
	}
}

// pass lets time go by, and what is due then happen.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestAPermitHoldsAPlaceOnlyWhereThereAreFew(t *testing.T) {
	for name, row := range map[string]struct {
		set  Settings
		trip bool
		want bool
	}{
		"closed":             {Settings{}, false, false},
		"closed and timed":   {Settings{SlowCall: time.Hour}, false, false},
		"closed by ratio":    {Settings{FailureRatio: 0.5}, false, false},
		"closed and limited": {Settings{MaxConcurrent: 1}, false, true},
		"a trial":            {Settings{FailureThreshold: 1, OpenDuration: time.Second}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBreaker(t, row.set)
				if row.trip {
					fail(t, b)
					pass(time.Second)
				}
				p, err := b.Allow()
				if err != nil {
					t.Fatal(err)
				}
				if got := p.Holds(); got != row.want {
					t.Errorf("Holds() = %v, want %v", got, row.want)
				}
				p.Neutral()
			})
		})
	}
}
