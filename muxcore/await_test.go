package muxcore_test

import (
	"io"
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

// The wait is over when the timeout is, when the caller goes, or where it would be for next to nothing.
func TestABodyDoesNotWaitForEver(t *testing.T) {
	for name, row := range map[string]struct {
		set  muxcore.Settings
		cut  int64
		want time.Duration
	}{
		"the cooldown is longer than the timeout": {muxcore.Settings{Timeout: time.Second, Cooldown: 5 * time.Second}, 100_000, 0},
		"only little has come":                    {muxcore.Settings{}, 1000, 0},
		"it never comes back":                     {muxcore.Settings{}, 100_000, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				backends, hooks := copies(t, 2, long(1<<20), muxcore.PutOptions{ETag: `"one"`})
				m := newMux(t, row.set, backends...)
				hooks[0].set(fails)
				hooks[1].wrap = cutAt(row.cut, errBroken)
				begin := time.Now()
				got, _, err := read(t.Context(), m, "k", muxcore.GetOptions{})
				if err == nil || int64(len(got)) != row.cut {
					t.Errorf("read %d bytes, %v, want an error after %d", len(got), err, row.cut)
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
