package breaker

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// What the zero value of [Settings] stands for.
const (
	DefaultFailureThreshold = 5
	DefaultSuccessThreshold = 3
	DefaultOpenDuration     = 30 * time.Second
	DefaultHalfOpenMaxCalls = 3
	DefaultTrialTimeout     = 60 * time.Second
	DefaultRatioWindow      = 10 * time.Second
	DefaultRatioMinCalls    = 20
)

// retryAfterFactor caps a Retry-After where no OpenDurationMax does.
const retryAfterFactor = 10

// jitterShare is the part of a grown open time that is drawn at random.
const jitterShare = 0.1

// Settings describes one breaker. The zero value works: a zero field always
// means its default, never "off". Negative values are errors.
type Settings struct {
	// FailureThreshold is how many failures in a row open the breaker. Not used
	// with FailureRatio. Default: 5.
	FailureThreshold int

	// SuccessThreshold is how many trials in a row must succeed to close it again.
	// Default: 3.
	SuccessThreshold int

	// OpenDuration is how long calls are refused before the first trial.
	// Default: 30s.
	OpenDuration time.Duration

	// OpenDurationMax lets the open time double on each re-open, up to this. A
	// re-open is a failed trial, or a trip that follows a recovery sooner than the
	// last open time. Grown times are shortened at random by up to a tenth, so that
	// many breakers do not try again in step. It also caps a Retry-After.
	// Default: the open time does not grow; a Retry-After is capped at ten times
	// OpenDuration.
	OpenDurationMax time.Duration

	// HalfOpenMaxCalls is how many trials may be on their way at a time.
	// Default: 3.
	HalfOpenMaxCalls int

	// TrialTimeout is the lease of a trial: one not reported back by then frees its
	// place. Its result still counts when it comes. Default: 60s.
	TrialTimeout time.Duration

	// FailureRatio opens the breaker when at least this share of the calls within
	// RatioWindow failed, in place of consecutive failures. At most 1.
	// Default: consecutive failures.
	FailureRatio float64

	// RatioWindow is the rolling window of FailureRatio. Default: 10s.
	RatioWindow time.Duration

	// RatioMinCalls is how many calls the window must hold before the ratio means
	// anything. Default: 20.
	RatioMinCalls int

	// SlowCall makes a success that took this long or longer a failure.
	// Default: no limit.
	SlowCall time.Duration

	// MaxConcurrent is how many permits may be out at a time, in every state;
	// further calls are refused with [CodePathFull]. Default: no limit.
	MaxConcurrent int

	// ProbeOnly admits no caller while half-open, only [Breaker.AllowProbe].
	// Default: callers are the trials.
	ProbeOnly bool

	// Float64 is the source of jitter, in [0,1). Default: math/rand/v2.
	Float64 func() float64
}

// Validate says which setting makes no sense, by the name operators know it by.
func (s Settings) Validate() error {
	for _, n := range []struct {
		name  string
		value int
	}{
		{"failure_threshold", s.FailureThreshold},
		{"success_threshold", s.SuccessThreshold},
		{"half_open_max_calls", s.HalfOpenMaxCalls},
		{"failure_ratio: min calls", s.RatioMinCalls},
		{"max_concurrent", s.MaxConcurrent},
	} {
		if n.value < 0 {
			return fmt.Errorf("%s: must be positive, got %d", n.name, n.value)
		}
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"open_duration", s.OpenDuration},
		{"open_duration: max", s.OpenDurationMax},
		{"trial_timeout", s.TrialTimeout},
		{"failure_ratio: window", s.RatioWindow},
		{"slow_call", s.SlowCall},
	} {
		if d.value < 0 {
			return fmt.Errorf("%s: must be positive, got %s", d.name, d.value)
		}
	}
	if math.IsNaN(s.FailureRatio) || s.FailureRatio < 0 || s.FailureRatio > 1 {
		return fmt.Errorf("failure_ratio: must be above 0 and at most 1, got %v", s.FailureRatio)
	}
	if e := s.Effective(); s.OpenDurationMax != 0 && s.OpenDurationMax < e.OpenDuration {
		return fmt.Errorf("open_duration: max %s is below the open time %s", s.OpenDurationMax, e.OpenDuration)
	}
	return nil
}

// Effective returns s with every zero field replaced by its default.
func (s Settings) Effective() Settings {
	s.FailureThreshold = or(s.FailureThreshold, DefaultFailureThreshold)
	s.SuccessThreshold = or(s.SuccessThreshold, DefaultSuccessThreshold)
	s.OpenDuration = or(s.OpenDuration, DefaultOpenDuration)
	s.OpenDurationMax = or(s.OpenDurationMax, s.OpenDuration)
	s.HalfOpenMaxCalls = or(s.HalfOpenMaxCalls, DefaultHalfOpenMaxCalls)
	s.TrialTimeout = or(s.TrialTimeout, DefaultTrialTimeout)
	s.RatioWindow = or(s.RatioWindow, DefaultRatioWindow)
	s.RatioMinCalls = or(s.RatioMinCalls, DefaultRatioMinCalls)
	if s.Float64 == nil {
		s.Float64 = rand.Float64
	}
	return s
}

// openTime is how long to stay open after so many re-opens, before jitter.
func (s Settings) openTime(reopens int) time.Duration {
	d := s.OpenDuration
	for ; reopens > 0 && d < s.OpenDurationMax; reopens-- {
		if d > s.OpenDurationMax/2 {
			return s.OpenDurationMax
		}
		d *= 2
	}
	return d
}

// jittered shortens a grown open time. The first one is exact, and so is one
// that cannot grow: an operator who asked for 30s gets 30s.
func (s Settings) jittered(reopens int) time.Duration {
	d := s.openTime(reopens)
	if reopens == 0 || s.OpenDurationMax <= s.OpenDuration {
		return d
	}
	return d - time.Duration(float64(d)*jitterShare*s.Float64())
}

// retryAfterCap is the longest a Retry-After may keep the breaker open.
func (s Settings) retryAfterCap() time.Duration {
	if s.OpenDurationMax > s.OpenDuration {
		return s.OpenDurationMax
	}
	if s.OpenDuration > math.MaxInt64/retryAfterFactor {
		return s.OpenDuration
	}
	return s.OpenDuration * retryAfterFactor
}

func or[T comparable](value, otherwise T) T {
	var zero T
	if value == zero {
		return otherwise
	}
	return value
}
