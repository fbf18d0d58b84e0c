package muxcore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/storetest"
)

func TestAddAndRemove(t *testing.T) {
	var kinds []string
	backends, _ := crowd(t, 1, 1)
	inner := newMux(t, muxcore.Settings{}, backends...)
	m := newMux(t, muxcore.Settings{Observe: func(e muxcore.Event) { kinds = append(kinds, string(e.Kind)+" "+e.Name) }},
		muxcore.Backend{Name: "inner", Store: inner}, muxcore.Backend{Name: "flat", Store: memory(t)})
	extra := memory(t)
	put(t, extra, "only-here", "x")
	for _, row := range []struct {
		mux  string
		b    muxcore.Backend
		want muxcore.Code
	}{
		{"", muxcore.Backend{Name: "new", Store: extra, Weight: new(2)}, ""},
		{"", muxcore.Backend{Name: "new", Store: extra}, muxcore.CodeBackendNameConflict},
		{"", muxcore.Backend{Name: "neg", Store: extra, Weight: new(-1)}, muxcore.CodeInvalidWeight},
		{"", muxcore.Backend{Name: "huge", Store: extra, Weight: new(muxcore.MaxWeight + 1)}, muxcore.CodeInvalidWeight},
		{"inner", muxcore.Backend{Name: "new", Store: extra}, ""},
		{"inner", muxcore.Backend{Name: "b0", Store: extra}, muxcore.CodeBackendNameConflict},
		{"nobody", muxcore.Backend{Name: "new2", Store: extra}, muxcore.CodeBackendNotFound},
		{"flat", muxcore.Backend{Name: "new2", Store: extra}, muxcore.CodeBackendNotFound},
	} {
		if err := m.Add(row.mux, row.b); muxcore.CodeOf(err) != row.want {
			t.Errorf("Add(%q, %q) = %v, want %q", row.mux, row.b.Name, err, row.want)
		}
	}
	if n := len(inner.Stats().Backends); n != 3 {
		t.Errorf("%d backends inside, want 3", n)
	}
	for name, want := range map[string]muxcore.Code{"new": "", "inner.new": "", "nobody": muxcore.CodeBackendNotFound, "inner.nobody": muxcore.CodeBackendNotFound, "flat.x": muxcore.CodeBackendNotFound, "": muxcore.CodeBackendNotFound, "inner.": muxcore.CodeBackendNotFound} {
		if err := m.Remove(name); muxcore.CodeOf(err) != want {
			t.Errorf("Remove(%q) = %v, want %q", name, err, want)
		}
	}
	if got := fmt.Sprint(kinds); got != "[storage-mux.backend.added new storage-mux.backend.removed new]" {
		t.Errorf("events of the outer mux = %s", got)
	}
}

func TestNobodyIsNoBackend(t *testing.T) {
	m := newMux(t, muxcore.Settings{}, muxcore.Backend{Name: "eu", Store: newMux(t, muxcore.Settings{}, muxcore.Backend{Name: "a", Store: memory(t)})})
	for _, name := range []string{"nobody", "eu.nobody", "nobody.a", "eu.a.b", "", "."} {
		for what, err := range map[string]error{
			"SetWeight": m.SetWeight(name, 1), "Drain": m.Drain(t.Context(), name), "Undrain": m.Undrain(name), "Remove": m.Remove(name),
		} {
			if muxcore.CodeOf(err) != muxcore.CodeBackendNotFound {
				t.Errorf("%s(%q) = %v, want no such backend", what, name, err)
			}
		}
	}
}

func TestDepthIsMeasuredInTheWholeChain(t *testing.T) {
	chain := newMux(t, muxcore.Settings{}, muxcore.Backend{Name: "leaf", Store: memory(t)})
	path := ""
	for range muxcore.MaxDepth - 1 {
		chain = newMux(t, muxcore.Settings{}, muxcore.Backend{Name: "m", Store: chain})
		if path != "" {
			path += "."
		}
		path += "m"
	}
	put(t, chain, "k", "deep")
	if _, err := muxcore.New(muxcore.Settings{}, muxcore.Backend{Name: "m", Store: chain}); muxcore.CodeOf(err) != muxcore.CodeRecursionDepthExceeded {
		t.Errorf("a ninth mux: %v", err)
	}
	one := newMux(t, muxcore.Settings{}, muxcore.Backend{Name: "leaf", Store: memory(t)})
	if err := chain.Add(path, muxcore.Backend{Name: "ninth", Store: one}); muxcore.CodeOf(err) != muxcore.CodeRecursionDepthExceeded {
		t.Errorf("a ninth mux added inside: %v", err)
	}
	if err := chain.Add(path, muxcore.Backend{Name: "store", Store: memory(t)}); err != nil {
		t.Errorf("a store added inside: %v", err)
	}
}

