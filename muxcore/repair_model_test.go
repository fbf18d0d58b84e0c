package muxcore_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/storetest"
)

// held is what one backend holds in the model: versions by key.
type held map[string]int

// diverge puts random versions of random keys on stores, behind the mux's back, and gives the model of each.
func diverge(tb testing.TB, random *rand.Rand, stores ...muxcore.Store) []held {
	tb.Helper()
	models := make([]held, len(stores))
	for i, s := range stores {
		models[i] = make(held)
		for k := range 25 {
			key := fmt.Sprintf("dir%d/key %d", k%3, k)
			if random.IntN(3) > 0 {
				models[i][key] = 1 + random.IntN(4)
				version(tb, s, key, models[i][key])
			}
		}
	}
	return models
}

// newestOf is what all should hold if the newest version of each key counts.
func newestOf(models []held) held {
	want := make(held)
	for _, m := range models {
		for key, n := range m {
			want[key] = max(want[key], n)
		}
	}
	return want
}

// bodies of versions.
func (h held) bodies() map[string]string {
	all := make(map[string]string)
	for key, n := range h {
		all[key] = fmt.Sprintf("version %d of %s%s", n, key, strings.Repeat(".", n))
	}
	return all
}

// Whatever backends hold: after a repair they hold what the truth did, nothing of it is lost, and nothing differs.
func TestRepairAgainstAModel(t *testing.T) {
	truths := []struct {
		truth string
		mode  muxcore.Mode
		want  func(models []held) held
	}{
		{"", muxcore.Mirror, newestOf},
		{"", muxcore.Failover, newestOf},
		{"", muxcore.Shield, func(models []held) held { return models[0] }},
		{"a", muxcore.Mirror, func(models []held) held { return models[0] }},
		{"eu", muxcore.Shield, func(models []held) held { return newestOf(models[1:]) }},
		{"eu.b", muxcore.Mirror, func(models []held) held { return models[2] }},
	}
	for _, test := range truths {
		for seed := range uint64(storetest.Times(2, 5)) {
			t.Run(fmt.Sprint(test.mode, " by ", test.truth, "/", seed), func(t *testing.T) {
				random := rand.New(rand.NewPCG(seed, 11))
				stores := three(t)
				modes := []muxcore.Mode{muxcore.Mirror, muxcore.Failover, muxcore.RoundRobin}
				inner := newMuxUnclosed(t, muxcore.Settings{Mode: modes[random.IntN(3)]}, named(stores[1:]...)...)
				m := newMux(t, muxcore.Settings{Mode: test.mode},
					muxcore.Backend{Name: "a", Store: stores[0]}, muxcore.Backend{Name: "eu", Store: inner})
				models := diverge(t, random, stores[0], stores[1], stores[2])
				want := test.want(models).bodies()

				// Without Delete nothing of the truth is lost, and nothing else goes.
				if _, errs := repair(t, m, muxcore.RepairOptions{Truth: test.truth}); errs != nil {
					t.Fatal(errors.Join(errs...))
				}
				union := newestOf(models)
				for i, s := range stores {
					got := holds(t, s)
					for key := range union {
						body, wanted := want[key]
						switch _, had := models[i][key]; {
						case wanted && got[key] != body:
							t.Errorf("backend %d holds %q at %q, want %q", i, got[key], key, body)
						case !wanted && (got[key] != "") != had:
							t.Errorf("backend %d: a key that the truth lacks came or went: %q", i, key)
						}
					}
				}
				// With it, all is as the truth.
				if _, errs := repair(t, m, muxcore.RepairOptions{Truth: test.truth, Delete: true, Force: true}); errs != nil {
					t.Fatal(errors.Join(errs...))
				}
				for i, s := range stores {
					if diff := cmp.Diff(want, holds(t, s)); diff != "" {
						t.Errorf("backend %d (-want +got):\n%s", i, diff)
					}
				}
				wantVerified(t, m, muxcore.VerifyOptions{Truth: test.truth, Deep: true})
				noLeaks(t, stores...)
			})
		}
	}
}

