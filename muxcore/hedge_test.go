package muxcore_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

func TestHedgeAsksAnotherAfterTheDelay(t *testing.T) {
	for _, mode := range []muxcore.Mode{muxcore.Failover, muxcore.RoundRobin, muxcore.StickyByKey, muxcore.Shield, muxcore.Weighted} {
		synctest.Test(t, func(t *testing.T) {
			backends, hooks := crowd(t, 1, 1, 1)
			m := newMux(t, muxcore.Settings{Mode: mode, Hedge: muxcore.Hedge{After: 50 * time.Millisecond}}, backends...)
			for i := range hooks {
				hooks[i].set(slow(10 * time.Second))
			}
			var last *hooked
			for i := range hooks { // all but one take their time, whoever is asked first
				if last = hooks[i]; i == 1 {
					last.set(slow(time.Millisecond))
				}
			}
			begin := time.Now()
			wantBody(t, m, "k", "body", "b1")
			if took := time.Since(begin); took > 101*time.Millisecond {
				t.Errorf("%s: took %v, want at most two delays", mode, took)
			}
			synctest.Wait()
			hedges, wins := uint64(0), uint64(0)
			for _, b := range m.Stats().Backends {
				hedges, wins = hedges+b.Hedges, wins+b.HedgeWins
				if b.Status != muxcore.StatusUp || b.InFlightCount != 0 {
					t.Errorf("%s: %s is %s with %d in flight", mode, b.Name, b.Status, b.InFlightCount)
				}
			}
			if hedges > 2 || wins != min(hedges, 1) {
				t.Errorf("%s: %d hedges, %d wins", mode, hedges, wins)
			}
		})
	}
}

// A failure moves on at once, hedge or not, and all failing is all down.
func TestHedgeMovesOnAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backends, hooks := crowd(t, 1, 1)
		m := newMux(t, muxcore.Settings{Hedge: muxcore.Hedge{After: time.Hour}}, backends...)
		hooks[0].set(fails)
		wantBody(t, m, "k", "body", "b1")
		hooks[1].set(fails)
		if _, err := m.Get(t.Context(), "k", muxcore.GetOptions{}); muxcore.CodeOf(err) != muxcore.CodeAllBackendsDown {
			t.Errorf("Get = %v, want all down", err)
		}
	})
}

// However slow the first, extra reads stay within their share and the burst.
func TestHedgesStayWithinTheirBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backends, hooks := crowd(t, 1, 1)
		m := newMux(t, muxcore.Settings{Hedge: muxcore.Hedge{After: time.Millisecond, Share: 0.05}}, backends...)
		hooks[0].set(slow(100 * time.Millisecond))
		const n = 2000
		for range n {
			if _, _, err := read(t.Context(), m, "k", muxcore.GetOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if got := m.Stats().Backends[0].Hedges; got < 100 || got > 0.05*n+10 {
			t.Errorf("%d hedges for %d reads, want a share of 5%% and a burst of 10", got, n)
		}
	})
}

// The automatic delay follows the backend: one read in ten is slow, and those alone are hedged.
func TestAutoHedgeFollowsTheBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(5, 6))
		backends, hooks := crowd(t, 1, 1)
		m := newMux(t, muxcore.Settings{Hedge: muxcore.Hedge{Auto: true}}, backends...)
		hooks[1].set(slow(5 * time.Millisecond))
		hooks[0].set(func(ctx context.Context, op muxcore.Op) error {
			if random.IntN(25) == 0 {
				return slow(200*time.Millisecond)(ctx, op)
			}
			return slow(4*time.Millisecond+time.Duration(random.IntN(1000))*time.Microsecond)(ctx, op)
		})
		var late int
		for range 2000 {
			begin := time.Now()
			if _, err := m.Stat(t.Context(), "k", muxcore.Conditions{}); err != nil {
				t.Fatal(err)
			}
			if time.Since(begin) > 50*time.Millisecond {
				late++
			}
		}
		if late > 40 {
			t.Errorf("%d of 2000 reads were late, want far less than the 80 that were slow", late)
		}
		if s := m.Stats().Backends; s[0].Hedges == 0 || s[1].HedgeWins == 0 || s[0].Hedges > 110 {
			t.Errorf("hedges = %d, wins = %d", s[0].Hedges, s[1].HedgeWins)
		}
	})
}
