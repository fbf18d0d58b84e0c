package muxcore_test

import (
	"fmt"
	"slices"
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

// A composition is a way in which a mux can be put together.
type composition struct {
	mode   muxcore.Mode
	waits  muxcore.Waits
	whole  bool // without a backend that fails all the time: with a mirror, a miss is no answer while one cannot be asked
	nested bool // below another mux
}

// compositions in which each mode and each way of waiting occurs. How backends are called does not depend on the order in
// which they are: each way occurs with a mode that writes to one backend, and with one that writes to all. What is above a
// nested mux sees its results, which come in three shapes: of one backend, of all, of all merged.
func compositions() []composition {
	all := []composition{
		{mode: muxcore.Failover, waits: muxcore.WaitsNever},
		{mode: muxcore.RoundRobin, waits: muxcore.WaitsUnbounded},
		{mode: muxcore.Weighted, waits: muxcore.WaitsWithContext},
		{mode: muxcore.StickyByKey, waits: muxcore.WaitsWithContext, nested: true},
		{mode: muxcore.Shield, waits: muxcore.WaitsWithContext, nested: true},
		{mode: muxcore.Mirror, waits: muxcore.WaitsUnbounded, whole: true, nested: true},
		{mode: muxcore.Mirror, waits: muxcore.WaitsNever, whole: true},
	}
	if !storetest.Thorough {
		return all
	}
	for _, mode := range muxcore.Modes() {
		for waits := range waitNames {
			c := composition{mode: mode, waits: waits, whole: mode == muxcore.Mirror}
			if !slices.Contains(all, c) {
				all = append(all, c)
			}
		}
	}
	return all
}

var waitNames = map[muxcore.Waits]string{
	muxcore.WaitsNever: "in memory", muxcore.WaitsWithContext: "with context", muxcore.WaitsUnbounded: "may hang",
}

func (c composition) String() string {
	name := fmt.Sprint(c.mode, ", ", waitNames[c.waits])
	if !c.whole {
		name += ", one broken"
	}
	if c.nested {
		name += ", nested"
	}
	return name
}

func (c composition) open(tb testing.TB) muxcore.Store {
	tb.Helper()
	backends := members(tb, c.mode, c.waits)
	if !c.whole {
		backends = withBroken(backends, c.mode)
	}
	m := newMux(tb, muxcore.Settings{Mode: c.mode}, backends...)
	if c.nested {
		return newMux(tb, muxcore.Settings{}, muxcore.Backend{Name: "inner", Store: m})
	}
	return m
}

// A mux of every mode is a store.
func TestConformance(t *testing.T) {
	untried := muxcore.Modes()
	for _, c := range compositions() {
		untried = slices.DeleteFunc(untried, func(mode muxcore.Mode) bool { return mode == c.mode })
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, storetest.Harness{Skip: ownIdentity, New: c.open})
		})
	}
	if len(untried) > 0 {
		t.Errorf("no composition has the modes %v", untried)
	}
}

// withBroken adds a backend that fails all the time; where there is an order, it comes first.
func withBroken(members []muxcore.Backend, mode muxcore.Mode) []muxcore.Backend {
	one := 1
	backends := append(slices.Clone(members), muxcore.Backend{Name: "broken", Store: broken{}, ReadOnly: true, Weight: &one})
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
