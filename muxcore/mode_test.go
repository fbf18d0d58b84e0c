package muxcore_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/storetest"
)

// crowd is n backends of one object, "k", each behind a hook, with the weights given.
func crowd(tb testing.TB, weights ...int) ([]muxcore.Backend, []*hooked) {
	tb.Helper()
	backends, hooks := copies(tb, len(weights), "body", muxcore.PutOptions{ETag: `"one"`})
	for i := range backends {
		backends[i].Weight = &weights[i]
	}
	return backends, hooks
}

// picks counts who answers n reads.
func picks(tb testing.TB, m *muxcore.Mux, n int) map[string]int {
	tb.Helper()
	got := make(map[string]int)
	for range n {
		info, err := m.Stat(tb.Context(), "k", muxcore.Conditions{})
		if err != nil {
			tb.Fatalf("Stat = %v", err)
		}
		got[info.Via.Backend]++
	}
	return got
}

func TestParseMode(t *testing.T) {
	for _, mode := range muxcore.Modes() {
		for _, name := range []string{string(mode), strings.ReplaceAll(string(mode), "_", "-")} {
			if got, err := muxcore.ParseMode(name); got != mode || err != nil {
				t.Errorf("ParseMode(%q) = %v, %v", name, got, err)
			}
		}
	}
	if _, err := muxcore.ParseMode("random"); err == nil || !strings.Contains(err.Error(), "failover") {
		t.Errorf("ParseMode of an unknown one = %v, want an error that lists the known", err)
	}
}

func TestRoundRobinTakesTurnsAmongThoseUp(t *testing.T) {
	backends, hooks := crowd(t, 1, 1, 0, 1)
	m := newMux(t, muxcore.Settings{Mode: muxcore.RoundRobin, Cooldown: time.Hour, MaxCooldown: time.Hour}, backends...)
	if got := fmt.Sprint(picks(t, m, 300)); got != "map[b0:100 b1:100 b3:100]" {
		t.Errorf("picks = %v, want equal shares, and none for weight 0", got)
	}
	hooks[1].set(fails)
	if got := picks(t, m, 300); got["b1"] != 0 || math.Abs(float64(got["b0"]-got["b3"])) > 2 {
		t.Errorf("picks with one down = %v", got)
	}
}

// Distribution of 10,000 picks is within 3 sigma of the weights, for all kinds of weights.
func TestWeightedDrawsByWeight(t *testing.T) {
	for _, weights := range [][]int{{1, 1}, {1, 2, 3, 4}, {0, 5, 0, 1}, {100, 1}, {7}, {1, 1, 1, 1, 1, 1, 1, 93}} {
		random := rand.New(rand.NewPCG(1, 2))
		backends, _ := crowd(t, weights...)
		m := newMux(t, muxcore.Settings{Mode: muxcore.Weighted, Float64: random.Float64}, backends...)
		wantShares(t, picks(t, m, storetest.Times(3000, 10_000)), weights)
	}
}

func wantShares(tb testing.TB, got map[string]int, weights []int) {
	tb.Helper()
	sum, n := 0, 0
	for i, w := range weights {
		sum += w
		n += got[fmt.Sprint("b", i)]
	}
	for i, w := range weights {
		p := float64(w) / float64(sum)
		want, sigma := p*float64(n), math.Sqrt(float64(n)*p*(1-p))
		if diff := math.Abs(float64(got[fmt.Sprint("b", i)]) - want); diff > 3*sigma {
			tb.Errorf("weights %v: b%d was picked %d times, want %.0f +- %.0f", weights, i, got[fmt.Sprint("b", i)], want, 3*sigma)
		}
	}
}

// The table follows weights and health: what is down or weighs nothing has no share, and the others share by weight.
func TestWeightedFollowsWeightsAndHealth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(3, 4))
		backends, hooks := crowd(t, 1, 2, 3)
		m := newMux(t, muxcore.Settings{Mode: muxcore.Weighted, Float64: random.Float64}, backends...)
		hooks[2].set(fails)
		for m.Stats().Backends[2].Status == muxcore.StatusUp {
			picks(t, m, 1)
		}
		wantShares(t, picks(t, m, 10_000), []int{1, 2, 0})
		hooks[2].set(nil)
		time.Sleep(time.Second)
		for m.Stats().Backends[2].Status == muxcore.StatusDown {
			picks(t, m, 1)
		}
		wantShares(t, picks(t, m, 10_000), []int{1, 2, 3})
		if err := m.SetWeight("b0", 7); err != nil {
			t.Fatal(err)
		}
		wantShares(t, picks(t, m, 10_000), []int{7, 2, 3})
	})
}

// While one backend is well, no read fails for what the others do, whatever the draw.
func TestWeightedFallsThroughToWhoeverIsWell(t *testing.T) {
	backends, hooks := crowd(t, 1000, 1000, 1)
	hooks[0].set(fails)
	hooks[1].set(fails)
	m := newMux(t, muxcore.Settings{Mode: muxcore.Weighted, Cooldown: 1, MaxCooldown: 1}, backends...)
	if got := picks(t, m, 500); got["b2"] != 500 {
		t.Errorf("picks = %v, want all from the one that is well", got)
	}
}

