package muxcore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/journal"
	"github.com/suaveplan/caddy-storage-mux/muxcore/storetest"
)

// newJournal makes a journal that the test closes, after the muxes that the test makes later.
func newJournal(tb testing.TB) *journal.Journal {
	tb.Helper()
	j := journal.New(filepath.Join(tb.TempDir(), "journal"), journal.Settings{})
	tb.Cleanup(func() {
		if err := j.Close(); err != nil {
			tb.Error(err)
		}
	})
	return j
}

// blocked is a journal that cannot be made, as a file is where its directory should be.
func blocked(tb testing.TB) *journal.Journal {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		tb.Fatal(err)
	}
	return journal.New(filepath.Join(path, "journal"), journal.Settings{})
}

// wantAlike compares what the stores hold at key; want is "" for nothing.
func wantAlike(tb testing.TB, hooks []*hooked, key, want string) {
	tb.Helper()
	for i, h := range hooks {
		got, _, err := read(tb.Context(), h.Store, key, muxcore.GetOptions{})
		if want == "" && !errors.Is(err, muxcore.ErrKeyNotFound) || want != "" && got != want {
			tb.Errorf("backend %d holds %.20q, %v at %q, want %.20q", i, got, err, key, want)
		}
	}
}

func pendingOf(m *muxcore.Mux) (all []int) {
	for _, b := range m.Stats().Backends {
		all = append(all, b.PendingRepairs)
	}
	return all
}

// What a backend missed while it was down, or drained, it gets once it is back: puts, overwrites and deletes, with
// everything that was stored.
func TestABackendGetsWhatItMissed(t *testing.T) {
	for _, mode := range []muxcore.Mode{muxcore.Mirror, muxcore.Shield, muxcore.Failover} {
		for _, drained := range []bool{false, true} {
			t.Run(fmt.Sprint(mode, "/drained ", drained), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					backends, hooks := crowd(t, 1, 1)
					ill := 1
					if mode == muxcore.Failover {
						ill = 0
					}
					m := newMux(t, muxcore.Settings{Mode: mode, Journal: newJournal(t).Scope("")}, backends...)
					put(t, m, "gone", "old")
					put(t, hooks[ill].Store, "gone", "old")
					if drained {
						if err := m.Drain(t.Context(), fmt.Sprint("b", ill)); err != nil {
							t.Fatal(err)
						}
					} else {
						hooks[ill].set(fails)
					}
					opts := muxcore.PutOptions{Attributes: muxcore.Attributes{ContentType: "text/x", CacheControl: "no-store", Metadata: map[string]string{"a": "b"}}}
					r, err := m.Put(t.Context(), "new", strings.NewReader("one"), 3, opts)
					if err != nil || len(r.Missed) != 1 {
						t.Fatalf("Put = %+v, %v, want it missed by one", r.Missed, err)
					}
					put(t, m, "k", "overwritten")
					put(t, m, "large", long(300_000))
					if _, err := m.Delete(t.Context(), "gone", muxcore.DeleteOptions{}); err != nil {
						t.Fatal(err)
					}
					if got := pendingOf(m)[ill]; got != 4 {
						t.Errorf("%d keys pending, want 4", got)
					}
					hooks[ill].set(nil)
					if drained {
						if err := m.Undrain(fmt.Sprint("b", ill)); err != nil {
							t.Fatal(err)
						}
					}
					time.Sleep(3 * time.Minute)
					if got := pendingOf(m)[ill]; got != 0 {
						t.Errorf("%d keys still pending", got)
					}
					wantAlike(t, hooks, "k", "overwritten")
					wantAlike(t, hooks, "new", "one")
					wantAlike(t, hooks, "large", long(300_000))
					wantAlike(t, hooks, "gone", "")
					info, err := hooks[ill].Store.Stat(t.Context(), "new", muxcore.Conditions{})
					if err != nil || info.ETag != r.ETag || info.ContentType != "text/x" || info.CacheControl != "no-store" || info.Metadata["a"] != "b" || !info.ModTime.Equal(r.ModTime) {
						t.Errorf("the copy is %+v, %v, put was %+v", info, err, r.Info)
					}
				})
			})
		}
	}
}

