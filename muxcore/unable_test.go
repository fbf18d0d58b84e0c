package muxcore_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// An origin that ignores ranges, and cannot skip to a part, ended the read although another backend could give the part.
func TestWhoCannotReadAPartLeavesItToOthers(t *testing.T) {
	unable := broken{&muxcore.Error{Code: muxcore.CodeUnsupported, Err: errBroken}}
	part := muxcore.GetOptions{Range: muxcore.Range{Offset: 2, Length: 3}}
	for _, mode := range []muxcore.Mode{muxcore.Failover, muxcore.Shield, muxcore.Mirror} {
		t.Run(fmt.Sprint(mode), func(t *testing.T) {
			good := memory(t)
			put(t, good, "k", "0123456789")
			m := newMux(t, muxcore.Settings{Mode: mode}, muxcore.Backend{Name: "unable", Store: unable}, muxcore.Backend{Name: "good", Store: good})
			for range 3 {
				if got, obj, err := read(t.Context(), m, "k", part); err != nil || got != "234" || obj.Via.Backend != "good" {
					t.Fatalf("Get of a part = %q, %v, want %q from good", got, err, "234")
				}
			}
			if b := m.Stats().Backends[0]; b.Status != muxcore.StatusUp {
				t.Errorf("status of who was not able = %v, want up", b.Status)
			}
			outer := newMux(t, muxcore.Settings{Mode: mode},
				muxcore.Backend{Name: "in", Store: newMux(t, muxcore.Settings{Mode: mode}, muxcore.Backend{Name: "unable", Store: unable})},
				muxcore.Backend{Name: "down", Store: broken{}})
			_, _, err := read(t.Context(), outer, "k", part)
			if !errors.Is(err, muxcore.ErrUnsupported) || backendOf(err) != "in.unable" {
				t.Errorf("Get where nobody else answers = %v, want %s of in.unable", err, muxcore.CodeUnsupported)
			}
		})
	}
}
