package muxcore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/storetest"
)

// settle lets what goes on in the background come to its end.
func settle() {
	time.Sleep(10 * time.Second)
	synctest.Wait()
}

// lacks tells whether a store has no such key.
func lacks(tb testing.TB, s muxcore.Store, key string) bool {
	tb.Helper()
	_, err := s.Stat(tb.Context(), key, muxcore.Conditions{})
	if err != nil && !errors.Is(err, muxcore.ErrKeyNotFound) {
		tb.Fatal(err)
	}
	return err != nil
}

func TestReadRepairCopiesToThoseThatWereAskedBefore(t *testing.T) {
	reads := map[string]func(ctx context.Context, m *muxcore.Mux) error{
		"Get": func(ctx context.Context, m *muxcore.Mux) error {
			_, _, err := read(ctx, m, "k", muxcore.GetOptions{})
			return err
		},
		"a part": func(ctx context.Context, m *muxcore.Mux) error {
			_, _, err := read(ctx, m, "k", muxcore.GetOptions{Range: muxcore.Range{Offset: 3, Length: 2}})
			return err
		},
		"Stat": func(ctx context.Context, m *muxcore.Mux) error {
			_, err := m.Stat(ctx, "k", muxcore.Conditions{})
			return err
		},
		"Stat of what the client has": func(ctx context.Context, m *muxcore.Mux) error {
			if _, err := m.Stat(ctx, "k", muxcore.Conditions{IfNoneMatch: "*"}); !errors.Is(err, muxcore.ErrNotModified) {
				return fmt.Errorf("Stat = %w", err)
			}
			return nil
		},
	}
	for name, do := range reads {
		for _, set := range []muxcore.Settings{{Mode: muxcore.Mirror}, {Mode: muxcore.Failover, OnMissNext: true}, {Mode: muxcore.Failover, OnMissNext: true, Hedge: muxcore.Hedge{After: time.Second}}} {
			for _, on := range []bool{true, false} {
				t.Run(fmt.Sprint(name, " in ", set.Mode, ", on ", on), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						var told []string
						set.ReadRepair = on
						set.Observe = func(e muxcore.Event) {
							if e.Kind == muxcore.EventRepaired {
								told = append(told, fmt.Sprint(e.Op, " ", e.Key, " ", e.From, "→", e.Name, " ", e.Cause))
							}
						}
						stores := three(t)
						stores[2].From(muxcore.OpGet, 1, storetest.Delay(time.Millisecond)) // the others are asked first
						stores[2].From(muxcore.OpStat, 1, storetest.Delay(time.Millisecond))
						m := newMux(t, set, named(stores...)...)
						version(t, stores[2], "k", 1)
						if err := do(t.Context(), m); err != nil {
							t.Fatal(err)
						}
						settle()
						want := []string{"put k c→a read", "put k c→b read"}
						if !on {
							want = nil
						}
						slices.Sort(told)
						if diff := cmp.Diff(want, told); diff != "" {
							t.Errorf("told (-want +got):\n%s", diff)
						}
						if on {
							wantVerified(t, m, muxcore.VerifyOptions{Deep: true})
						}
						if lacks(t, stores[0], "k") == on {
							t.Errorf("the first lacks it: %t", on)
						}
						noLeaks(t, stores...)
					})
				})
			}
		}
	}
}

func TestReadRepairLeavesAlone(t *testing.T) {
	tests := []struct {
		name  string
		set   muxcore.Settings
		setup func(backends []muxcore.Backend, stores []*storetest.Faulty)
		after func(t *testing.T, m *muxcore.Mux, stores []*storetest.Faulty)
		want  string // at the first, "" nothing
	}{
		{name: "a read-only backend", setup: func(backends []muxcore.Backend, _ []*storetest.Faulty) {
			backends[0].ReadOnly = true
		}},
		{name: "a store that cannot write", setup: func(_ []muxcore.Backend, stores []*storetest.Faulty) {
			stores[0].SetCapabilities(muxcore.Capabilities{List: true})
		}},
		{name: "what was written meanwhile", want: "version 9 of k.........", after: func(t *testing.T, _ *muxcore.Mux, stores []*storetest.Faulty) {
			version(t, stores[0], "k", 9)
		}},
		{
			name: "what was written meanwhile, without conditional writes", want: "version 9 of k.........",
			setup: func(_ []muxcore.Backend, stores []*storetest.Faulty) {
				stores[0].SetCapabilities(muxcore.Capabilities{Write: true, List: true, Metadata: true})
			},
			after: func(t *testing.T, _ *muxcore.Mux, stores []*storetest.Faulty) { version(t, stores[0], "k", 9) },
		},
		{name: "what was deleted meanwhile", after: func(t *testing.T, m *muxcore.Mux, _ []*storetest.Faulty) {
			if _, err := m.Delete(t.Context(), "k", muxcore.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		}},
		{name: "what the origin of a shield lacks", set: muxcore.Settings{Mode: muxcore.Shield, OnMissNext: true}},
		{name: "all, where the first word is final", set: muxcore.Settings{Mode: muxcore.Failover}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if test.set.Mode == "" {
					test.set = muxcore.Settings{Mode: muxcore.Failover, OnMissNext: true}
				}
				test.set.ReadRepair = true
				stores := three(t)
				backends := named(stores...)
				if test.setup != nil {
					test.setup(backends, stores)
				}
				m := newMux(t, test.set, backends...)
				version(t, stores[2], "k", 1)
				if test.after != nil { // the copy takes its time
					stores[2].On(muxcore.OpGet, 2, storetest.StallBody(4))
				}
				if _, _, err := read(t.Context(), m, "k", muxcore.GetOptions{}); (err != nil) != (test.set.Mode == muxcore.Failover && !test.set.OnMissNext) {
					t.Fatal(err)
				}
				synctest.Wait()
				if test.after != nil {
					test.after(t, m, stores)
					stores[2].Release()
				}
				settle()
				if got := holds(t, stores[0])["k"]; got != test.want {
					t.Errorf("the first holds %q, want %q", got, test.want)
				}
				noLeaks(t, stores...)
			})
		})
	}
}

func TestReadRepairIsRateLimitedAndBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := three(t)[:2]
		m := newMux(t, muxcore.Settings{Mode: muxcore.Failover, OnMissNext: true, ReadRepair: true}, named(stores...)...)
		const keys = 1300
		for i := range keys {
			put(t, stores[1], fmt.Sprint("k", i), "body")
		}
		started := time.Now()
		for i := range keys {
			for range 3 { // each key waits once
				if _, err := m.Stat(t.Context(), fmt.Sprint("k", i), muxcore.Conditions{}); err != nil {
					t.Fatal(err)
				}
			}
		}
		time.Sleep(time.Until(started.Add(10*time.Second - time.Millisecond)))
		synctest.Wait()
		if n := stores[0].Calls(muxcore.OpPut); n < 190 || n > 201 {
			t.Errorf("%d copies in ten seconds, want 20 a second", n)
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if n := len(holds(t, stores[0])); n < 1024 || n > 1026 || stores[0].Calls(muxcore.OpPut) != n {
			t.Errorf("%d keys of %d were copied, in %d Puts", n, keys, stores[0].Calls(muxcore.OpPut))
		}
		if _, err := m.Stat(t.Context(), fmt.Sprint("k", keys-1), muxcore.Conditions{}); err != nil {
			t.Fatal(err)
		}
		settle()
		if lacks(t, stores[0], fmt.Sprint("k", keys-1)) {
			t.Error("a key for which there was no room is not copied at the next read")
		}
	})
}

func TestReadRepairDoesNotInsist(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := three(t)[:2]
		m := newMux(t, muxcore.Settings{Mode: muxcore.Mirror, ReadRepair: true}, named(stores...)...)
		version(t, stores[1], "k", 1)
		stores[1].From(muxcore.OpStat, 1, storetest.Delay(time.Millisecond))
		stores[0].From(muxcore.OpPut, 1, storetest.FailCode(muxcore.CodeTooLarge))
		for range 50 {
			if _, err := m.Stat(t.Context(), "k", muxcore.Conditions{}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		if n := stores[0].Calls(muxcore.OpPut); n != 1 {
			t.Errorf("%d tries within a minute of the first", n)
		}
		time.Sleep(time.Minute)
		stores[0].Mend()
		if _, err := m.Stat(t.Context(), "k", muxcore.Conditions{}); err != nil {
			t.Fatal(err)
		}
		settle()
		if lacks(t, stores[0], "k") {
			t.Error("it was not tried again")
		}
	})
}

func TestReadRepairInStickyGoesToTheKeysOwnBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := three(t)
		m := newMux(t, muxcore.Settings{Mode: muxcore.StickyByKey, OnMissNext: true, ReadRepair: true}, named(stores...)...)
		for i := range 30 {
			version(t, stores[i%3], fmt.Sprint("k", i), 1)
			if _, err := m.Stat(t.Context(), fmt.Sprint("k", i), muxcore.Conditions{}); err != nil {
				t.Fatal(err)
			}
		}
		settle()
		wantVerified(t, m, muxcore.VerifyOptions{})
		copies := 0
		for _, s := range stores {
			copies += len(holds(t, s))
		}
		if copies <= 30 || copies >= 60 {
			t.Errorf("%d copies of 30 keys, want one where the key belongs and the one that was there", copies)
		}
	})
}

func TestCloseEndsReadRepair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := three(t)[:2]
		m := newMuxUnclosed(t, muxcore.Settings{Mode: muxcore.Failover, OnMissNext: true, ReadRepair: true}, named(stores...)...)
		body := strings.Repeat("abc", 100_000)
		for i := range 5 {
			put(t, stores[1], fmt.Sprint("k", i), body)
		}
		stores[1].From(muxcore.OpGet, 1, storetest.StallBody(150_000))
		for i := range 5 {
			if _, err := m.Stat(t.Context(), fmt.Sprint("k", i), muxcore.Conditions{}); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if n := stores[1].Stalled(); n != 1 {
			t.Fatalf("%d copies under way, want one", n)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		noLeaks(t, stores...)
		if n := len(holds(t, stores[0])); n > 0 {
			t.Errorf("%d copies", n)
		}
	})
}
