package muxcore_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// copyAll has a mirror of which b1 lacks n keys of size bytes brought together, and tells how long it took by its clock.
func copyAll(t *testing.T, rate int64, n, size int) time.Duration {
	t.Helper()
	backends, hooks := crowd(t, 1, 1)
	m := newMux(t, muxcore.Settings{Mode: muxcore.Mirror, RepairRate: rate}, backends...)
	for i := range n {
		put(t, hooks[0].Store, fmt.Sprint("large", i), long(size))
	}
	began := time.Now()
	if _, errs := repair(t, m, muxcore.RepairOptions{}); len(errs) > 0 {
		t.Fatal(errs)
	}
	took := time.Since(began)
	for i := range n {
		wantAlike(t, hooks, fmt.Sprint("large", i), long(size))
	}
	return took
}

// The copies of a repair keep to their bytes a second, however many are under way.
func TestARepairKeepsToItsRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if took := copyAll(t, 100_000, 5, 200_000); took < 9*time.Second || took > 11*time.Second {
			t.Errorf("a megabyte at 100 kB/s took %v", took)
		}
		if took := copyAll(t, -1, 5, 200_000); took > time.Second {
			t.Errorf("without a bound it took %v", took)
		}
	})
}

// What is brought to a backend that was away, and what reads set right, goes by the same rate.
func TestTheBackgroundKeepsToTheRate(t *testing.T) {
	for name, set := range map[string]muxcore.Settings{"missed": {}, "read": {ReadRepair: true}} {
		synctest.Test(t, func(t *testing.T) {
			backends, hooks := crowd(t, 1, 1)
			set.Mode, set.RepairRate, set.Timeout = muxcore.Mirror, 10_000, 5*time.Second
			if !set.ReadRepair {
				set.Journal = newJournal(t).Scope("")
			}
			m := newMux(t, set, backends...)
			if set.ReadRepair {
				put(t, hooks[1].Store, "large", long(200_000))
				hooks[1].set(func(ctx context.Context, op muxcore.Op) error { // so that b0 is first to answer
					if op == muxcore.OpGet && ctx.Value(slowly{}) != nil {
						time.Sleep(time.Millisecond)
					}
					return nil
				})
				if _, _, err := read(context.WithValue(t.Context(), slowly{}, true), m, "large", muxcore.GetOptions{}); err != nil {
					t.Fatal(err)
				}
			} else {
				hooks[0].set(fails)
				put(t, m, "large", long(200_000))
				hooks[0].set(nil)
			}
			began := time.Now()
			for time.Since(began) < time.Minute {
				if _, err := hooks[0].Store.Stat(t.Context(), "large", muxcore.Conditions{}); err == nil {
					break
				}
				time.Sleep(time.Second / 10)
			}
			if took := time.Since(began); took < 18*time.Second || took > 40*time.Second {
				t.Errorf("%s: 200 kB at 10 kB/s took %v", name, took)
			}
		})
	}
}

// slowly marks the calls of a read among those of its repair.
type slowly struct{}
