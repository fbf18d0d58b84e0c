package muxcore_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// mute is a store that, while it is on, does what it is asked to put of one size and says that it has failed.
type mute struct {
	*hooked
	size int64
	on   atomic.Bool
}

func (s *mute) Put(ctx context.Context, key string, body io.Reader, size int64, opts muxcore.PutOptions) (muxcore.PutResult, error) {
	r, err := s.hooked.Put(ctx, key, body, size, opts)
	if err == nil && size == s.size && s.on.Load() {
		err = errUnavailable
	}
	return r, err
}

// mutes has the backend be silent about what is put of that size.
func mutes(b *muxcore.Backend, h *hooked, size int) *mute {
	s := &mute{hooked: h, size: int64(size)}
	s.on.Store(true)
	b.Store = s
	return s
}

// wantFailedPut puts what nobody says that they have taken.
func wantFailedPut(t *testing.T, m *muxcore.Mux, body string) {
	t.Helper()
	if _, err := m.Put(t.Context(), "k", strings.NewReader(body), int64(len(body)), muxcore.PutOptions{}); err == nil {
		t.Fatal("Put succeeds although nobody has said so")
	}
}

// wantHealed waits until all hold body, and nothing is left to repair.
func wantHealed(t *testing.T, m *muxcore.Mux, hooks []*hooked, body string) {
	t.Helper()
	time.Sleep(3 * time.Minute)
	wantAlike(t, hooks, "k", body)
	for i, n := range pendingOf(m) {
		if n != 0 {
			t.Errorf("backend %d: %d pending", i, n)
		}
	}
}

// A write that fails everywhere may have been done in part all the same: what one backend has of it, all get in the end.
func TestAFailedWriteLeavesBackendsAlike(t *testing.T) {
	for _, size := range []int{10, 100_000} {
		synctest.Test(t, func(t *testing.T) {
			backends, hooks := crowd(t, 1, 1)
			silent := mutes(&backends[0], hooks[0], size)
			m := newMux(t, muxcore.Settings{Mode: muxcore.Mirror, Timeout: time.Second, Journal: newJournal(t).Scope("")}, backends...)
			hooks[1].set(hangs)
			wantFailedPut(t, m, long(size))
			silent.on.Store(false)
			if _, err := m.Stat(t.Context(), "absent", muxcore.Conditions{}); err == nil {
				t.Error("an absent key is there")
			}
			hooks[1].set(nil)
			wantHealed(t, m, hooks, long(size))
		})
	}
}

// Where a write goes to one backend in place of another that is away, that holds as well.
func TestAFailedWriteElsewhereLeavesBackendsAlike(t *testing.T) {
	for _, size := range []int{10, 100_000} {
		synctest.Test(t, func(t *testing.T) {
			backends, hooks := crowd(t, 1, 1)
			silent := mutes(&backends[1], hooks[1], size)
			m := newMux(t, muxcore.Settings{Journal: newJournal(t).Scope("")}, backends...)
			if err := m.Drain(t.Context(), "b0"); err != nil {
				t.Fatal(err)
			}
			wantFailedPut(t, m, long(size))
			silent.on.Store(false)
			time.Sleep(3 * time.Minute)
			wantBody(t, m, "k", long(size), "b1")
			if err := m.Undrain("b0"); err != nil {
				t.Fatal(err)
			}
			wantHealed(t, m, hooks, long(size))
		})
	}
}

// It holds for whoever was asked first, too, whether the next fail with an open end as well, or have refused.
func TestAFailedWriteThatWentOnLeavesBackendsAlike(t *testing.T) {
	refuses := func(_ context.Context, op muxcore.Op) error {
		if op == muxcore.OpPut {
			return &muxcore.Error{Code: muxcore.CodeDenied, Status: http.StatusForbidden}
		}
		return nil
	}
	for name, then := range map[string]func(context.Context, muxcore.Op) error{"fail": fails, "hang": hangs, "refuse": refuses} {
		for _, marked := range []bool{false, true} {
			t.Run(fmt.Sprintf("then the others %s, marked %v", name, marked), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					backends, hooks := crowd(t, 1, 1, 1)
					silent := mutes(&backends[0], hooks[0], len("new"))
					m := newMux(t, muxcore.Settings{Timeout: time.Second, Journal: newJournal(t).Scope("")}, backends...)
					if marked {
						markOf(t, m)
					}
					hooks[1].set(then)
					hooks[2].set(then)
					wantFailedPut(t, m, "new")
					silent.on.Store(false)
					hooks[1].set(nil)
					hooks[2].set(nil)
					wantHealed(t, m, hooks, "new")
				})
			})
		}
	}
}

// markOf has the first backend lack the key's newest state, and be asked all the same.
func markOf(t *testing.T, m *muxcore.Mux) {
	t.Helper()
	if err := m.Drain(t.Context(), "b0"); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Put(t.Context(), "k", strings.NewReader("second"), 6, muxcore.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := m.Undrain("b0"); err != nil {
		t.Fatal(err)
	}
}
