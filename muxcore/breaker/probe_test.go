package breaker

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// newProbe returns a probe that answers with err and counts its calls.
func newProbe(t *testing.T, err error) (*HalfOpenProbe, *atomic.Int32) {
	t.Helper()
	probes := new(atomic.Int32)
	p, newErr := NewHalfOpenProbe(func(context.Context, string) error {
		probes.Add(1)
		return err
	}, ProbeSettings{})
	if newErr != nil {
		t.Fatal(newErr)
	}
	t.Cleanup(p.Stop)
	return p, probes
}

func TestAFailedProbeOpensAgainAndIsReportedWithItsCode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause := errors.New("no ack")
		var reported atomic.Pointer[Error]
		p, err := NewHalfOpenProbe(func(context.Context, string) error { return cause },
			ProbeSettings{OnFailure: func(e *Error) { reported.Store(e) }})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Stop()
		b := newBreaker(t, Settings{FailureThreshold: 1})
		fail(t, b)
		pass(30 * time.Second)
		p.Watch(b) // half-open already: must start at once
		synctest.Wait()
		if got := b.State(); got != Open {
			t.Errorf("state after a failed probe = %v, want OPEN", got)
		}
		if e := reported.Load(); !errors.Is(e, ErrProbeFailed) || !errors.Is(e, cause) {
			t.Errorf("reported %v, want CB.PROBE_FAILED with its cause", e)
		}
		pass(30 * time.Second)
		if s := b.Snapshot(); s.OpenedTotal != 3 {
			t.Errorf("opened %d times, want 3: each half-open time brings a probe", s.OpenedTotal)
		}
	})
}

func TestAProbeThatHangsIsCutOffAndCountsAsAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := NewHalfOpenProbe(func(ctx context.Context, _ string) error {
			<-ctx.Done()
			return ctx.Err()
		}, ProbeSettings{Timeout: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Stop()
		b := newBreaker(t, Settings{FailureThreshold: 1})
		p.Watch(b)
		fail(t, b)
		pass(31*time.Second - 1)
		if got := b.State(); got != HalfOpen {
			t.Fatalf("state during the probe = %v, want HALF_OPEN", got)
		}
		pass(1)
		if got := b.State(); got != Open {
			t.Errorf("state after the probe timed out = %v, want OPEN", got)
		}
	})
}

func TestStoppingDuringAProbeIsNeutral(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := NewHalfOpenProbe(func(ctx context.Context, _ string) error {
			<-ctx.Done()
			return ctx.Err()
		}, ProbeSettings{Timeout: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		b := newBreaker(t, Settings{FailureThreshold: 1})
		p.Watch(b)
		fail(t, b)
		pass(30 * time.Second)
		p.Stop()
		if s := b.Snapshot(); s.State != HalfOpen || s.HalfOpenInFlight != 0 {
			t.Errorf("after Stop: %v with %d trials out, want HALF_OPEN with 0", s.State, s.HalfOpenInFlight)
		}
		fail(t, b)
		pass(time.Minute) // a stopped probe must not start again
		if got := b.State(); got != HalfOpen {
			t.Errorf("state = %v, want HALF_OPEN", got)
		}
	})
}

func TestUnwatchEndsTheProbesOfOnePath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, probes := newProbe(t, nil)
		b := newBreaker(t, Settings{FailureThreshold: 1, SuccessThreshold: 100})
		unwatch := p.Watch(b)
		fail(t, b)
		pass(36 * time.Second)
		before := probes.Load()
		unwatch()
		pass(time.Minute)
		if probes.Load() != before || before != 2 {
			t.Errorf("%d probes before, %d after unwatch; want 2 and 2", before, probes.Load())
		}
		p.Watch(b)
		synctest.Wait()
		if probes.Load() != 3 {
			t.Errorf("%d probes after a new Watch, want 3", probes.Load())
		}
	})
}

func TestProbeSettingsThatMakeNoSenseAreNamed(t *testing.T) {
	for want, s := range map[string]ProbeSettings{
		"probe_interval: must be positive, got -1s": {Interval: -time.Second},
		"probe_timeout: must be positive, got -1s":  {Timeout: -time.Second},
	} {
		if _, err := NewHalfOpenProbe(nil, s); err == nil || err.Error() != want {
			t.Errorf("NewHalfOpenProbe(%+v) = %v, want %q", s, err, want)
		}
	}
}
