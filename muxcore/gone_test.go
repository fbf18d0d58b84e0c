package muxcore_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// keepsObjects lets a store do anything but delete.
func keepsObjects(_ context.Context, op muxcore.Op) error {
	if op == muxcore.OpDelete {
		return &muxcore.Error{Code: muxcore.CodeDenied}
	}
	return nil
}

// Once a key is deleted, a stale copy that a backend still has makes nobody believe that there was an object: another
// Delete finds none, whether it can be asked by then or not, and a Put makes a new one.
func TestACopyThatShouldBeGoneIsNoObject(t *testing.T) {
	for _, mode := range []muxcore.Mode{muxcore.Mirror, muxcore.Shield, muxcore.Failover, muxcore.RoundRobin, muxcore.StickyByKey} {
		for name, again := range map[string]func(context.Context, muxcore.Op) error{"keeps it": keepsObjects, "is back": nil, "is down": fails} {
			t.Run(string(mode)+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					backends, hooks := crowd(t, 1, 1, 1)
					m := newMux(t, muxcore.Settings{Mode: mode, Journal: newJournal(t).Scope("")}, backends...)
					hooks[1].set(keepsObjects)
					r, err := m.Delete(t.Context(), "k", muxcore.DeleteOptions{})
					if err != nil || len(r.Missed) != 1 {
						t.Fatalf("Delete = %+v, %v, want it missed by one", r, err)
					}
					hooks[1].set(again)
					for range 2 {
						if r, err := m.Delete(t.Context(), "k", muxcore.DeleteOptions{}); !errors.Is(err, muxcore.ErrKeyNotFound) {
							t.Errorf("Delete again = %+v, %v, want not found", r, err)
						}
					}
					hooks[1].set(nil)
					put(t, hooks[1].Store, "k", "back")
					if again == nil {
						return // nothing is pending any more
					}
					if r := put(t, m, "k", "new"); r.Existed {
						t.Errorf("Put = %+v, which says that there was an object", r)
					}
					if r := put(t, m, "k", "newer"); !r.Existed && mode != muxcore.RoundRobin {
						t.Errorf("Put over it = %+v, which says that there was none", r)
					}
				})
			})
		}
	}
}

// What came back behind our back, on a backend that had deleted it, is an object.
func TestAnObjectThatCameBackIsDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backends, hooks := crowd(t, 1, 1)
		m := newMux(t, muxcore.Settings{Mode: muxcore.Mirror, Journal: newJournal(t).Scope("")}, backends...)
		hooks[1].set(keepsObjects)
		if _, err := m.Delete(t.Context(), "k", muxcore.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		put(t, hooks[0].Store, "k", "by somebody else")
		if r, err := m.Delete(t.Context(), "k", muxcore.DeleteOptions{}); err != nil || r.Via.Backend != "b0" {
			t.Errorf("Delete = %+v, %v, want it deleted on b0", r, err)
		}
	})
}

// The origin had missed that the key was deleted; what it deletes late is no news, but who inside it missed that is.
func TestWhatIsMissedInsideAnOriginThatWasBehindIsTold(t *testing.T) {
	told := false
	for try := 0; try < 50 && !told && !t.Failed(); try++ {
		synctest.Test(t, func(t *testing.T) { told = missedInsideIsTold(t) })
	}
	if !told {
		t.Error("a repair comes first each time")
	}
}

// missedInsideIsTold tells whether the delete under test came before a repair of the origin, which would have left it nothing to tell.
func missedInsideIsTold(t *testing.T) bool {
	inner, hooks := crowd(t, 1, 1)
	back := memory(t)
	put(t, back, "k", "body")
	j := newJournal(t)
	var repaired atomic.Bool
	tree := func(mode muxcore.Mode) *muxcore.Mux {
		observe := func(e muxcore.Event) {
			if e.Kind == muxcore.EventRepaired {
				repaired.Store(true)
			}
		}
		in := newMux(t, muxcore.Settings{Mode: muxcore.Mirror, Journal: j.Scope("in"), Observe: observe}, inner...)
		return newMux(t, muxcore.Settings{Mode: mode, Journal: j.Scope(""), Observe: observe}, muxcore.Backend{Name: "in", Store: in}, muxcore.Backend{Name: "back", Store: back})
	}
	hooks[0].set(func(ctx context.Context, op muxcore.Op) error { // out of service, so that it is left alone for a while
		if op == muxcore.OpDelete {
			return fails(ctx, op)
		}
		return nil
	})
	hooks[1].set(keepsObjects)
	if r, err := tree(muxcore.Mirror).Delete(t.Context(), "k", muxcore.DeleteOptions{}); err != nil || !slices.Contains(r.Missed, "in") {
		t.Fatalf("Delete = %+v, %v, want it missed by in", r, err)
	}
	hooks[0].set(nil)
	put(t, back, "k", "by somebody else")
	r, err := tree(muxcore.Shield).Delete(t.Context(), "k", muxcore.DeleteOptions{})
	if repaired.Load() {
		return false
	}
	if err != nil || r.Via.Backend != "back" || !slices.Contains(r.Missed, "in.b1") {
		t.Errorf("Delete = %+v, %v, want it deleted on back, and missed by in.b1", r, err)
	}
	return true
}
