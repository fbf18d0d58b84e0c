package muxcore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// holders tells who of the hooks' stores holds key.
func holders(tb testing.TB, hooks []*hooked, key string) string {
	tb.Helper()
	var who []string
	for i, h := range hooks {
		if _, err := h.Store.Stat(tb.Context(), key, muxcore.Conditions{}); err == nil {
			who = append(who, fmt.Sprint("b", i))
		}
	}
	return fmt.Sprint(who)
}

// In a shield the origin's word decides a Delete: what it still has, or may have, nobody deletes.
func TestTheOriginDecidesADelete(t *testing.T) {
	for name, row := range map[string]struct {
		origin func(context.Context, muxcore.Op) error
		cond   muxcore.Conditions
		want   muxcore.Code
		left   string
	}{
		"it deletes":                     {nil, muxcore.Conditions{}, "", "[]"},
		"it deletes, under a condition":  {nil, muxcore.Conditions{IfMatch: `"one"`}, "", "[]"},
		"it fails":                       {fails, muxcore.Conditions{}, muxcore.CodeAllBackendsDown, "[b0 b1 b2]"},
		"it does not let us":             {answers(muxcore.CodeDenied), muxcore.Conditions{}, muxcore.CodeDenied, "[b0 b1 b2]"},
		"it refuses":                     {answers(muxcore.CodeReadOnly), muxcore.Conditions{}, muxcore.CodeReadOnly, "[b0 b1 b2]"},
		"the condition fails":            {nil, muxcore.Conditions{IfMatch: `"two"`}, muxcore.CodePreconditionFailed, "[b0 b1 b2]"},
		"it has none, the mirrors do":    {answers(muxcore.CodeKeyNotFound), muxcore.Conditions{}, "", "[b0]"},
		"it has none, under a condition": {answers(muxcore.CodeKeyNotFound), muxcore.Conditions{IfMatch: `"one"`}, muxcore.CodeKeyNotFound, "[b0 b1 b2]"},
	} {
		t.Run(name, func(t *testing.T) {
			backends, hooks := crowd(t, 1, 1, 1)
			hooks[0].set(row.origin)
			m := newMux(t, muxcore.Settings{Mode: muxcore.Shield}, backends...)
			_, err := m.Delete(t.Context(), "k", muxcore.DeleteOptions{Conditions: row.cond})
			if left := holders(t, hooks, "k"); muxcore.CodeOf(err) != row.want || left != row.left {
				t.Errorf("Delete = %v, and %s hold it; want %q and %s", err, left, row.want, row.left)
			}
		})
	}
	backends, hooks := crowd(t, 1, 1)
	backends[0].ReadOnly = true
	m := newMux(t, muxcore.Settings{Mode: muxcore.Shield}, backends...)
	if _, err := m.Delete(t.Context(), "k", muxcore.DeleteOptions{}); !errors.Is(err, muxcore.ErrReadOnly) || holders(t, hooks, "k") != "[b0 b1]" {
		t.Errorf("Delete with a read-only origin = %v", err)
	}
}

// Whoever still holds the object after a Delete is named, whatever kept it.
func TestWhoKeepsTheObjectIsNamed(t *testing.T) {
	for name, keeps := range map[string]func(context.Context, muxcore.Op) error{
		"it refuses":         answers(muxcore.CodeReadOnly),
		"it fails":           fails,
		"it does not let us": answers(muxcore.CodeDenied),
	} {
		for _, mode := range muxcore.Modes() {
			for _, cond := range []muxcore.Conditions{{}, {IfMatch: `"one"`}} {
				var told []string
				backends, hooks := crowd(t, 1, 1)
				m := newMux(t, muxcore.Settings{Mode: mode, Rendezvous: true, Observe: func(e muxcore.Event) {
					if e.Kind == muxcore.EventFanoutPartial {
						told = append(told, e.Failed...)
					}
				}}, backends...)
				kept := 1
				if !cond.Empty() && mode == muxcore.StickyByKey {
					kept = 1 - owner(t, m, hooks) // the key's own backend decides
				}
				hooks[kept].set(keeps)
				r, err := m.Delete(t.Context(), "k", muxcore.DeleteOptions{Conditions: cond})
				want := fmt.Sprintf("[b%d]", kept)
				if err != nil || fmt.Sprint(r.Missed) != want || fmt.Sprint(told) != want {
					t.Errorf("%s, %s, under %+v: Delete = %+v, %v, told of %v; want %s", name, mode, cond, r, err, told, want)
				}
			}
		}
	}
}

// owner is the index of who is asked first for "k".
func owner(tb testing.TB, m *muxcore.Mux, hooks []*hooked) int {
	tb.Helper()
	info, err := m.Stat(tb.Context(), "k", muxcore.Conditions{})
	if err != nil {
		tb.Fatal(err)
	}
	for i := range hooks {
		if info.Via.Backend == fmt.Sprint("b", i) {
			return i
		}
	}
	tb.Fatalf("%s is none of the backends", info.Via.Backend)
	return -1
}

