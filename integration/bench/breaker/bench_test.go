package breaker_test

import (
	"errors"
	"testing"
	"time"

	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/sony/gobreaker/v2"

	"github.com/suaveplan/caddy-storage-mux/muxcore/breaker"
)

// forever keeps an open breaker open for longer than any benchmark.
const forever = 24 * time.Hour

var errFailed = errors.New("failed")

// contender makes one call through a circuit breaker, which the call's success
// is reported to where it is admitted.
type contender struct {
	name string
	// new returns the call of a breaker that opens at the fifth failure in a row,
	// as all of them do by default, and what makes it fail once.
	new func(tb testing.TB) (call func() (admitted bool), fail func())
}

// The first is ours; the two-step form of gobreaker is what does the same work.
var contenders = []contender{
	{"relay_breaker", ours},
	{"gobreaker two-step", twoStep},
	{"gobreaker Execute", execute},
	{"failsafe-go", failsafe},
}

func ours(tb testing.TB) (func() bool, func()) {
	tb.Helper()
	b, err := breaker.New("here→there", breaker.Settings{FailureThreshold: 5, OpenDuration: forever})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(b.Close)
	call := func() bool {
		permit, err := b.Allow()
		if err != nil {
			return false
		}
		permit.Success()
		return true
	}
	return call, func() {
		if permit, err := b.Allow(); err == nil {
			permit.Failure("")
		}
	}
}

var goBreakerSettings = gobreaker.Settings{
	Timeout:     forever,
	ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= 5 },
}

func twoStep(testing.TB) (func() bool, func()) {
	b := gobreaker.NewTwoStepCircuitBreaker[struct{}](goBreakerSettings)
	call := func() bool {
		done, err := b.Allow()
		if err != nil {
			return false
		}
		done(nil)
		return true
	}
	return call, func() {
		if done, err := b.Allow(); err == nil {
			done(errFailed)
		}
	}
}

func execute(testing.TB) (func() bool, func()) {
	b := gobreaker.NewCircuitBreaker[struct{}](goBreakerSettings)
	well := func() (struct{}, error) { return struct{}{}, nil }
	ill := func() (struct{}, error) { return struct{}{}, errFailed }
	call := func() bool {
		_, err := b.Execute(well)
		return err == nil
	}
	return call, func() { _, _ = b.Execute(ill) }
}

func failsafe(testing.TB) (func() bool, func()) {
	b := circuitbreaker.NewBuilder[any]().WithFailureThreshold(5).WithDelay(forever).Build()
	call := func() bool {
		if !b.TryAcquirePermit() {
			return false
		}
		b.RecordSuccess()
		return true
	}
	return call, func() {
		if b.TryAcquirePermit() {
			b.RecordFailure()
		}
	}
}

// opened returns the call of a breaker that has just opened.
func (c contender) opened(tb testing.TB) func() bool {
	tb.Helper()
	call, fail := c.new(tb)
	for range 5 {
		fail()
	}
	return call
}

// closed returns the call of a breaker that never saw a failure.
func (c contender) closed(tb testing.TB) func() bool {
	tb.Helper()
	call, _ := c.new(tb)
	return call
}

func BenchmarkClosed(b *testing.B)         { inTurn(b, contender.closed, true) }
func BenchmarkClosedParallel(b *testing.B) { atOnce(b, contender.closed, true) }
func BenchmarkOpen(b *testing.B)           { inTurn(b, contender.opened, false) }
func BenchmarkOpenParallel(b *testing.B)   { atOnce(b, contender.opened, false) }

func inTurn(b *testing.B, start func(contender, testing.TB) func() bool, admitted bool) {
	for _, c := range contenders {
		b.Run(c.name, func(b *testing.B) {
			call := start(c, b)
			b.ReportAllocs()
			for b.Loop() {
				if call() != admitted {
					b.Fatal("the breaker changed its state")
				}
			}
		})
	}
}

func atOnce(b *testing.B, start func(contender, testing.TB) func() bool, admitted bool) {
	for _, c := range contenders {
		b.Run(c.name, func(b *testing.B) {
			call := start(c, b)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if call() != admitted {
						b.Error("the breaker changed its state")
						return
					}
				}
			})
		})
	}
}

// The benchmarks compare like with like only if every contender opens at the
// same failure and stays open.
func TestTheContendersAreSetUpAlike(t *testing.T) {
	for _, c := range contenders {
		t.Run(c.name, func(t *testing.T) {
			call, fail := c.new(t)
			for i := range 5 {
				if !call() {
					t.Fatalf("refused after %d failures and a success", i)
				}
				for range 4 {
					fail()
				}
			}
			for range 5 {
				fail()
			}
			if call() {
				t.Error("admitted after 5 failures in a row")
			}
		})
	}
}
