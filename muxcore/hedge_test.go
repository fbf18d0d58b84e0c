package muxcore_test

import (
	"context"
	"io"
	"math/rand/v2"
	"sync"
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
			time.Sleep(muxcore.RaceGrace)
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

// A second read that failed was not replaced: the third backend, which was well, was not asked before the first had timed out.
func TestAHedgeThatFailsIsReplacedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backends, hooks := crowd(t, 1, 1, 1)
		hooks[0].set(hangs)
		hooks[1].set(fails)
		m := newMux(t, muxcore.Settings{Hedge: muxcore.Hedge{After: 50 * time.Millisecond}}, backends...)
		begin := time.Now()
		wantBody(t, m, "k", "body", "b2")
		if took := time.Since(begin); took != 50*time.Millisecond {
			t.Errorf("took %v, want one delay", took)
		}
	})
}

// One of three is slow on a tenth of its reads. Its own p95 lies in its slow answers: it was never hedged.
func TestAutoHedgeSeesThroughABackendThatIsOftenSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex // a hedge draws beside the read that it hedges
		random := rand.New(rand.NewPCG(5, 6))
		draw := func(n int) int {
			mu.Lock()
			defer mu.Unlock()
			return random.IntN(n)
		}
		backends, hooks := crowd(t, 1, 1, 1)
		m := newMux(t, muxcore.Settings{Mode: muxcore.RoundRobin, Hedge: muxcore.Hedge{Auto: true}}, backends...)
		for i := range hooks {
			hooks[i].set(func(ctx context.Context, op muxcore.Op) error {
				if i == 0 && draw(10) == 0 {
					return slow(200*time.Millisecond)(ctx, op)
				}
				return slow(4*time.Millisecond+time.Duration(draw(2000))*time.Microsecond)(ctx, op)
			})
		}
		late, hedges := 0, uint64(0)
		const n = 6000
		for range n {
			begin := time.Now()
			if _, err := m.Stat(t.Context(), "k", muxcore.Conditions{}); err != nil {
				t.Fatal(err)
			}
			if time.Since(begin) > 50*time.Millisecond {
				late++
			}
		}
		for _, b := range m.Stats().Backends {
			hedges += b.Hedges
		}
		if late > n/200 || hedges > n/20+10 {
			t.Errorf("%d of %d reads were late, %d hedges; 200 were slow", late, n, hedges)
		}
	})
}

// The trial of a race that has won belongs to its caller from then on, and ends with it.
func TestATrialThatWonEndsWithItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backends, hooks := copies(t, 2, long(100_000), muxcore.PutOptions{ETag: `"one"`})
		m := newMux(t, muxcore.Settings{Mode: muxcore.Mirror}, backends...)
		hooks[0].set(fails)
		hooks[1].set(slow(time.Hour))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_, _ = m.Get(ctx, "k", muxcore.GetOptions{}) // takes the first one down
		cancel()
		time.Sleep(2 * time.Second)
		hooks[0].set(nil)
		hooks[0].wrap = func(ctx context.Context, rc io.ReadCloser) io.ReadCloser { return &staller{rc, 50_000, ctx.Done()} }
		ctx, cancel = context.WithCancel(t.Context())
		obj, err := m.Get(ctx, "k", muxcore.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer obj.Body.Close()
		time.AfterFunc(time.Second, cancel)
		begin := time.Now()
		if _, err := io.Copy(io.Discard, struct{ io.Reader }{obj.Body}); muxcore.CodeOf(err) != muxcore.CodeBackendAborted {
			t.Errorf("read: %v, want it aborted", err)
		}
		if took := time.Since(begin); took != time.Second {
			t.Errorf("it ended after %v, want the caller's second", took)
		}
		cancel()
		time.Sleep(2 * time.Hour)
	})
}
