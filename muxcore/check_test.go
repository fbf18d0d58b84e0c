package muxcore_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// probing is a store whose probe is a function.
type probing struct {
	*hooked
	probe func(ctx context.Context) error
}

func (p probing) Probe(ctx context.Context) error { return p.probe(ctx) }

func TestChecksTakeABackendDownAndBringItBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex // what follows is shared with the checks
		var kinds []muxcore.EventKind
		var last, ill error
		probes := 0
		state := func() (int, error) {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return probes, last
		}
		become := func(err error) {
			mu.Lock()
			defer mu.Unlock()
			ill = err
		}
		backends, _ := crowd(t, 1, 1)
		backends[0].Store = probing{backends[0].Store.(*hooked), func(context.Context) error {
			mu.Lock()
			defer mu.Unlock()
			probes++
			return ill
		}}
		m, err := muxcore.New(muxcore.Settings{HealthInterval: 10 * time.Second, Observe: func(e muxcore.Event) {
			mu.Lock()
			defer mu.Unlock()
			kinds = append(kinds, e.Kind)
			last = e.Err
		}}, backends...)
		if err != nil {
			t.Fatal(err)
		}
		if n, _ := state(); n != 1 {
			t.Errorf("%d checks at the start, want one at once", n)
		}
		become(errUnavailable)
		time.Sleep(12 * time.Second)
		_, cause := state()
		if s := m.Stats().Backends[0]; s.Status != muxcore.StatusDown || muxcore.CodeOf(cause) != muxcore.CodeHealthcheckFailed || !errors.Is(cause, errBroken) {
			t.Errorf("after a failed check: %+v, %v", s, cause)
		}
		time.Sleep(5 * time.Minute)
		if n, _ := state(); n < 28 || n > 36 {
			t.Errorf("%d checks in five minutes at 10s and a tenth of jitter", n)
		}
		become(nil)
		time.Sleep(12 * time.Second)
		_, _ = state()
		if s := m.Stats().Backends[0]; s.Status != muxcore.StatusUp || s.WritesDown {
			t.Errorf("after a good check: %+v", s)
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
		before, _ := state()
		time.Sleep(time.Minute)
		if after, _ := state(); after != before {
			t.Error("checks go on after Close")
		}
		downs := 0
		for _, k := range kinds {
			if k == muxcore.EventBackendDown {
				downs++
			}
		}
		if downs != 2 { // reads and writes
			t.Errorf("%d down events over thirty failed checks: %v", downs, kinds)
		}
	})
}

func TestAFailedCheckNeverTakesTheLastOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backends, _ := crowd(t, 1)
		backends[0].Store = probing{backends[0].Store.(*hooked), func(context.Context) error { return errUnavailable }}
		m := newMux(t, muxcore.Settings{HealthInterval: time.Second}, backends...)
		time.Sleep(time.Minute)
		synctest.Wait()
		wantBody(t, m, "k", "body", "b0")
	})
}

// A check that fails while requests succeed loses against them.
func TestRealTrafficKnowsBetterThanAFailedCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backends, _ := crowd(t, 1, 1)
		backends[0].Store = probing{backends[0].Store.(*hooked), func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }}
		m := newMux(t, muxcore.Settings{HealthInterval: time.Second}, backends...)
		for range 200 {
			time.Sleep(100 * time.Millisecond)
			wantBody(t, m, "k", "body", "b0")
		}
	})
}

func TestAHealthKeyThatIsAbsentIsASignOfLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backends, hooks := crowd(t, 1, 1)
		backends[0].HealthKey = "not/there"
		m := newMux(t, muxcore.Settings{HealthInterval: time.Second}, backends...)
		time.Sleep(time.Minute)
		synctest.Wait()
		if s := m.Stats().Backends[0]; s.Status != muxcore.StatusUp {
			t.Errorf("stats = %+v", s)
		}
		if hooks[0].calls.Load() < 50 {
			t.Errorf("%d checks of the key", hooks[0].calls.Load())
		}
	})
}

// A check that hangs is abandoned, but not without limit: a store in which too many hang is not checked until some come back.
func TestHungChecksAreCapped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backends, hooks := crowd(t, 1, 1)
		release := make(chan struct{})
		var n atomic.Int64
		backends[0].Store = probing{hooks[0], func(ctx context.Context) error { return inside(&n, release)(ctx, muxcore.OpHealth) }}
		m := newMux(t, muxcore.Settings{HealthInterval: time.Second}, backends...)
		time.Sleep(30 * time.Minute)
		if got := n.Load(); got < 64 || got > 66 {
			t.Errorf("%d checks hang after half an hour, want some 64", got)
		}
		if s := m.Stats().Backends[0]; s.Status != muxcore.StatusDown {
			t.Errorf("it is %s", s.Status)
		}
		close(release)
		time.Sleep(time.Minute)
		if got := n.Load(); got != 0 {
			t.Errorf("%d checks are still inside", got)
		}
	})
}