func TestStickyIsFNV1aModuloTheHealthy(t *testing.T) {
	backends, hooks := crowd(t, 1, 1, 1)
	m := newMux(t, muxcore.Settings{Mode: muxcore.StickyByKey, Cooldown: time.Hour, MaxCooldown: time.Hour}, backends...)
	owner := func(key string) string {
		for i := range hooks {
			if hooks[i].calls.Load() > 0 {
				hooks[i].calls.Store(0)
			}
		}
		_, _ = m.Stat(t.Context(), key, muxcore.Conditions{})
		for i := range hooks {
			if hooks[i].calls.Load() > 0 {
				return fmt.Sprint("b", i)
			}
		}
		return ""
	}
	check := func(healthy ...string) {
		t.Helper()
		for i := range 200 {
			key := fmt.Sprintf("some/key-%d", i)
			h := fnv.New32a()
			h.Write([]byte(key))
			if got, want := owner(key), healthy[h.Sum32()%uint32(len(healthy))]; got != want {
				t.Errorf("%q goes to %s, want %s", key, got, want)
			}
		}
	}
	check("b0", "b1", "b2")
	hooks[1].set(fails)
	for m.Stats().Backends[1].Status == muxcore.StatusUp {
		_, _ = m.Stat(t.Context(), fmt.Sprint("any", rand.Int()), muxcore.Conditions{})
	}
	check("b0", "b2")
}

// Rendezvous hashing moves only the keys of the backend that goes, and shares by weight.
func TestRendezvousMovesNoKeyThatItNeedNot(t *testing.T) {
	keys := storetest.Times(3000, 10_000)
	backends, _ := crowd(t, 1, 2, 3)
	m := newMux(t, muxcore.Settings{Mode: muxcore.StickyByKey, Rendezvous: true}, backends...)
	owners := func() map[string]string {
		all := make(map[string]string)
		for i := range keys {
			key := fmt.Sprintf("key/%d", i)
			_, err := m.Get(t.Context(), key, muxcore.GetOptions{})
			all[key] = backendOf(err)
		}
		return all
	}
	before := owners()
	shares := make(map[string]int)
	for _, b := range before {
		shares[b]++
	}
	wantShares(t, shares, []int{1, 2, 3})
	if err := m.Drain(t.Context(), "b2"); err != nil {
		t.Fatal(err)
	}
	for key, now := range owners() {
		if was := before[key]; was != "b2" && was != now {
			t.Fatalf("%q moved from %s to %s when b2 went", key, was, now)
		}
	}
}

// The others follow in the order of their scores: who is asked next is who would own the key without those before, so that
// a read after a failure meets what a write after the failure has left.
func TestRendezvousFailsOverToTheNextOwner(t *testing.T) {
	backends, hooks := crowd(t, 3, 1, 2, 1)
	m := newMux(t, muxcore.Settings{Mode: muxcore.StickyByKey, Rendezvous: true, Cooldown: 1, MaxCooldown: 1}, backends...)
	var order []string
	for i, h := range hooks {
		h.set(func(context.Context, muxcore.Op) error {
			order = append(order, fmt.Sprint("b", i))
			return errUnavailable
		})
	}
	turned := 0
	for i := range 200 {
		key := fmt.Sprint("key/", i)
		order = nil
		_, _ = m.Stat(t.Context(), key, muxcore.Conditions{})
		got := slices.Clone(order)
		if len(got) != 4 {
			t.Fatalf("%q: asked %v, want all", key, got)
		}
		for n, want := range got { // each owns the key when those before it are away
			order = nil
			_, _ = m.Stat(t.Context(), key, muxcore.Conditions{})
			if order[0] != want {
				t.Errorf("%q: %v were asked one after the other, but without %v it is %s's", key, got, got[:n], order[0])
			}
			if err := m.Drain(t.Context(), want); err != nil {
				t.Fatal(err)
			}
		}
		for _, b := range got {
			if err := m.Undrain(b); err != nil {
				t.Fatal(err)
			}
		}
		turns := "b0 b1 b2 b3 b0 b1 b2"
		if !strings.Contains(turns, strings.Join(got, " ")) {
			turned++
		}
	}
	if turned == 0 {
		t.Error("every key went round in the order of the config")
	}
}

// A write goes to the origin and all mirrors; the origin's word decides, and nobody commits against it.
func TestShield(t *testing.T) {
	backends, hooks := crowd(t, 1, 1, 1)
	m := newMux(t, muxcore.Settings{Mode: muxcore.Shield, Cooldown: 1, MaxCooldown: 1}, backends...)
	put(t, m, "new", long(100_000))
	for i := range hooks {
		if _, _, err := read(t.Context(), hooks[i].Store, "new", muxcore.GetOptions{}); err != nil {
			t.Errorf("backend %d lacks the object: %v", i, err)
		}
	}
	for _, size := range []int{10, 100_000} {
		hooks[0].set(fails)
		if _, err := m.Put(t.Context(), "refused", strings.NewReader(long(size)), int64(size), muxcore.PutOptions{}); err == nil {
			t.Error("Put succeeds against the origin")
		}
		for i := range hooks {
			if _, err := hooks[i].Store.Stat(t.Context(), "refused", muxcore.Conditions{}); err == nil {
				t.Errorf("backend %d has committed what the origin refused", i)
			}
		}
		hooks[0].set(nil)
		hooks[2].set(fails)
		r, err := m.Put(t.Context(), "partial", strings.NewReader(long(size)), int64(size), muxcore.PutOptions{})
		if err != nil || fmt.Sprint(r.Missed) != "[b2]" {
			t.Errorf("Put that a mirror missed = %+v, %v", r.Missed, err)
		}
		hooks[2].set(nil)
	}
	hooks[0].set(fails)
	if info, err := m.Stat(t.Context(), "new", muxcore.Conditions{}); err != nil || info.Via.Backend != "b1" {
		t.Errorf("Stat = %+v, %v, want the next mirror to answer", info.Via, err)
	}
}