// A stale copy is not read while anybody else can answer, a deleted key is 404 at once, and a 404 of who lacks a key is none.
func TestAStaleCopyIsNotRead(t *testing.T) {
	for _, mode := range muxcore.Modes() {
		for _, hedge := range []time.Duration{0, 1} {
			t.Run(fmt.Sprint(mode, "/hedge ", hedge), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					backends, hooks := crowd(t, 1, 1, 1)
					scope := newJournal(t).Scope("")
					m := newMux(t, muxcore.Settings{Mode: mode, Hedge: muxcore.Hedge{After: hedge}, OnMissNext: true, Journal: scope}, backends...)
					for i := range hooks { // a copy could not be brought: writes fail
						hooks[i].set(func(_ context.Context, op muxcore.Op) error {
							if op.Writes() {
								return errUnavailable
							}
							return nil
						})
					}
					put(t, hooks[2].Store, "k", "newest")
					if err := scope.Settle("k", 0, journal.Write{}, []string{"b2"}, []string{"b0", "b1"}); err != nil {
						t.Fatal(err)
					}
					for range 5 {
						wantBody(t, m, "k", "newest", "b2")
						if info, err := m.Stat(t.Context(), "k", muxcore.Conditions{}); err != nil || info.Via.Backend != "b2" {
							t.Errorf("Stat = %+v, %v, want b2 to answer", info.Via, err)
						}
					}
					hooks[2].set(fails)
					if got, _, err := read(t.Context(), m, "k", muxcore.GetOptions{}); err != nil || got != "body" {
						t.Errorf("Get = %q, %v, want the stale copy while nobody else can answer", got, err)
					}
					for i := range 2 {
						if _, err := hooks[i].Store.Delete(t.Context(), "k", muxcore.DeleteOptions{}); err != nil {
							t.Fatal(err)
						}
					}
					_, err := m.Stat(t.Context(), "k", muxcore.Conditions{})
					if e, ok := errors.AsType[*muxcore.Error](err); !ok || e.Code != muxcore.CodeAllBackendsDown {
						t.Errorf("Stat = %v, want no 404 by those who lack it", err)
					}
					if err := scope.Settle("gone", 0, journal.Write{Deleted: true}, []string{"b2"}, []string{"b0", "b1"}); err != nil {
						t.Fatal(err)
					}
					put(t, hooks[0].Store, "gone", "old")
					if _, err := m.Get(t.Context(), "gone", muxcore.GetOptions{}); !errors.Is(err, muxcore.ErrKeyNotFound) {
						t.Errorf("Get of a deleted key = %v, want 404 although the holder of the newest state is down", err)
					}
				})
			})
		}
	}
}

// A miss that cannot be remembered makes the write fail, and where it is known before, nobody commits.
func TestAMissThatCannotBeRememberedFailsTheWrite(t *testing.T) {
	for _, mode := range muxcore.Modes() {
		t.Run(string(mode), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				backends, hooks := crowd(t, 1, 1)
				m := newMux(t, muxcore.Settings{Mode: mode, Rendezvous: true, Cooldown: time.Hour, MaxCooldown: time.Hour, Journal: blocked(t).Scope("")}, backends...)
				put(t, m, "whole", "x")
				if _, err := m.Delete(t.Context(), "whole", muxcore.DeleteOptions{}); err != nil {
					t.Errorf("Delete that nobody misses = %v", err)
				}
				ill := 1
				if mode == muxcore.Failover {
					ill = 0
				}
				hooks[ill].set(fails)
				for i, size := range []int{10, 100_000} { // b1 fails the first, and is left alone at the second
					body := long(size)
					_, err := m.Put(t.Context(), "new", strings.NewReader(body), int64(size), muxcore.PutOptions{})
					mayFall := mode != muxcore.Mirror && mode != muxcore.Shield && mode != muxcore.Failover
					if code := muxcore.CodeOf(err); code != muxcore.CodeWriteFanoutPartial && (!mayFall || err != nil) {
						t.Errorf("Put %d = %v, want it refused", i, err)
					}
				}
				if _, err := m.Delete(t.Context(), "k", muxcore.DeleteOptions{}); muxcore.CodeOf(err) != muxcore.CodeWriteFanoutPartial {
					t.Errorf("Delete = %v, want it refused", err)
				}
				if _, err := m.Delete(t.Context(), "k", muxcore.DeleteOptions{}); muxcore.CodeOf(err) != muxcore.CodeWriteFanoutPartial {
					t.Errorf("second Delete = %v, want it refused", err)
				}
			})
		})
	}
}

