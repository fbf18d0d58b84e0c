package muxcore_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// Writes of one key at the same time end in the same state on every backend, whichever it is.
func TestConcurrentWritesOfAKeyLeaveBackendsAlike(t *testing.T) {
	for _, mode := range []muxcore.Mode{muxcore.Mirror, muxcore.Shield} {
		for _, size := range []int{10, 100_000} {
			backends, hooks := crowd(t, 1, 1, 1)
			m := newMux(t, muxcore.Settings{Mode: mode}, backends...)
			for round := range 50 {
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
