package muxcore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// standing is what an operator sees of a backend, in short.
func standing(b *muxcore.BackendStats) string {
	s := fmt.Sprintf("%s:%s w%d", b.Name, b.Status, b.Weight)
	if b.WritesDown {
		s += " writes down"
	}
	for _, c := range b.Changed {
		s += " " + string(c)
	}
	if b.Mux != nil {
		s += " [" + standings(b.Mux) + "]"
	}
	return s
}

func standings(s *muxcore.Stats) string {
	var all []string
	for i := range s.Backends {
		all = append(all, standing(&s.Backends[i]))
	}
	if len(s.Removed) > 0 {
		all = append(all, fmt.Sprintf("without %v", s.Removed))
	}
	return strings.Join(all, ", ")
}

// A mux in the place of another leaves a backend alone that was down there, for as long and for the same reason, and then
// makes the trial itself; one that is left out of the state starts afresh.
func TestHealthGoesOnInTheNextMux(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backends, hooks := crowd(t, 1, 1, 1)
		hooks[0].set(fails)
		hooks[1].set(fails)
		set := muxcore.Settings{Cooldown: 10 * time.Second, MaxCooldown: time.Minute}
		was := newMux(t, set, backends...)
		for range 2 { // the second time, of a trial that failed
			picks(t, was, 1)
			time.Sleep(10 * time.Second)
		}
		before := was.Stats().Backends[0]
		if before.ConsecutiveFailures != 2 || before.Reason == "" {
			t.Fatalf("before: %+v", before)
		}
		hooks[0].set(nil)
		hooks[1].set(nil)
		state := was.State()
		state.Backends = slices.Delete(state.Backends, 1, 2)
		set.State = state
		m := newMux(t, set, backends...)
		after := m.Stats().Backends[0]
		if after.Status != muxcore.StatusDown || after.Reason != before.Reason || after.ConsecutiveFailures != 2 ||
			!after.NextTrialAt.Equal(*before.NextTrialAt) || !after.Since.Equal(before.Since) {
			t.Errorf("after: %+v, want what was before: %+v", after, before)
		}
		calls := hooks[0].calls.Load()
		if got := picks(t, m, 5); got["b1"] != 5 || hooks[0].calls.Load() != calls {
			t.Errorf("picks = %v, %d calls of a backend in its cooldown", got, hooks[0].calls.Load()-calls)
		}
		time.Sleep(10 * time.Second)
		if got := picks(t, m, 5); got["b0"] != 5 {
			t.Errorf("picks after the cooldown = %v", got)
		}
		if s := was.Stats().Backends[0]; s.Status != muxcore.StatusDown {
			t.Errorf("the mux before says %s: health is each one's own", s.Status)
		}
	})
}

// The trial of the mux before is its own: whatever becomes of it, the next one makes another.
func TestATrialUnderWayIsNotTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backends, hooks := crowd(t, 1, 1)
		hooks[0].set(fails)
		was := newMux(t, muxcore.Settings{}, backends...)
		picks(t, was, 1)
		time.Sleep(time.Second)
		release := make(chan struct{})
		hooks[0].set(func(context.Context, muxcore.Op) error {
			<-release
			return errUnavailable
		})
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = was.Stat(t.Context(), "k", muxcore.Conditions{}) })
		synctest.Wait()
		m := newMux(t, muxcore.Settings{State: was.State()}, backends...)
		hooks[0].set(nil)
		if got := picks(t, m, 3); got["b0"] != 3 {
			t.Errorf("picks = %v, want a trial and its backend back", got)
		}
		close(release)
		wg.Wait()
	})
}

func TestWritesHealthGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backends, hooks := crowd(t, 1, 1)
		hooks[0].set(func(_ context.Context, op muxcore.Op) error {
			if op.Writes() {
				return errUnavailable
			}
			return nil
		})
		was := newMux(t, muxcore.Settings{Mode: muxcore.Mirror}, backends...)
		put(t, was, "new", "x")
		m := newMux(t, muxcore.Settings{Mode: muxcore.Mirror, State: was.State()}, backends...)
		if got := standings(new(m.Stats())); got != "b0:up w1 writes down, b1:up w1" {
			t.Errorf("after: %s", got)
		}
		calls := hooks[0].calls.Load()
		if r := put(t, m, "newer", "x"); !slices.Equal(r.Missed, []string{"b0"}) || hooks[0].calls.Load() != calls {
			t.Errorf("missed %v, %d calls", r.Missed, hooks[0].calls.Load()-calls)
		}
	})
}

// A cooldown of settings that were long does not outlast one of the new ones.
func TestACooldownIsBoundedByTheNewSettings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backends, hooks := crowd(t, 1, 1)
		hooks[0].set(fails)
		was := newMux(t, muxcore.Settings{Cooldown: time.Hour}, backends...)
		picks(t, was, 1)
		hooks[0].set(nil)
		m := newMux(t, muxcore.Settings{State: was.State(), MaxCooldown: time.Minute}, backends...)
		time.Sleep(time.Minute)
		if got := picks(t, m, 1); got["b0"] != 1 {
			t.Errorf("picks = %v", got)
		}
	})
}

