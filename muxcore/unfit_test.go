package muxcore_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/filestore"
)

// A backend that can never hold a key is no reason not to ask the others: only where none can, the key is a bad one.
func TestABackendThatCanNeverHoldAKeyDoesNotEndARead(t *testing.T) {
	const key = "CON/x" // a folder of that name cannot be on Windows
	narrow := func(name string) muxcore.Backend {
		s, err := filestore.New(filestore.Settings{Root: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		return muxcore.Backend{Name: name, Store: s, ReadOnly: true, Weight: new(1)}
	}
	for _, mode := range muxcore.Modes() {
		for _, next := range []bool{false, true} {
			set := muxcore.Settings{Mode: mode, OnMissNext: next}
			for name, row := range map[string]struct {
				held, down bool
				want       muxcore.Code
			}{
				"another has it":          {held: true},
				"another lacks it":        {want: muxcore.CodeKeyNotFound},
				"another cannot be asked": {down: true, want: muxcore.CodeAllBackendsDown},
			} {
				backends, hooks := crowd(t, 1)
				m := newMux(t, set, narrow("narrow"), backends[0])
				if row.held {
					put(t, backends[0].Store, key, "body")
				}
				if row.down {
					hooks[0].set(fails)
				}
				if _, err := m.Stat(t.Context(), key, muxcore.Conditions{}); muxcore.CodeOf(err) != row.want {
					t.Errorf("%s, on_miss next %t, %s: Stat = %v, want %s", mode, next, name, err, row.want)
				}
				o, err := m.Get(t.Context(), key, muxcore.GetOptions{})
				if muxcore.CodeOf(err) != row.want {
					t.Errorf("%s, on_miss next %t, %s: Get = %v, want %s", mode, next, name, err, row.want)
				}
				if err == nil {
					_ = o.Body.Close()
				}
			}
			m := newMux(t, set, narrow("a"), narrow("b"))
			if _, err := m.Stat(t.Context(), key, muxcore.Conditions{}); muxcore.CodeOf(err) != muxcore.CodeInvalidKey {
				t.Errorf("%s, on_miss next %t, where nobody can hold it: Stat = %v", mode, next, err)
			}
		}
	}
}

// Nor is it one to remember a delete that it was not asked for: it has nothing to delete, and could never be brought up to date.
func TestADeleteGoesPastThoseThatCanNeverHoldTheKey(t *testing.T) {
	const key = "CON/x"
	for _, mode := range muxcore.Modes() {
		for name, row := range map[string]struct {
			down, held bool // narrow is down, the other one has it
			wide       bool // there is another one
			nested     bool // narrow is in a mux of its own
			want       muxcore.Code
		}{
			"it is up, and the other has it":    {wide: true, held: true},
			"it is down, and the other has it":  {wide: true, held: true, down: true},
			"it is in a mux, and down":          {wide: true, held: true, down: true, nested: true},
			"it is up, and the other lacks it":  {wide: true, want: muxcore.CodeKeyNotFound},
			"it is down, and so does another":   {wide: true, down: true, want: muxcore.CodeKeyNotFound},
			"there is no other":                 {want: muxcore.CodeInvalidKey},
			"there is no other, and it is down": {down: true, want: muxcore.CodeInvalidKey},
		} {
			t.Run(string(mode)+", "+name, func(t *testing.T) {
				narrow := folders(t, 1)[0]
				list := []muxcore.Backend{{Name: "narrow", Store: narrow, Weight: new(1)}, {Name: "alike", Store: folders(t, 1)[0]}}
				if row.nested {
					list[0].Store = newMux(t, muxcore.Settings{Mode: mode}, muxcore.Backend{Name: "in", Store: narrow, Weight: new(1)})
				}
				wide := memory(t)
				if row.wide {
					list = append(list, muxcore.Backend{Name: "wide", Store: wide})
				}
				if row.held {
					put(t, wide, key, "body")
				}
				m := newMux(t, muxcore.Settings{Mode: mode, Journal: newJournal(t).Scope("")}, list...)
				if row.down {
					narrow.Break(errBroken)
					_, _ = m.Delete(t.Context(), "known", muxcore.DeleteOptions{}) // by which that is noticed
				}
				before := pendingOf(m)[0]
				r, err := m.Delete(t.Context(), key, muxcore.DeleteOptions{})
				if muxcore.CodeOf(err) != row.want || len(r.Missed) != 0 {
					t.Errorf("Delete = %+v, %v, want %q and nobody who missed it", r, err, row.want)
				}
				if n := pendingOf(m)[0]; n != before {
					t.Errorf("%d deletes are pending, want %d, as before", n, before)
				}
				if _, err := wide.Stat(t.Context(), key, muxcore.Conditions{}); !errors.Is(err, muxcore.ErrKeyNotFound) {
					t.Errorf("the object is still there: %v", err)
				}
			})
		}
	}
}

// A delete that was remembered for a backend whose place one has taken that can never hold the key is done there.
func TestADeleteIsNotOwedToWhoCanNeverHoldTheKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const key = "CON/x"
		set := muxcore.Settings{Mode: muxcore.Mirror, Journal: newJournal(t).Scope("")}
		backends, hooks := crowd(t, 1, 1)
		m := newMuxUnclosed(t, set, backends...)
		put(t, m, key, "body")
		hooks[0].set(fails)
		if r, err := m.Delete(t.Context(), key, muxcore.DeleteOptions{}); err != nil || len(r.Missed) != 1 {
			t.Fatalf("Delete = %+v, %v, want it missed by one", r, err)
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
		if !set.Journal.Pending() {
			t.Fatal("nothing is pending, want the delete")
		}
		next := newMux(t, set, muxcore.Backend{Name: backends[0].Name, Store: folders(t, 1)[0]}, backends[1])
		time.Sleep(time.Minute)
		synctest.Wait()
		if b := next.Stats().Backends[0]; b.PendingRepairs != 0 || b.RepairError != "" {
			t.Errorf("%d are still pending: %s", b.PendingRepairs, b.RepairError)
		}
	})
}

