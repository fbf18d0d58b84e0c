package breaker

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestNET84_ClosedOpensAfterFailureThresholdConsecutiveFailures(t *testing.T) {
	for _, threshold := range []int{0, 1, 3, 7} {
		b := newBreaker(t, Settings{FailureThreshold: threshold})
		want := threshold
		if want == 0 {
			want = 5 // the seeds' default
		}
		for i := 1; i <= want; i++ {
			if got := b.State(); got != Closed {
				t.Fatalf("threshold %d: state before failure %d = %v, want CLOSED", want, i, got)
			}
			fail(t, b)
		}
		if got := b.State(); got != Open {
			t.Errorf("threshold %d: state after %d failures = %v, want OPEN", want, want, got)
		}
	}
}

func TestNET84_ASuccessInBetweenStartsTheCountAnew(t *testing.T) {
	b := newBreaker(t, Settings{FailureThreshold: 3})
	for range 20 {
		fail(t, b)
		fail(t, b)
		succeed(t, b)
	}
	if got := b.State(); got != Closed {
		t.Fatalf("state after never 3 failures in a row = %v, want CLOSED", got)
	}
	neutral(t, b)
	fail(t, b)
	neutral(t, b)
	fail(t, b)
	neutral(t, b)
	fail(t, b)
	if got := b.State(); got != Open {
		t.Errorf("state after 3 failures with neutral results between = %v, want OPEN", got)
	}
}

func TestNET85_OpenTurnsHalfOpenAfterOpenDurationWithoutTraffic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, Settings{FailureThreshold: 1})
		var seen []State
		b.Subscribe(func(c Change) { seen = append(seen, c.To) })
		fail(t, b)
		pass(30*time.Second - time.Nanosecond)
		if got := b.State(); got != Open {
			t.Fatalf("state just before the open time is over = %v, want OPEN", got)
		}
		pass(time.Nanosecond)
		if got := b.State(); got != HalfOpen {
			t.Fatalf("state when the open time is over = %v, want HALF_OPEN", got)
		}
		fail(t, b)
		pass(31 * time.Second)
		// Nobody called or read: subscribers must have been told all the same.
		if len(seen) != 4 || seen[3] != HalfOpen {
			t.Errorf("subscribers saw %v, want OPEN HALF_OPEN OPEN HALF_OPEN", seen)
		}
	})
}

func TestNET86_HalfOpenClosesAfterSuccessThresholdConsecutiveSuccesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, Settings{FailureThreshold: 1})
		fail(t, b)
		pass(30 * time.Second)
		for i := range 3 {
			if got := b.State(); got != HalfOpen {
				t.Fatalf("state after %d trial successes = %v, want HALF_OPEN", i, got)
			}
			succeed(t, b)
		}
		if got := b.State(); got != Closed {
			t.Errorf("state after 3 trial successes = %v, want CLOSED", got)
		}
	})
}

func TestNET86_AnyFailureWhileHalfOpenOpensAgainWithAFreshTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, Settings{FailureThreshold: 1, SuccessThreshold: 2})
		fail(t, b)
		pass(40 * time.Second)
		succeed(t, b)
		fail(t, b)
		if got := b.State(); got != Open {
			t.Fatalf("state after a failed trial = %v, want OPEN", got)
		}
		pass(29 * time.Second)
		if _, err := b.Allow(); !errors.Is(err, ErrPathOpen) {
			t.Fatalf("Allow 29s after the failed trial = %v, want CB.PATH_OPEN", err)
		}
		pass(time.Second)
		succeed(t, b)
		if got := b.State(); got != HalfOpen {
			t.Errorf("state after 1 of 2 successes = %v, want HALF_OPEN: the earlier one must not count", got)
		}
	})
}