// Where a miss is known before anybody commits and cannot be remembered, nothing changes anywhere.
func TestAKnownMissIsRememberedBeforeTheCommit(t *testing.T) {
	for _, mode := range []muxcore.Mode{muxcore.Mirror, muxcore.Shield} {
		for _, size := range []int{10, 100_000} {
			synctest.Test(t, func(t *testing.T) {
				backends, hooks := crowd(t, 1, 1)
				m := newMux(t, muxcore.Settings{Mode: mode, Journal: blocked(t).Scope("")}, backends...)
				if err := m.Drain(t.Context(), "b1"); err != nil {
					t.Fatal(err)
				}
				if _, err := m.Put(t.Context(), "k", strings.NewReader(long(size)), int64(size), muxcore.PutOptions{}); muxcore.CodeOf(err) != muxcore.CodeWriteFanoutPartial {
					t.Errorf("%s: Put = %v, want it refused", mode, err)
				}
				if _, err := m.Delete(t.Context(), "k", muxcore.DeleteOptions{}); muxcore.CodeOf(err) != muxcore.CodeWriteFanoutPartial {
					t.Errorf("%s: Delete = %v, want it refused", mode, err)
				}
				wantAlike(t, hooks, "k", "body")
				if s := m.Stats().Backends[0]; s.WritesDown || s.Status != muxcore.StatusUp {
					t.Errorf("%s: b0 is blamed: %+v", mode, s)
				}
			})
		}
	}
}

// A backend that lacks the newest state of a key does not decide conditions on it.
func TestAStaleCopyDecidesNoCondition(t *testing.T) {
	for _, mode := range []muxcore.Mode{muxcore.Mirror, muxcore.Failover, muxcore.RoundRobin} {
		synctest.Test(t, func(t *testing.T) {
			backends, hooks := crowd(t, 1, 1)
			scope := newJournal(t).Scope("")
			m := newMux(t, muxcore.Settings{Mode: mode, Journal: scope}, backends...)
			hooks[0].set(fails)
			for range 2 { // round robin may begin with b1
				_, _ = m.Stat(t.Context(), "k", muxcore.Conditions{})
			}
			newest, err := hooks[1].Store.Put(t.Context(), "k", strings.NewReader("newest"), 6, muxcore.PutOptions{ETag: `"two"`})
			if err != nil {
				t.Fatal(err)
			}
			if err := scope.Settle("k", 0, journal.Write{ETag: newest.ETag}, []string{"b1"}, []string{"b0"}); err != nil {
				t.Fatal(err)
			}
			stale := muxcore.Conditions{IfMatch: `"one"`}
			if _, err := m.Put(t.Context(), "k", strings.NewReader("x"), 1, muxcore.PutOptions{Conditions: stale}); !errors.Is(err, muxcore.ErrPreconditionFailed) {
				t.Errorf("%s: Put over a stale copy = %v, want 412", mode, err)
			}
			if _, err := m.Delete(t.Context(), "k", muxcore.DeleteOptions{Conditions: stale}); !errors.Is(err, muxcore.ErrPreconditionFailed) {
				t.Errorf("%s: Delete of a stale copy = %v, want 412", mode, err)
			}
			if _, err := m.Put(t.Context(), "k", strings.NewReader("x"), 1, muxcore.PutOptions{Conditions: muxcore.Conditions{IfMatch: `"two"`}}); err != nil {
				t.Errorf("%s: Put over the newest = %v", mode, err)
			}
		})
	}
}

