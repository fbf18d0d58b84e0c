package muxcore_test

import (
	"fmt"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/storetest"
)

// members are three backends that a mode can be consistent over: stores of their own where writes reach all of them or
// always the same one, else three names of one store.
func members(tb testing.TB, mode muxcore.Mode, waits muxcore.Waits) []muxcore.Backend {
	tb.Helper()
	shared := memory(tb)
	var backends []muxcore.Backend
	for i := range 3 {
		store := shared
		if mode == muxcore.Failover || mode == muxcore.Shield || mode == muxcore.Mirror {
			store = memory(tb)
		}
		weight := i + 1
		backends = append(backends, muxcore.Backend{Name: fmt.Sprint("b", i), Store: waiting{store, waits}, Weight: &weight})
	}
	return backends
}

// A mux of every mode is a store, with a backend that fails all the time among those that are well. How its backends are
// called does not depend on the order in which they are: that is tried out on two modes, one of each kind.
func TestConformance(t *testing.T) {
	run := func(name string, open func(tb testing.TB) muxcore.Store) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, storetest.Harness{Skip: ownIdentity, New: open})
		})
	}
	ways := map[string]muxcore.Waits{"in memory": muxcore.WaitsNever, "may hang": muxcore.WaitsUnbounded} // the third, with ctx, below
	for way, waits := range ways {
		for _, mode := range []muxcore.Mode{muxcore.Failover, muxcore.Mirror} {
			run(fmt.Sprint(mode, "/", way), func(tb testing.TB) muxcore.Store {
				return newMux(tb, muxcore.Settings{Mode: mode}, members(tb, mode, waits)...)
			})
		}
	}
	for _, mode := range muxcore.Modes() {
		if mode == muxcore.Mirror {
			continue // a miss is no answer while a backend cannot be asked
		}
		run(fmt.Sprint(mode, "/with a broken backend"), func(tb testing.TB) muxcore.Store {
			return newMux(tb, muxcore.Settings{Mode: mode}, withBroken(tb, mode)...)
		})
	}
	// What is above a nested mux sees its results, which come in three shapes: of one backend, of all, of all merged.
	for _, mode := range []muxcore.Mode{muxcore.Shield, muxcore.Mirror, muxcore.StickyByKey} {
		run(fmt.Sprint(mode, "/nested"), func(tb testing.TB) muxcore.Store {
			inner := newMux(tb, muxcore.Settings{Mode: mode}, members(tb, mode, muxcore.WaitsWithContext)...)
			return newMux(tb, muxcore.Settings{}, muxcore.Backend{Name: "inner", Store: inner})
		})
	}
}

// withBroken are members and a backend that fails all the time; where there is an order, it comes first.
func withBroken(tb testing.TB, mode muxcore.Mode) []muxcore.Backend {
	tb.Helper()
	one := 1
	dead := muxcore.Backend{Name: "broken", Store: broken{}, ReadOnly: true, Weight: &one}
	backends := append(members(tb, mode, muxcore.WaitsWithContext), dead)
	if mode == muxcore.Failover || mode == muxcore.RoundRobin {
		backends = append(backends[3:], backends[:3]...)
	}
	return backends
}

// ownIdentity are the checks that do not hold for a mux: it gives every object an identity of its own, and stores that.
var ownIdentity = map[string]string{
	"a store's own ETag is not a stored one":     "a mux stores the identity that it gives",
	"an overwrite takes the old attributes away": "likewise",
}
