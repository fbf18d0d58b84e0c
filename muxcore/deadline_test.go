package muxcore_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// While somebody is well, a read comes within its deadline, whatever the others do and however they are asked.
func TestTheDeadlineLeavesTimeForWhoeverIsWell(t *testing.T) {
	high := func() float64 { return .999 }
	for name, row := range map[string]struct {
		set muxcore.Settings
		ill []string // what is wrong with each before the one that is well
		use func(b *muxcore.Backend)
	}{
		"hedged by hand":           {muxcore.Settings{Hedge: muxcore.Hedge{After: time.Hour}}, []string{"hangs"}, nil},
		"hedged by itself":         {muxcore.Settings{Hedge: muxcore.Hedge{Auto: true}}, []string{"hangs", "hangs"}, nil},
		"a backup after a race":    {muxcore.Settings{Mode: muxcore.Mirror}, []string{"hangs"}, func(b *muxcore.Backend) { b.Backup = true }},
		"a backup after failures":  {muxcore.Settings{}, []string{"fails", "hangs"}, func(b *muxcore.Backend) { b.Backup = true }},
		"retries with long pauses": {muxcore.Settings{Retry: muxcore.Retry{Max: 5, Delay: time.Minute}, Float64: high}, []string{"fails", "fails"}, nil},
		"many that hang":           {muxcore.Settings{}, []string{"hangs", "hangs", "hangs", "hangs"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			for _, deadline := range []time.Duration{time.Second, 20 * time.Second} {
				synctest.Test(t, func(t *testing.T) {
					n := len(row.ill)
					backends, hooks := copies(t, n+1, "body", muxcore.PutOptions{ETag: `"one"`})
					for i, what := range row.ill {
						if hooks[i].set(fails); what == "hangs" {
							hooks[i].set(hangs)
						}
					}
					hooks[n].set(slow(10 * time.Millisecond))
					if row.use != nil {
						row.use(&backends[n])
					}
					row.set.Deadline = deadline
					m := newMux(t, row.set, backends...)
					begin := time.Now()
					wantBody(t, m, "k", "body", fmt.Sprint("b", n))
					if took := time.Since(begin); took > deadline {
						t.Errorf("took %v, the deadline is %v", took, deadline)
					}
				})
			}
		})
	}
}

// A deadline holds for deletes too, conditional ones as well.
func TestADeleteEndsAtItsDeadline(t *testing.T) {
	for _, cond := range []muxcore.Conditions{{}, {IfMatch: `"one"`}} {
		synctest.Test(t, func(t *testing.T) {
			backends, hooks := crowd(t, 1, 1)
			hooks[1].set(hangs)
			m := newMux(t, muxcore.Settings{Deadline: time.Second}, backends...)
			begin := time.Now()
			r, err := m.Delete(t.Context(), "k", muxcore.DeleteOptions{Conditions: cond})
			if err != nil || fmt.Sprint(r.Missed) != "[b1]" {
				t.Errorf("Delete = %+v, %v, want it missed by b1", r, err)
			}
			if took := time.Since(begin); took > time.Second {
				t.Errorf("Delete under %+v took %v", cond, took)
			}
		})
	}
}

// A delay above the default's most is its own most.
func TestALongRetryDelayIsKept(t *testing.T) {
	for _, row := range []struct{ delay, most, want time.Duration }{
		{5 * time.Second, 0, 5 * time.Second},
		{5 * time.Second, 2 * time.Second, 2 * time.Second},
		{0, 0, 50 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			backends, hooks := crowd(t, 1)
			hooks[0].set(fails)
			retry := muxcore.Retry{Max: 1, Delay: row.delay, MaxDelay: row.most}
			m := newMux(t, muxcore.Settings{Retry: retry, Float64: func() float64 { return 1 }}, backends...)
			begin := time.Now()
			_, _ = m.Stat(t.Context(), "k", muxcore.Conditions{})
			if took := time.Since(begin); took != row.want {
				t.Errorf("%+v waits %v, want %v", retry, took, row.want)
			}
		})
	}
}

// A caller who leaves in a pause before a retry does not wait it out.
func TestAPauseEndsWithItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backends, hooks := crowd(t, 1)
		hooks[0].set(fails)
		m := newMux(t, muxcore.Settings{Retry: muxcore.Retry{Max: 1, Delay: time.Hour}, Float64: func() float64 { return 1 }}, backends...)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		if _, err := m.Stat(ctx, "k", muxcore.Conditions{}); muxcore.CodeOf(err) != muxcore.CodeBackendAborted {
			t.Errorf("Stat = %v, want an abort", err)
		}
		if took := time.Since(begin); took != time.Second {
			t.Errorf("took %v", took)
		}
	})
}
