package muxcore_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// A backend that can never take what it missed, such as one that is too small for it, says why in its stats for as long as it lacks it.
func TestWhyABackendCannotBeRepairedIsInItsStats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backends, hooks := crowd(t, 1, 1)
		m := newMux(t, muxcore.Settings{Mode: muxcore.Mirror, Journal: newJournal(t).Scope("")}, backends...)
		hooks[1].set(func(_ context.Context, op muxcore.Op) error {
			if op == muxcore.OpPut {
				return &muxcore.Error{Code: muxcore.CodeTooLarge, Op: op}
			}
			return nil
		})
		if r, err := m.Put(t.Context(), "k", strings.NewReader("new"), 3, muxcore.PutOptions{}); err != nil || len(r.Missed) != 1 {
			t.Fatalf("Put = %+v, %v, want it missed by one", r, err)
		}
		time.Sleep(time.Minute)
		for i, b := range m.Stats().Backends {
			if told := strings.Contains(b.RepairError, string(muxcore.CodeTooLarge)); told != (i == 1) || b.Status != muxcore.StatusUp {
				t.Errorf("%s is %s, with %d pending and the repair error %q", b.Name, b.Status, b.PendingRepairs, b.RepairError)
			}
		}
		hooks[1].set(nil)
		time.Sleep(time.Hour)
		if b := m.Stats().Backends[1]; b.PendingRepairs != 0 || b.RepairError != "" {
			t.Errorf("once it has it, %d are pending, and the repair error is %q", b.PendingRepairs, b.RepairError)
		}
		hooks[1].set(fails)
		if _, err := m.Put(t.Context(), "k", strings.NewReader("newer"), 5, muxcore.PutOptions{}); err != nil {
			t.Fatal(err)
		}
		if b := m.Stats().Backends[1]; b.PendingRepairs != 1 || b.RepairError != "" {
			t.Errorf("before it was tried, %d are pending, and the repair error is %q", b.PendingRepairs, b.RepairError)
		}
	})
}