// A key below an object is a conflict for whoever cannot hold both. One that was down when another took the upload has missed it,
// says why it cannot be brought, and gets it once the object is gone.
func TestAKeyBelowAnObjectWaitsForItToGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := folders(t, 1)[0], memory(t)
		var failed []muxcore.Code
		set := muxcore.Settings{Journal: newJournal(t).Scope(""), Observe: func(e muxcore.Event) {
			if e.Kind == muxcore.EventRepairFailed {
				failed = append(failed, e.Code)
			}
		}}
		m := newMux(t, set, muxcore.Backend{Name: "a", Store: a}, muxcore.Backend{Name: "b", Store: b})
		put(t, m, "k", "above")
		if _, err := m.Put(t.Context(), "k/x", strings.NewReader("below"), 5, muxcore.PutOptions{}); !errors.Is(err, muxcore.ErrKeyConflict) {
			t.Errorf("Put below an object = %v", err)
		}
		a.Break(errBroken)
		if r := put(t, m, "k/x", "below"); r.Via.Backend != "b" || !slices.Equal(r.Missed, []string{"a"}) {
			t.Errorf("Put = %+v, want it at b, and missed by a", r)
		}
		a.Mend()
		time.Sleep(5 * time.Minute)
		if diff := cmp.Diff([]int{1, 0}, pendingOf(m)); diff != "" {
			t.Errorf("pending beside the object (-want +got):\n%s", diff)
		}
		wantBody(t, m, "k", "above", "a")
		wantBody(t, m, "k/x", "below", "b")
		if _, err := m.Delete(t.Context(), "k", muxcore.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if diff := cmp.Diff([]int{0, 0}, pendingOf(m)); diff != "" {
			t.Errorf("pending once it is gone (-want +got):\n%s", diff)
		}
		wantBody(t, a, "k/x", "below", "")
		if !slices.Equal(failed, []muxcore.Code{muxcore.CodeKeyConflict}) {
			t.Errorf("failed repairs were told as %q", failed)
		}
	})
}
