package muxcore

import (
	"context"
	"math"
	"slices"
	"sync"
	"testing"
	"time"
)

// Vitter's algorithm R: after n samples each of them is in the reservoir with the same chance, 256/n.
func TestReservoirIsUniform(t *testing.T) {
	const n, rounds, parts = 4096, 60, 8
	var hits [parts]int
	for range rounds {
		var r reservoir
		for i := range n {
			r.add(time.Duration(i))
		}
		for i := range r.slots {
			hits[int(r.slots[i].Load())*parts/n]++
		}
	}
	want := float64(rounds*reservoirSize) / parts
	sigma := math.Sqrt(want * (1 - 1.0/parts))
	for part, got := range hits {
		if math.Abs(float64(got)-want) > 4*sigma {
			t.Errorf("part %d of the stream has %d of the samples, want %.0f +- %.0f", part, got, want, 4*sigma)
		}
	}
}

func TestQuantiles(t *testing.T) {
	var r reservoir
	if got := r.quantiles(0.5, 0.99); !slices.Equal(got, []time.Duration{0, 0}) {
		t.Errorf("quantiles of nothing = %v", got)
	}
	for i := range 100 {
		r.add(time.Duration(99 - i))
	}
	if got := r.quantiles(0, 0.5, 0.99, 1); !slices.Equal(got, []time.Duration{0, 50, 99, 99}) {
		t.Errorf("quantiles of 0..99 = %v", got)
	}
}

func TestTheNewestLatenciesAreInOrder(t *testing.T) {
	var r reservoir
	var want []time.Duration
	for i := range time.Duration(3*recentSize + 5) {
		r.add(i)
		if want = append(want, i); len(want) > recentSize {
			want = want[1:]
		}
		if got := r.newest(); !slices.Equal(got, want) {
			t.Fatalf("newest = %v, want %v", got, want)
		}
	}
}

func TestCountersUnderLoad(t *testing.T) {
	var c counters
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 1000 {
				c.record(ClassOK, nil, 1)
				c.record(ClassSemantic, ErrKeyNotFound, 1)
				c.record(ClassSemantic, ErrNotModified, 1)
				c.record(ClassTransient, ErrAllBackendsDown, 1)
				c.record(ClassTimeout, ErrAllBackendsDown, 1)
				c.record(ClassAbort, context.Canceled, 1)
			}
		})
	}
	wg.Wait()
	got := [...]uint64{c.hits.Load(), c.misses.Load(), c.errors.Load(), c.timeouts.Load(), c.latency.seen.Load()}
	if want := [...]uint64{8000, 8000, 16000, 8000, 40000}; got != want {
		t.Errorf("hits, misses, errors, timeouts, samples = %v, want %v", got, want)
	}
}

func TestCooldownFormula(t *testing.T) {
	for f, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60, 60} {
		if got := cooldown(time.Second, time.Minute, f); got != want*time.Second {
			t.Errorf("cooldown after %d failures before = %v, want %vs", f, got, int(want))
		}
	}
	if got := cooldown(time.Second, time.Hour, 100); got != 64*time.Second {
		t.Errorf("cooldown after 100 = %v, want 2^6", got)
	}
}

// A failure from before the last transition neither lengthens the cooldown nor counts.
func TestStaleResultsAreVoid(t *testing.T) {
	var h health
	now := time.Now()
	record := func(p permit, class Class) transition {
		return h.record(p, class, ErrAllBackendsDown, now, rests{base: time.Second, most: time.Minute, float64: func() float64 { return 0 }})
	}
	var admitted []permit
	for range 100 {
		p, ok := h.enter()
		if !ok {
			t.Fatal("not admitted while up")
		}
		admitted = append(admitted, p)
	}
	for i, p := range admitted {
		if tr := record(p, ClassTransient); tr.wentDown != (i == 0) {
			t.Fatalf("failure %d: %+v", i, tr)
		}
	}
	if v := h.view(); v.failures != 1 || v.until != now.Add(time.Second) {
		t.Errorf("after 100 failures at once: %+v, want one counted", v)
	}
	now = now.Add(time.Second)
	trial, ok, _ := h.acquire(now, false)
	if !ok {
		t.Fatal("no trial after the cooldown")
	}
	if tr := record(admitted[0], ClassOK); tr != (transition{}) {
		t.Errorf("a stale success: %+v", tr)
	}
	if tr := record(trial, ClassSemantic); !tr.recovered || tr.downFor != time.Second {
		t.Errorf("a trial that was answered no: %+v, want recovery", tr)
	}
}

// The alias table is exact: the chances of its slots add up to the weights.
func TestAliasTableIsExact(t *testing.T) {
	for _, weights := range [][]int64{{1}, {1, 1}, {1, 2, 3, 4, 5}, {1000000, 1}, {3, 3, 3, 1, 90, 7, 11}} {
		var backends []*backend
		sum := 0.0
		for _, w := range weights {
			b := new(backend)
			b.weight.Store(w)
			backends = append(backends, b)
			sum += float64(w)
		}
		table := newAliasTable(backends)
		chance := make([]float64, len(weights))
		for slot, keep := range table.keep {
			chance[slot] += keep / float64(len(weights))
			chance[table.other[slot]] += (1 - keep) / float64(len(weights))
		}
		for i, w := range weights {
			if want := float64(w) / sum; math.Abs(chance[i]-want) > 1e-12 {
				t.Errorf("weights %v: chance of %d is %v, want %v", weights, i, chance[i], want)
			}
		}
		for _, random := range []float64{0, 0.999999999999, math.Nextafter(1, 0)} {
			if i := table.draw(random); i < 0 || i >= len(weights) {
				t.Errorf("draw(%v) = %d", random, i)
			}
		}
	}
}