// A backend that is out of service keeps what it has: a Delete that could not reach it does not say that nobody has it.
func TestADrainedBackendKeepsTheObject(t *testing.T) {
	for _, mode := range muxcore.Modes() {
		backends, hooks := crowd(t, 1, 1)
		m := newMux(t, muxcore.Settings{Mode: mode, FailPartialWrites: true}, backends...)
		put(t, hooks[1].Store, "only", "x")
		if err := m.Drain(t.Context(), "b1"); err != nil {
			t.Fatal(err)
		}
		r, err := m.Delete(t.Context(), "only", muxcore.DeleteOptions{})
		if err != nil || fmt.Sprint(r.Missed) != "[b1]" {
			t.Errorf("%s: Delete = %+v, %v, want it missed by b1, which holds up nobody", mode, r, err)
		}
	}
}

// One backend decides the conditions of a Delete, and the others follow without any: the first of the config that can,
// whoever's turn it is, for whoever writes conditionally must meet the same one.
func TestTheSameBackendDecidesConditions(t *testing.T) {
	for _, mode := range []muxcore.Mode{muxcore.Failover, muxcore.RoundRobin, muxcore.Weighted, muxcore.Mirror} {
		for _, write := range []string{"Put", "Delete"} {
			backends, hooks := crowd(t, 1, 1, 1)
			m := newMux(t, muxcore.Settings{Mode: mode}, backends...)
			for range 6 {
				picks(t, m, 1) // somebody's turn
				calls := [3]int64{hooks[0].calls.Load(), hooks[1].calls.Load(), hooks[2].calls.Load()}
				var err error
				if write == "Put" {
					_, err = m.Put(t.Context(), "k", nil, 0, muxcore.PutOptions{Conditions: muxcore.Conditions{IfMatch: `"two"`}})
				} else {
					_, err = m.Delete(t.Context(), "k", muxcore.DeleteOptions{Conditions: muxcore.Conditions{IfMatch: `"two"`}})
				}
				asked := hooks[0].calls.Load() > calls[0] && (mode == muxcore.Mirror || hooks[1].calls.Load() == calls[1] && hooks[2].calls.Load() == calls[2])
				if !errors.Is(err, muxcore.ErrPreconditionFailed) || backendOf(err) != "b0" || !asked {
					t.Errorf("%s: %s = %v, want b0 alone to decide", mode, write, err)
				}
			}
			hooks[0].set(fails)
			r, err := m.Delete(t.Context(), "k", muxcore.DeleteOptions{Conditions: muxcore.Conditions{IfMatch: `"one"`}})
			if err != nil || r.Via.Backend != "b1" || fmt.Sprint(r.Missed) != "[b0]" || holders(t, hooks, "k") != "[b0]" {
				t.Errorf("%s: Delete with b0 ill = %+v, %v, held by %s; want b1 to decide", mode, r, err, holders(t, hooks, "k"))
			}
			hooks[1].set(fails)
			hooks[2].set(fails)
			if _, err := m.Delete(t.Context(), "k", muxcore.DeleteOptions{Conditions: muxcore.Conditions{IfMatch: `"one"`}}); muxcore.CodeOf(err) != muxcore.CodeAllBackendsDown {
				t.Errorf("%s: Delete with all ill = %v, want all down", mode, err)
			}
		}
	}
}

// Under sticky_by_key it is the key's own backend that decides: there is no other copy.
func TestTheKeysOwnBackendDecidesItsConditions(t *testing.T) {
	backends, hooks := crowd(t, 1, 1, 1)
	m := newMux(t, muxcore.Settings{Mode: muxcore.StickyByKey}, backends...)
	for i := range 20 {
		key := fmt.Sprint("key-", i)
		own := put(t, m, key, "x").Via.Backend
		if got := holders(t, hooks, key); got != "["+own+"]" {
			t.Fatalf("%s is held by %s, put on %s", key, got, own)
		}
		_, err := m.Put(t.Context(), key, nil, 0, muxcore.PutOptions{Conditions: muxcore.Conditions{IfNoneMatch: "*"}})
		if !errors.Is(err, muxcore.ErrPreconditionFailed) || backendOf(err) != own {
			t.Errorf("Put(%q) if it is not there = %v, want it refused by %s", key, err, own)
		}
		if r, err := m.Delete(t.Context(), key, muxcore.DeleteOptions{Conditions: muxcore.Conditions{IfMatch: "*"}}); err != nil || r.Via.Backend != own {
			t.Errorf("Delete(%q) = %+v, %v, want %s to decide", key, r, err, own)
		}
	}
}