func TestRunTimeChangesGoOn(t *testing.T) {
	inner, _ := crowd(t, 1, 1)
	backends, _ := crowd(t, 1, 1, 1)
	made := func(state *muxcore.State, set muxcore.Settings, also ...muxcore.Backend) *muxcore.Mux {
		var nested *muxcore.State
		if state != nil {
			nested = state.Backends[len(state.Backends)-1].Mux
		}
		eu := muxcore.Backend{Name: "eu", Store: newMuxUnclosed(t, muxcore.Settings{State: nested}, inner...)}
		set.State = state
		return newMux(t, set, append(append(slices.Clone(backends), also...), eu)...)
	}
	was := made(nil, muxcore.Settings{Mode: muxcore.Weighted})
	if got := standings(new(was.Stats())); got != "b0:up w1, b1:up w1, b2:up w1, eu:up w1 [b0:up w1, b1:up w1]" {
		t.Fatalf("at first: %s", got)
	}
	extra := muxcore.Backend{Name: "x", Store: memory(t), Spec: "spec"}
	for _, err := range []error{
		was.SetWeight("b0", 7), was.Drain(t.Context(), "b1"), was.Remove("b2"), was.Add("", extra), was.SetWeight("x", 0),
		was.Drain(t.Context(), "eu.b0"), was.SetWeight("eu.b1", 2), was.SetWeight("eu", 3), was.Remove("eu"),
		was.Add("", muxcore.Backend{Name: "eu", Store: newMuxUnclosed(t, muxcore.Settings{}, inner...)}), was.SetWeight("eu.b1", 5), was.Drain(t.Context(), "eu.b0"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	const want = "b0:up w7 weight, b1:down w1 drained, x:up w0 added weight, eu:up w1 added [b0:down w1 drained, b1:up w5 weight], without [b2 eu]"
	if got := standings(new(was.Stats())); got != want {
		t.Errorf("changed:\n%s, want\n%s", got, want)
	}
	state := was.State()
	if x := state.Backends[2]; x.Spec != "spec" || !x.Added {
		t.Errorf("state of x = %+v", x)
	}
	backends = backends[:2]
	m := made(state, muxcore.Settings{Mode: muxcore.Weighted}, extra)
	if got := standings(new(m.Stats())); got != want {
		t.Errorf("in the next mux:\n%s, want\n%s", got, want)
	}
	if err := errors.Join(m.Undrain("b1"), m.SetWeight("b0", 1), m.Remove("x")); err != nil {
		t.Fatal(err)
	}
	if got := standings(new(m.Stats())); !strings.HasPrefix(got, "b0:up w1, b1:up w1, eu:") || !strings.HasSuffix(got, "without [b2 eu]") {
		t.Errorf("changed back: %s", got)
	}
}

// Whoever had the weight is not in the next mux: weights that would leave nobody to read are those of the config again.
func TestWeightsThatWouldLeaveNobodyAreDropped(t *testing.T) {
	backends, _ := crowd(t, 1, 1)
	was := newMux(t, muxcore.Settings{Mode: muxcore.Weighted}, backends...)
	if err := was.SetWeight("b0", 0); err != nil {
		t.Fatal(err)
	}
	m := newMux(t, muxcore.Settings{Mode: muxcore.Weighted, State: was.State()}, backends[0])
	if got := picks(t, m, 3); got["b0"] != 3 {
		t.Errorf("picks = %v", got)
	}
}

// What nobody can know of a backend does not make a mux of it that panics.
func TestAStateOfSomebodyElseIsTaken(t *testing.T) {
	backends, _ := crowd(t, 1, 1)
	m := newMux(t, muxcore.Settings{State: &muxcore.State{Backends: []muxcore.BackendState{
		{Name: "b0", Weight: new(-3), Reads: muxcore.HealthState{Down: true, Until: time.Now().Add(time.Hour)}, Writes: muxcore.HealthState{Failures: 7}},
		{Name: "nobody", Drained: true},
	}}}, backends...)
	if got := standings(new(m.Stats())); got != "b0:down w1, b1:up w1" {
		t.Errorf("after: %s", got)
	}
	if got := picks(t, m, 3); got["b1"] != 3 {
		t.Errorf("picks = %v", got)
	}
}

// Statistics count on in both, also while both are at work and one is asked for its state.
func TestStatisticsGoOn(t *testing.T) {
	backends, hooks := crowd(t, 1, 1)
	was := newMux(t, muxcore.Settings{Mode: muxcore.RoundRobin}, backends...)
	muxes := []*muxcore.Mux{was}
	var wg sync.WaitGroup
	const each, next = 200, 4
	for range next {
		hooks[0].set(fails)
		picks(t, muxes[len(muxes)-1], 4)
		hooks[0].set(nil)
		m := newMux(t, muxcore.Settings{Mode: muxcore.RoundRobin, State: muxes[len(muxes)-1].State()}, backends...)
		muxes = append(muxes, m)
		for _, one := range muxes[len(muxes)-2:] {
			wg.Go(func() {
				for range each {
					if _, err := one.Stat(t.Context(), "k", muxcore.Conditions{}); err != nil {
						t.Errorf("Stat = %v", err)
					}
				}
			})
		}
	}
	wg.Wait()
	s := muxes[next].Stats()
	if want := uint64(next * (4 + 2*each)); s.TotalCalls != want || s.Backends[0].Hits+s.Backends[1].Hits != want {
		t.Errorf("%d calls, %d and %d hits, want %d", s.TotalCalls, s.Backends[0].Hits, s.Backends[1].Hits, want)
	}
	if s.TotalFailovers == 0 || s.Backends[0].Errors != s.TotalFailovers || s.Backends[0].P99LatencyMs <= 0 {
		t.Errorf("%d failovers, %d errors, p99 %f ms", s.TotalFailovers, s.Backends[0].Errors, s.Backends[0].P99LatencyMs)
	}
}
