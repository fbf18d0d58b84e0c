package muxcore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/storetest"
)

// Writes of one key at the same time end in the same state on every backend, whichever it is.
func TestConcurrentWritesOfAKeyLeaveBackendsAlike(t *testing.T) {
	for _, mode := range []muxcore.Mode{muxcore.Mirror, muxcore.Shield} {
		for _, size := range []int{10, 100_000} {
			backends, hooks := crowd(t, 1, 1, 1)
			m := newMux(t, muxcore.Settings{Mode: mode}, backends...)
			for round := range storetest.Times(12, 50) {
				var wg sync.WaitGroup
				for writer := range 3 {
					wg.Go(func() {
						body := fmt.Sprint(writer, strings.Repeat(".", size))
						if _, err := m.Put(t.Context(), "k", strings.NewReader(body), int64(len(body)), muxcore.PutOptions{}); err != nil {
							t.Errorf("Put = %v", err)
						}
					})
				}
				wg.Go(func() {
					if _, err := m.Delete(t.Context(), "k", muxcore.DeleteOptions{}); err != nil && !errors.Is(err, muxcore.ErrKeyNotFound) {
						t.Errorf("Delete = %v", err)
					}
				})
				wg.Wait()
				first, _, firstErr := read(t.Context(), hooks[0].Store, "k", muxcore.GetOptions{})
				for i := range hooks {
					got, _, err := read(t.Context(), hooks[i].Store, "k", muxcore.GetOptions{})
					if got != first || muxcore.CodeOf(err) != muxcore.CodeOf(firstErr) {
						t.Fatalf("%s, round %d: backend %d holds %.5q (%v), backend 0 %.5q (%v)", mode, round, i, got, err, first, firstErr)
					}
				}
			}
		}
	}
}

// What repairs a key must not overwrite what is written at the same time, nor bring back what is deleted.
func TestWritesWaitForTheTurnOfTheirKeyInEveryMode(t *testing.T) {
	for _, mode := range muxcore.Modes() {
		for _, size := range []int{0, 10, 100_000} {
			t.Run(fmt.Sprint(mode, size), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					one := 1
					a := memory(t)
					m := newMux(t, muxcore.Settings{Mode: mode}, muxcore.Backend{Name: "a", Store: a, Weight: &one})
					put(t, a, "gone", "old")
					putDone, deleteDone := make(chan error, 1), make(chan error, 1)
					var unlock [2]func()
					for i, key := range []string{"k", "gone"} {
						var err error
						if unlock[i], err = m.LockKey(t.Context(), key); err != nil {
							t.Fatal(err)
						}
					}
					body := strings.Repeat(".", size)
					go func() {
						_, err := m.Put(t.Context(), "k", io.MultiReader(strings.NewReader(body)), -1, muxcore.PutOptions{})
						putDone <- err
					}()
					go func() {
						_, err := m.Delete(t.Context(), "gone", muxcore.DeleteOptions{})
						deleteDone <- err
					}()
					synctest.Wait()
					if _, err := a.Stat(t.Context(), "k", muxcore.Conditions{}); !errors.Is(err, muxcore.ErrKeyNotFound) {
						t.Errorf("Stat of what is put out of turn = %v", err)
					}
					if _, err := a.Stat(t.Context(), "gone", muxcore.Conditions{}); err != nil {
						t.Errorf("Stat of what is deleted out of turn = %v", err)
					}
					ctx, cancel := context.WithCancel(t.Context())
					go func() {
						synctest.Wait()
						cancel()
					}()
					if _, err := m.Put(ctx, "k", strings.NewReader(body), int64(size), muxcore.PutOptions{}); muxcore.CodeOf(err) != muxcore.CodeBackendAborted {
						t.Errorf("Put of a client that does not wait for its turn = %v", err)
					}
					unlock[0]()
					unlock[1]()
					if err := errors.Join(<-putDone, <-deleteDone); err != nil {
						t.Error(err)
					}
					wantBody(t, a, "k", body, "")
				})
			})
		}
	}
}