// A list shows what reads find: no stale entry, no deleted key, and every key that the first backend lacks.
func TestAListShowsWhatReadsFind(t *testing.T) {
	for _, mode := range muxcore.Modes() {
		t.Run(string(mode), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				backends, hooks := crowd(t, 1, 1)
				scope := newJournal(t).Scope("")
				m := newMux(t, muxcore.Settings{Mode: mode, Journal: scope, OnMissNext: mode == muxcore.RoundRobin || mode == muxcore.Weighted}, backends...)
				for i := range hooks {
					hooks[i].set(func(_ context.Context, op muxcore.Op) error {
						if op.Writes() {
							return errUnavailable
						}
						return nil
					})
				}
				put(t, hooks[0].Store, "deleted/a", "old")
				put(t, hooks[0].Store, "deleted/b", "old")
				put(t, hooks[0].Store, "dir/gone", "old")
				put(t, hooks[0].Store, "dir/kept", "x")
				put(t, hooks[1].Store, "dir/kept", "x")
				put(t, hooks[1].Store, "new/a", "newest")
				put(t, hooks[0].Store, "stale", "old")
				put(t, hooks[1].Store, "stale", "newest")
				for key, w := range map[string]journal.Write{
					"deleted/a": {Deleted: true}, "deleted/b": {Deleted: true}, "dir/gone": {Deleted: true}, "new/a": {}, "stale": {},
				} {
					if err := scope.Settle(key, 0, w, []string{"b1"}, []string{"b0"}); err != nil {
						t.Fatal(err)
					}
				}
				for delimiter, want := range map[string]string{"": "[dir/kept k new/a stale]", "/": "[dir/ k new/ stale]"} {
					var got []string
					for e, err := range m.List(t.Context(), muxcore.ListOptions{Delimiter: delimiter, Limit: 4}) {
						if err != nil {
							t.Fatal(err)
						}
						if e.Key == "stale" && e.Size != 6 {
							t.Errorf("the list has the stale entry of %q", e.Via.Backend)
						}
						got = append(got, e.Key)
					}
					if fmt.Sprint(got) != want {
						t.Errorf("List by %q = %v, want %v", delimiter, got, want)
					}
				}
			})
		})
	}
}

// Writes whose process was killed before it could say how they ended are looked after: what anybody has of them, all get;
// what nobody has, was never written.
func TestAWriteThatWasKilledIsLookedAfter(t *testing.T) {
	one, two := muxcore.PutOptions{ETag: `"one"`}, muxcore.PutOptions{ETag: `"two"`}
	type state struct {
		body string // "" absent
		opts muxcore.PutOptions
	}
	was, is, none := state{"was", one}, state{"is", two}, state{}
	put2, del := journal.Write{ETag: `"two"`}, journal.Write{Deleted: true}
	for name, row := range map[string]struct {
		write journal.Write
		held  [3]state // b2 was not asked
		want  string
	}{
		"put: nobody committed":       {put2, [3]state{was, was, was}, "was"},
		"put: one did":                {put2, [3]state{is, was, was}, "is"},
		"put: the other did":          {put2, [3]state{was, is, was}, "is"},
		"put: both did":               {put2, [3]state{is, is, was}, "is"},
		"a first put: one did":        {put2, [3]state{none, is, none}, "is"},
		"a first put: nobody did":     {put2, [3]state{none, none, none}, ""},
		"delete: nobody committed":    {del, [3]state{was, was, was}, "was"},
		"delete: one did":             {del, [3]state{none, was, was}, ""},
		"delete: both did":            {del, [3]state{none, none, was}, ""},
		"delete of what is not there": {del, [3]state{none, none, none}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "journal")
				killed := journal.New(dir, journal.Settings{})
				if _, err := killed.Scope("").Begin("k", row.write, []string{"b0", "b1"}, []string{"b2"}); err != nil {
					t.Fatal(err)
				}
				_ = killed.Close()
				var backends []muxcore.Backend
				var hooks []*hooked
				for i, s := range row.held {
					h := hook(memory(t), nil)
					if s.body != "" {
						if _, err := h.Store.Put(t.Context(), "k", strings.NewReader(s.body), -1, s.opts); err != nil {
							t.Fatal(err)
						}
					}
					hooks = append(hooks, h)
					backends = append(backends, muxcore.Backend{Name: fmt.Sprint("b", i), Store: h})
				}
				j := journal.New(dir, journal.Settings{})
				t.Cleanup(func() { _ = j.Close() })
				m := newMux(t, muxcore.Settings{Mode: muxcore.Mirror, Journal: j.Scope("")}, backends...)
				time.Sleep(time.Minute)
				wantAlike(t, hooks, "k", row.want)
				if fmt.Sprint(pendingOf(m)) != "[0 0 0]" {
					t.Errorf("pending %v", pendingOf(m))
				}
			})
		})
	}
}

