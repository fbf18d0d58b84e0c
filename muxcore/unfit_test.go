package muxcore_test

import (
	"testing"

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