// Writers work on the keys that are being repaired. Nothing that was acknowledged is lost, and what was deleted stays so.
func TestRepairAmongWriters(t *testing.T) {
	for _, mode := range []muxcore.Mode{muxcore.Mirror, muxcore.Shield, muxcore.Failover} {
		t.Run(string(mode), func(t *testing.T) {
			stores := three(t)
			backends := named(stores...)
			m := newMux(t, muxcore.Settings{Mode: mode}, backends...)
			diverge(t, rand.New(rand.NewPCG(1, 11)), stores[0], stores[1], stores[2])
			stop := make(chan struct{})
			var writers sync.WaitGroup
			finals := make([]held, 3)
			for w := range finals {
				finals[w] = make(held)
				writers.Go(func() { finals[w] = write(t, m, w, stop) })
			}
			for range storetest.Times(5, 20) {
				for s, err := range m.Repair(t.Context(), muxcore.RepairOptions{}) {
					if err != nil && !errors.Is(err, muxcore.ErrChanged) {
						t.Errorf("%+v: %v", s, err)
					}
				}
			}
			close(stop)
			writers.Wait()
			for w, final := range finals {
				for k := w; k < 25; k += len(finals) {
					key := fmt.Sprintf("dir%d/key %d", k%3, k)
					n, written := final[key]
					got, _, err := read(t.Context(), stores[0], key, muxcore.GetOptions{})
					switch want := final.bodies()[key]; {
					case !written:
					case n == 0 && !errors.Is(err, muxcore.ErrKeyNotFound):
						t.Errorf("%q was deleted last, and holds %q (%v)", key, got, err)
					case n > 0 && got != want:
						t.Errorf("%q holds %q (%v), want %q", key, got, err, want)
					}
				}
			}
			if _, errs := repair(t, m, muxcore.RepairOptions{}); errs != nil {
				t.Error(errors.Join(errs...))
			}
			noLeaks(t, stores...)
		})
	}
}

// write puts and deletes keys of its own until it is stopped, and gives what it did last to each: 0 is a delete.
func write(t *testing.T, m *muxcore.Mux, w int, stop <-chan struct{}) held {
	random := rand.New(rand.NewPCG(uint64(w), 13))
	final := make(held)
	for n := 10; ; n++ {
		select {
		case <-stop:
			return final
		default:
		}
		k := w + 3*random.IntN(8)
		key := fmt.Sprintf("dir%d/key %d", k%3, k)
		if random.IntN(4) > 0 {
			version(t, m, key, n)
			final[key] = n
			continue
		}
		if _, err := m.Delete(t.Context(), key, muxcore.DeleteOptions{}); err != nil && !errors.Is(err, muxcore.ErrKeyNotFound) {
			t.Errorf("Delete = %v", err)
		}
		final[key] = 0
	}
}

// endless lists many keys that are nowhere kept.
type endless struct {
	broken
	n int
}

func (e endless) List(_ context.Context, opts muxcore.ListOptions) iter.Seq2[muxcore.Entry, error] {
	return func(yield func(muxcore.Entry, error) bool) {
		for i := range e.n {
			key := fmt.Sprintf("key number %08d", i)
			if opts.Prefix != "" || !yield(muxcore.Entry{Info: muxcore.Info{Key: key, Size: 1}}, nil) {
				return
			}
		}
	}
}

func heap() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// However many keys there are, they are compared in the memory of a few.
func TestVerifyNeedsBoundedMemory(t *testing.T) {
	keys := storetest.Times(20_000, 100_000)
	m := newMux(t, muxcore.Settings{Mode: muxcore.Mirror}, named(endless{n: keys}, endless{n: keys})...)
	compared, base, most := 0, heap(), uint64(0)
	for d, err := range m.Verify(t.Context(), muxcore.VerifyOptions{OnKey: func(string) {
		if compared++; compared%10_000 == 0 {
			most = max(most, heap())
		}
	}}) {
		t.Fatalf("%+v, %v", d, err)
	}
	if compared != keys || most > base+1<<20 {
		t.Errorf("%d keys compared, in %d bytes where %d were used before", compared, most, base)
	}
}