// Backends fail at random under puts and deletes, the process is killed at random, and in the end all backends are alike,
// and hold what was acknowledged last.
func TestWhateverBreaksTheBackendsEndAlike(t *testing.T) {
	for _, mode := range []muxcore.Mode{muxcore.Mirror, muxcore.Shield} {
		for seed := range uint64(storetest.Times(1, 4)) {
			t.Run(fmt.Sprint(mode, "/", seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { breakThings(t, mode, seed) })
			})
		}
	}
}

func breakThings(t *testing.T, mode muxcore.Mode, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 11))
	backends, hooks := crowd(t, 1, 1, 1)
	dir := filepath.Join(t.TempDir(), "journal")
	start := func() (*muxcore.Mux, *journal.Journal) {
		j := journal.New(dir, journal.Settings{})
		m, err := muxcore.New(muxcore.Settings{Mode: mode, Journal: j.Scope(""), Timeout: time.Second, MaxCooldown: 4 * time.Second}, backends...)
		if err != nil {
			t.Fatal(err)
		}
		return m, j
	}
	m, j := start()
	truth, open := map[string]string{"k": "body"}, map[string]bool{}
	for step := range storetest.Times(60, 120) {
		switch random.IntN(8) {
		case 0:
			faults := []func(context.Context, muxcore.Op) error{nil, nil, fails, hangs, slow(300 * time.Millisecond)}
			hooks[random.IntN(3)].set(faults[random.IntN(len(faults))])
		case 1:
			time.Sleep(time.Duration(random.IntN(4000)) * time.Millisecond)
		case 2:
			if random.IntN(4) == 0 { // as far as the journal goes, the end of a process is the end of it
				_ = m.Close()
				_ = j.Close()
				m, j = start()
			}
		}
		key := modelKeys[random.IntN(len(modelKeys))]
		if random.IntN(3) == 0 {
			_, err := m.Delete(t.Context(), key, muxcore.DeleteOptions{})
			if err == nil || errors.Is(err, muxcore.ErrKeyNotFound) {
				delete(truth, key)
				delete(open, key)
			} else {
				open[key] = true // it may have been done all the same
			}
			continue
		}
		body := fmt.Sprint("version ", step, strings.Repeat(".", random.IntN(80_000)))
		if _, err := m.Put(t.Context(), key, strings.NewReader(body), int64(len(body)), muxcore.PutOptions{}); err == nil {
			truth[key] = body
			delete(open, key)
		} else {
			open[key] = true
		}
	}
	for _, h := range hooks {
		h.set(nil)
	}
	time.Sleep(10 * time.Minute)
	if fmt.Sprint(pendingOf(m)) != "[0 0 0]" {
		t.Errorf("pending %v after all", pendingOf(m))
	}
	for _, key := range append(modelKeys, "k") {
		want := truth[key]
		if open[key] {
			want, _, _ = read(t.Context(), hooks[0].Store, key, muxcore.GetOptions{})
		}
		wantAlike(t, hooks, key, want)
	}
	if err := errors.Join(m.Close(), j.Close()); err != nil {
		t.Error(err)
	}
}

// A backend that missed more than is remembered is asked last, until a repair of the whole has brought it what it lacks.
func TestARepairEndsTheDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backends, hooks := crowd(t, 1, 1)
		j := journal.New(filepath.Join(t.TempDir(), "journal"), journal.Settings{MaxMarks: 3})
		t.Cleanup(func() { _ = j.Close() })
		m := newMux(t, muxcore.Settings{Mode: muxcore.Mirror, Journal: j.Scope("")}, backends...)
		hooks[0].set(fails)
		for i := range 6 {
			put(t, m, fmt.Sprint("k", i), "newest")
		}
		put(t, m, "k", "newest")
		hooks[0].set(nil)
		time.Sleep(time.Minute)
		if s := m.Stats().Backends[0]; !s.FullRepairNeeded {
			t.Errorf("b0 is not in doubt: %+v", s)
		}
		for range 5 {
			wantBody(t, m, "k", "newest", "b1")
		}
		put(t, m, "back", "x") // the trial
		for step, err := range m.Repair(t.Context(), muxcore.RepairOptions{}) {
			if err != nil {
				t.Errorf("%+v: %v", step, err)
			}
		}
		if s := m.Stats().Backends[0]; s.FullRepairNeeded || s.PendingRepairs > 0 {
			t.Errorf("b0 is still in doubt: %+v", s)
		}
		wantAlike(t, hooks, "k", "newest")
		wantAlike(t, hooks, "k5", "newest")
	})
}