func TestSetWeight(t *testing.T) {
	backends, _ := crowd(t, 1, 0)
	m := newMux(t, muxcore.Settings{Mode: muxcore.Weighted}, backends...)
	for _, row := range []struct {
		name   string
		weight int
		want   muxcore.Code
	}{
		{"b0", -1, muxcore.CodeInvalidWeight},
		{"b0", muxcore.MaxWeight + 1, muxcore.CodeInvalidWeight},
		{"nobody", 1, muxcore.CodeBackendNotFound},
		{"b0", 0, muxcore.CodeWeightedRequiresWeights},
		{"b1", 5, ""},
		{"b0", 0, ""},
		{"b1", 0, muxcore.CodeWeightedRequiresWeights},
	} {
		if err := m.SetWeight(row.name, row.weight); muxcore.CodeOf(err) != row.want {
			t.Errorf("SetWeight(%q, %d) = %v, want %q", row.name, row.weight, err, row.want)
		}
	}
	if err := m.Remove("b1"); muxcore.CodeOf(err) != muxcore.CodeWeightedRequiresWeights {
		t.Errorf("Remove of the last weight = %v", err)
	}
	if got := picks(t, m, 100); got["b1"] != 100 {
		t.Errorf("picks = %v", got)
	}
}

// A drain waits for what is in flight, bodies included; meanwhile nothing new goes there, and health never puts it back.
func TestDrainWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backends, hooks := copies(t, 2, long(100_000), muxcore.PutOptions{})
		m := newMux(t, muxcore.Settings{}, backends...)
		held, err := m.Get(t.Context(), "k", muxcore.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := m.Drain(ctx, "b0"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Drain with a timeout = %v", err)
		}
		if s := m.Stats().Backends[0]; s.Status != muxcore.StatusUp {
			t.Errorf("after a drain that was given up: %+v", s)
		}
		done := make(chan error, 1)
		go func() { done <- m.Drain(t.Context(), "b0") }()
		synctest.Wait()
		if s := m.Stats().Backends[0]; s.Status != muxcore.StatusDraining || s.InFlightCount != 1 {
			t.Errorf("while draining: %+v", s)
		}
		calls := hooks[0].calls.Load()
		wantVia(t, m, "b1")
		if hooks[0].calls.Load() != calls {
			t.Error("a draining backend got a new call")
		}
		_ = held.Body.Close()
		if err := <-done; err != nil {
			t.Errorf("Drain = %v", err)
		}
		if s := m.Stats().Backends[0]; s.Status != muxcore.StatusDown || s.Reason != "drained" {
			t.Errorf("after the drain: %+v", s)
		}
		time.Sleep(time.Hour)
		wantVia(t, m, "b1")
		if err := m.Undrain("b0"); err != nil {
			t.Fatal(err)
		}
		wantVia(t, m, "b0")
	})
}

// A small body was read with the answer: it holds up no drain, however long its reader takes.
func TestASmallBodyHoldsUpNoDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backends, _ := crowd(t, 1, 1)
		m := newMux(t, muxcore.Settings{}, backends...)
		obj, err := m.Get(t.Context(), "k", muxcore.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer obj.Body.Close()
		if err := m.Drain(t.Context(), "b0"); err != nil {
			t.Errorf("Drain = %v", err)
		}
		if got, err := io.ReadAll(obj.Body); string(got) != "body" || err != nil {
			t.Errorf("the body after the drain = %q, %v", got, err)
		}
	})
}

