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

// A mux of every mode, over stores that are called in every way, is a store; and so it is inside another mux, and with a
// backend that fails all the time.
func TestConformance(t *testing.T) {
	ways := map[string]muxcore.Waits{"in memory": muxcore.WaitsNever, "with ctx": muxcore.WaitsWithContext, "may hang": muxcore.WaitsUnbounded}
	for _, mode := range muxcore.Modes() {
		for way, waits := range ways {
			if waits != muxcore.WaitsWithContext && mode != muxcore.Failover && mode != muxcore.Mirror {
				continue // how a store is called does not depend on the order in which it is
			}
			t.Run(fmt.Sprint(mode, "/", way), func(t *testing.T) {
				t.Parallel()
				storetest.Run(t, storetest.Harness{Skip: ownIdentity, New: func(tb testing.TB) muxcore.Store {
					return newMux(tb, muxcore.Settings{Mode: mode}, members(tb, mode, waits)...)
				}})
			})
		}
		t.Run(fmt.Sprint(mode, "/nested"), func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, storetest.Harness{Skip: ownIdentity, New: func(tb testing.TB) muxcore.Store {
				inner := newMux(tb, muxcore.Settings{Mode: mode}, members(tb, mode, muxcore.WaitsWithContext)...)
				return newMux(tb, muxcore.Settings{}, muxcore.Backend{Name: "inner", Store: inner})
			}})
		})
		if mode == muxcore.Mirror {
			continue // a miss is no answer while a backend cannot be asked
		}
		t.Run(fmt.Sprint(mode, "/with a broken backend"), func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, storetest.Harness{Skip: ownIdentity, New: func(tb testing.TB) muxcore.Store {
				one := 1
				dead := muxcore.Backend{Name: "broken", Store: broken{}, ReadOnly: true, Weight: &one}
				backends := append(members(tb, mode, muxcore.WaitsNever), dead)
				if mode == muxcore.Failover || mode == muxcore.RoundRobin {
					backends = append(backends[3:], backends[:3]...)
				}
				return newMux(tb, muxcore.Settings{Mode: mode}, backends...)
			}})
		})
	}
}

// ownIdentity are the checks that do not hold for a mux: it gives every object an identity of its own, and stores that.
var ownIdentity = map[string]string{
	"a store's own ETag is not a stored one":     "a mux stores the identity that it gives",
	"an overwrite takes the old attributes away": "likewise",
}
