package muxcore_test

import (
	"context"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// Two backends that are killed in turns, each back at once: the second kill falls into the first one's cooldown, and the
// body was given up although its copy was well.
func TestABodyWaitsForABackendInItsCooldown(t *testing.T) {
	for _, nested := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			body := long(1 << 20)
			backends, hooks := copies(t, 2, body, muxcore.PutOptions{ETag: `"one"`})
			for i := range hooks {
				hooks[i].wrap = cutAt(100_000, errBroken)
			}
			m := newMux(t, muxcore.Settings{}, backends...)
			if nested {
				m = newMux(t, muxcore.Settings{}, muxcore.Backend{Name: "eu", Store: m})
			}
			begin := time.Now()
			if got, _, err := read(t.Context(), m, "k", muxcore.GetOptions{}); err != nil || got != body {
				t.Fatalf("read %d bytes, %v", len(got), err)
			}
			if took := time.Since(begin); took > 10*time.Second {
				t.Errorf("took %v for 10 kills, want at most a cooldown each", took)
			}
		})
	}
}

// The copy that was to go on was killed together with the one that broke: both are back in a moment, and the body was given up.
func TestABodyWaitsForABackendThatFailedToGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body := long(1 << 20)
		backends, hooks := copies(t, 2, body, muxcore.PutOptions{ETag: `"one"`})
		m := newMux(t, muxcore.Settings{Float64: func() float64 { return 0 }}, backends...)
		hooks[0].wrap = cutAt(100_000, errBroken)
		begin := time.Now()
		hooks[1].set(func(context.Context, muxcore.Op) error {
			if time.Since(begin) < 2*time.Second {
				return errBroken
			}
			return nil
		})
		if got, _, err := read(t.Context(), m, "k", muxcore.GetOptions{}); err != nil || got != body {
			t.Errorf("read %d bytes, %v", len(got), err)
		}
		if took := time.Since(begin); took != 3*time.Second {
			t.Errorf("took %v, want the second trial's 3s", took)
		}
	})
}

// The wait is over when the timeout is, when the caller goes, or where it would be for next to nothing.
func TestABodyDoesNotWaitForEver(t *testing.T) {
	for name, row := range map[string]struct {
		set   muxcore.Settings
		cut   int64
		both  bool   // break there, else one always fails
		other string // the ETag of the one that does not break
		bytes int
		want  time.Duration
	}{
		"the cooldown is longer than the timeout": {set: muxcore.Settings{Timeout: time.Second, Cooldown: 5 * time.Second}, cut: 100_000, bytes: 100_000},
		"it never comes back":                     {cut: 100_000, bytes: 100_000, want: 7 * time.Second},
		"the timeout ends before the third trial": {set: muxcore.Settings{Timeout: 6 * time.Second}, cut: 100_000, bytes: 100_000, want: 3 * time.Second},
		"next to nothing comes each time":         {set: muxcore.Settings{Timeout: 4500 * time.Millisecond}, cut: 1000, both: true, bytes: 10_000, want: 4 * time.Second},
		"the other has another version":           {cut: 100_000, other: `"two"`, bytes: 100_000},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				backends, hooks := copies(t, 2, long(1<<20), muxcore.PutOptions{ETag: `"one"`})
				row.set.Float64 = func() float64 { return 0 }
				m := newMux(t, row.set, backends...)
				hooks[1].wrap = cutAt(row.cut, errBroken)
				switch {
				case row.both:
					hooks[0].wrap = cutAt(row.cut, errBroken)
				case row.other != "":
					hooks[0].wrap = hooks[1].wrap
					if _, err := hooks[1].Store.Put(t.Context(), "k", strings.NewReader(long(1<<20)), 1<<20, muxcore.PutOptions{ETag: row.other}); err != nil {
						t.Fatal(err)
					}
				default:
					hooks[0].set(fails)
				}
				begin := time.Now()
				got, _, err := read(t.Context(), m, "k", muxcore.GetOptions{})
				if err == nil || len(got) != row.bytes {
					t.Errorf("read %d bytes, %v, want an error after %d", len(got), err, row.bytes)
				}
				if took := time.Since(begin); took != row.want {
					t.Errorf("gave up after %v, want %v", took, row.want)
				}
			})
		})
	}
}

// All who wait go on once the trial of one of them has succeeded.
func TestAllBodiesGoOnAfterTheTrialOfOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body := long(1 << 20)
		backends, hooks := copies(t, 2, body, muxcore.PutOptions{ETag: `"one"`})
		m := newMux(t, muxcore.Settings{}, backends...)
		hooks[1].wrap = cutAt(100_000, errBroken)
		hooks[0].set(fails)
		if _, err := m.Stat(t.Context(), "k", muxcore.Conditions{}); err != nil {
			t.Fatal(err)
		}
		hooks[0].set(slow(100 * time.Millisecond))
		done := make(chan error)
		const n = 20
		var bodies []io.ReadCloser
		for range n {
			obj, err := m.Get(t.Context(), "k", muxcore.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			bodies = append(bodies, obj.Body)
		}
		for _, b := range bodies {
			go func() {
				defer b.Close()
				got, err := io.ReadAll(b)
				if err == nil && string(got) != body {
					t.Errorf("%d bytes", len(got))
				}
				done <- err
			}()
		}
		for range n {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}