// Putting a backend back in service ends the drains that wait for it, with an error: it is not drained.
func TestUndrainWakesWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var kinds []muxcore.EventKind
		backends, _ := copies(t, 2, long(100_000), muxcore.PutOptions{})
		m := newMux(t, muxcore.Settings{Observe: func(e muxcore.Event) {
			if e.Kind != muxcore.EventAttempt {
				kinds = append(kinds, e.Kind)
			}
		}}, backends...)
		held, err := m.Get(t.Context(), "k", muxcore.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 2)
		for range 2 {
			go func() { done <- m.Drain(t.Context(), "b0") }()
		}
		synctest.Wait()
		if err := m.Undrain("b0"); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := <-done; err == nil || !strings.Contains(err.Error(), "back in service") {
				t.Errorf("Drain = %v, want an error that says what happened", err)
			}
		}
		wantVia(t, m, "b0")
		_ = held.Body.Close()
		if len(kinds) != 1 || kinds[0] != muxcore.EventDrainStarted {
			t.Errorf("events = %v, want one start and no end", kinds)
		}
	})
}

func wantVia(tb testing.TB, m *muxcore.Mux, want string) {
	tb.Helper()
	info, err := m.Stat(tb.Context(), "k", muxcore.Conditions{})
	if err != nil || info.Via.Backend != want {
		tb.Errorf("Stat = %+v, %v, want it from %s", info.Via, err, want)
	}
}

func TestAllDrainedIsAllDown(t *testing.T) {
	for _, mode := range muxcore.Modes() {
		backends, _ := crowd(t, 1, 1)
		m := newMux(t, muxcore.Settings{Mode: mode}, backends...)
		for i := range backends {
			if err := m.Drain(t.Context(), backends[i].Name); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := m.Get(t.Context(), "k", muxcore.GetOptions{}); muxcore.CodeOf(err) != muxcore.CodeAllBackendsDown {
			t.Errorf("%s: Get = %v, want all down", mode, err)
		}
		if _, err := m.Put(t.Context(), "k", nil, 0, muxcore.PutOptions{}); muxcore.CodeOf(err) != muxcore.CodeAllBackendsDown {
			t.Errorf("%s: Put = %v, want all down", mode, err)
		}
	}
}

// Traffic, weights, drains, additions and removals at once: no read fails while one backend is well.
func TestMutationUnderTraffic(t *testing.T) {
	for _, mode := range muxcore.Modes() {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			backends, hooks := crowd(t, 1, 1, 1, 1)
			m := newMux(t, muxcore.Settings{Mode: mode, Cooldown: time.Millisecond, MaxCooldown: 4 * time.Millisecond}, backends...)
			ctx, stop := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			tick := make(chan struct{}) // in step with the reads, so that the churn does not starve them
			churn := func(f func(i int)) {
				wg.Go(func() {
					for i := 0; ctx.Err() == nil; i++ {
						select {
						case <-tick:
							f(i)
						case <-ctx.Done():
						}
					}
				})
			}
			churn(func(i int) { _ = m.SetWeight("b1", i%3) })
			churn(func(int) {
				short, cancel := context.WithTimeout(ctx, time.Millisecond)
				defer cancel()
				_ = m.Drain(short, "b2")
				_ = m.Undrain("b2")
			})
			churn(func(i int) {
				name := fmt.Sprint("extra", i)
				_ = m.Add("", muxcore.Backend{Name: name, Store: hooks[1].Store})
				_ = m.Stats()
				_ = m.Remove(name)
			})
			churn(func(i int) {
				hooks[3].set(nil)
				if i%2 == 0 {
					hooks[3].set(fails)
				}
			})
			for range storetest.Times(100, 300) {
				select {
				case tick <- struct{}{}:
				default:
				}
				if _, _, err := read(ctx, m, "k", muxcore.GetOptions{}); err != nil {
					t.Errorf("Get = %v while b0 is well", err)
					break
				}
				_, _ = m.Put(ctx, fmt.Sprint("w", rand.IntN(10)), nil, 0, muxcore.PutOptions{})
			}
			stop()
			wg.Wait()
			for _, b := range m.Stats().Backends { // a Drain waits for what lost a race and is still on its way out
				late, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				if err := m.Drain(late, b.Name); err != nil {
					t.Errorf("%s: %v: something is in flight for ever", b.Name, err)
				}
				cancel()
			}
		})
	}
}