func TestNET87_OpenRejectsAllExecutionsImmediately(t *testing.T) {
	b := newBreaker(t, Settings{FailureThreshold: 1})
	fail(t, b)
	for range 1000 {
		_, err := b.Allow()
		e, ok := errors.AsType[*Error](err)
		if !ok || e.Code != CodePathOpen || e.Path != "a→b" || e.RetryAt.IsZero() {
			t.Fatalf("Allow while open = %#v, want an *Error with CB.PATH_OPEN, the path and when to retry", err)
		}
	}
	if got := b.Rejected(); got != 1000 {
		t.Errorf("Rejected() = %d, want 1000", got)
	}
	if b.Ready() {
		t.Error("Ready() while open = true, want false")
	}
}

func TestNET88_HalfOpenProbeSendsProbesDuringHalfOpenOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, Settings{FailureThreshold: 1, SuccessThreshold: 3, ProbeOnly: true})
		p, probes := newProbe(t, nil)
		p.Watch(b)
		pass(time.Hour)
		if probes.Load() != 0 {
			t.Fatalf("%d probes while closed, want 0", probes.Load())
		}
		fail(t, b)
		pass(30*time.Second - 1)
		if probes.Load() != 0 {
			t.Fatalf("%d probes while open, want 0", probes.Load())
		}
		pass(1)
		if probes.Load() != 1 {
			t.Fatalf("%d probes as it turned half-open, want 1", probes.Load())
		}
		if _, err := b.Allow(); !errors.Is(err, ErrPathHalfOpenRejected) {
			t.Fatalf("Allow with ProbeOnly = %v, want CB.PATH_HALF_OPEN_REJECTED", err)
		}
		pass(10 * time.Second) // 5s each
		synctest.Wait()
		if got := b.State(); got != Closed || probes.Load() != 3 {
			t.Fatalf("after 3 good probes: state %v, %d probes; want CLOSED, 3", got, probes.Load())
		}
		pass(time.Hour)
		if probes.Load() != 3 {
			t.Errorf("%d probes after it closed, want 3", probes.Load())
		}
	})
}

func TestNET89_RegistryManagesPerPathBreakers(t *testing.T) {
	r, err := NewRegistry(Settings{FailureThreshold: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	a := r.GetOrCreate("x→a")
	if again := r.GetOrCreate("x→a"); again != a {
		t.Error("GetOrCreate of a path that is there returned another breaker")
	}
	b := r.GetOrCreate("x→b")
	c := r.GetOrCreate("x→c")
	fail(t, c)
	fail(t, b)
	if got, err := r.State("x→a"); err != nil || got != Closed {
		t.Errorf("State(a) = %v, %v, want CLOSED: paths must not share", got, err)
	}
	if got := r.ListOpen(); len(got) != 2 || got[0] != "x→b" || got[1] != "x→c" {
		t.Errorf("ListOpen() = %v, want [x→b x→c]", got)
	}
	if err := r.Remove("x→b"); err != nil {
		t.Errorf("Remove(b) = %v, want nil", err)
	}
	if _, err := r.State("x→b"); !errors.Is(err, ErrRegistryPathNotFound) {
		t.Errorf("State of a removed path = %v, want CB.REGISTRY_PATH_NOT_FOUND", err)
	}
	if err := r.Remove("x→b"); !errors.Is(err, ErrRegistryPathNotFound) {
		t.Errorf("Remove of a removed path = %v, want CB.REGISTRY_PATH_NOT_FOUND", err)
	}
	if got := r.GetOrCreate("x→b").State(); got != Closed {
		t.Errorf("a path removed and created again is %v, want CLOSED", got)
	}
}

func newBreaker(t testing.TB, s Settings) *Breaker {
	t.Helper()
	b, err := New("a→b", s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

func allow(t testing.TB, b *Breaker) Permit {
	t.Helper()
	p, err := b.Allow()
	if err != nil {
		t.Fatalf("Allow in %v = %v, want a permit", b.State(), err)
	}
	return p
}

func fail(t testing.TB, b *Breaker) {
	t.Helper()
	p := allow(t, b)
	p.Failure("test")
}

func succeed(t testing.TB, b *Breaker) {
	t.Helper()
	p := allow(t, b)
	p.Success()
}

func neutral(t testing.TB, b *Breaker) {
	t.Helper()
	p := allow(t, b)
	p.Neutral()
}
