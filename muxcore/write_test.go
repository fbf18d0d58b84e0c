package muxcore_test

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// partTaker is a store that takes n bytes of each body and fails.
type partTaker struct {
	*hooked
	n int64
}

func (s partTaker) Put(_ context.Context, _ string, body io.Reader, _ int64, _ muxcore.PutOptions) (muxcore.PutResult, error) {
	s.calls.Add(1)
	_, _ = io.CopyN(io.Discard, body, s.n)
	return muxcore.PutResult{}, errUnavailable
}

// Case 59 of the reports: a second backend gets the body from its first byte, or nothing. A body that was read whole, or
// of which the first backend took no more than was read before, can be sent again; any other only from the spool, and
// without one the Put fails where it failed.
func TestABodyIsSentAgainFromItsBeginningOrNotAtAll(t *testing.T) {
	const spool, large = 64 << 10, 400_000
	for _, row := range []struct {
		size, taken int64
		unknown     bool
		moves       bool
	}{
		{10, 0, false, true},
		{10, 5, false, true},
		{10, 100, false, true},
		{spool, spool, false, true},
		{spool, spool, true, true},
		{spool + 1, 0, false, true},
		{spool + 1, 1, false, false},
		{large, 0, false, true},
		{large, 1000, false, false},
		{large, large - 1000, false, false},
		{large, 0, true, true},
		{large, 1000, true, true},
		{large, spool + 1, true, true},
		{large, spool + 2, true, false},
	} {
		for _, mode := range []muxcore.Mode{muxcore.Failover, muxcore.RoundRobin} {
			backends, hooks := crowd(t, 1, 1)
			backends[0].Store = partTaker{hooks[0], row.taken}
			m := newMux(t, muxcore.Settings{Mode: mode, Spool: muxcore.NewSpool(muxcore.SpoolSettings{Memory: -1})}, backends...)
			body, declared := long(int(row.size)), row.size
			if row.unknown {
				declared = -1
			}
			r, err := m.Put(t.Context(), "new", io.LimitReader(strings.NewReader(body), row.size), declared, muxcore.PutOptions{})
			if row.moves != (err == nil) || hooks[0].calls.Load() != 1 {
				t.Errorf("%s, %+v: Put = %+v, %v", mode, row, r.Via, err)
			}
			if !row.moves && (muxcore.CodeOf(err) != muxcore.CodeUnavailable || backendOf(err) != "b0" || hooks[1].calls.Load() != 0) {
				t.Errorf("%s, %+v: Put = %v with %d calls to b1, want the error of b0 alone", mode, row, err, hooks[1].calls.Load())
			}
			if got, _, gerr := read(t.Context(), hooks[1].Store, "new", muxcore.GetOptions{}); row.moves && (got != body || gerr != nil) {
				t.Errorf("%s, %+v: b1 holds %d bytes, %v", mode, row, len(got), gerr)
			}
		}
	}
}

// Who should have had a write is told of each time, whether it was asked and failed or was known to be down; and so is
// the observer. Where no order says who should have it, nobody has missed it.
func TestPreferredBackendsThatAreDownHaveMissedIt(t *testing.T) {
	var partials []muxcore.Event
	observe := func(e muxcore.Event) {
		if e.Kind == muxcore.EventFanoutPartial {
			partials = append(partials, e)
		}
	}
	backends, hooks := crowd(t, 1, 1, 1)
	hooks[0].set(fails)
	hooks[1].set(fails)
	m := newMux(t, muxcore.Settings{Cooldown: time.Hour, MaxCooldown: time.Hour, Observe: observe}, backends...)
	for i := range 2 {
		r := put(t, m, "new", "x")
		if slices.Sort(r.Missed); fmt.Sprint(r.Missed) != "[b0 b1]" || r.Via.Backend != "b2" {
			t.Errorf("Put %d: %+v, want it missed by b0 and b1", i, r)
		}
		if len(partials) != i+1 || len(partials[i].Failed) != 2 || len(partials[i].Causes) != 2 || slices.Contains(partials[i].Causes, nil) {
			t.Errorf("after Put %d: events %+v", i, partials)
		}
	}
	partials = nil
	turns := newMux(t, muxcore.Settings{Mode: muxcore.RoundRobin, Cooldown: time.Hour, MaxCooldown: time.Hour, Observe: observe}, backends...)
	for range 4 {
		_, _ = turns.Put(t.Context(), "new", strings.NewReader("x"), 1, muxcore.PutOptions{})
	}
	partials = nil
	if r := put(t, turns, "new", "x"); len(r.Missed) != 0 || len(partials) != 0 {
		t.Errorf("taking turns: missed by %v, %d events", r.Missed, len(partials))
	}
}

// A backend that cannot write conditionally is passed over where conditions are to be decided, in every mode that has no
// origin to decide; with nobody who can, that is said.
func TestConditionsGoToWhoCanDecideThem(t *testing.T) {
	for _, mode := range muxcore.Modes() {
		for what, write := range map[string]func(m *muxcore.Mux, cond muxcore.Conditions) error{
			"Put": func(m *muxcore.Mux, cond muxcore.Conditions) error {
				_, err := m.Put(t.Context(), "there", strings.NewReader("x"), 1, muxcore.PutOptions{Conditions: cond})
				return err
			},
			"Delete": func(m *muxcore.Mux, cond muxcore.Conditions) error {
				_, err := m.Delete(t.Context(), "there", muxcore.DeleteOptions{Conditions: cond})
				return err
			},
		} {
			backends, hooks := crowd(t, 1, 1)
			want := "b0"
			if mode != muxcore.Shield {
				backends[0].Store, want = unconditional{hooks[0]}, "b1"
			}
			put(t, hooks[int(want[1]-'0')].Store, "there", "x")
			m := newMux(t, muxcore.Settings{Mode: mode}, backends...)
			for range 2 {
				if err := write(m, muxcore.Conditions{IfMatch: `"other"`}); muxcore.CodeOf(err) != muxcore.CodePreconditionFailed || backendOf(err) != want {
					t.Errorf("%s: %s = %v, want it refused by %s", mode, what, err, want)
				}
			}
			if mode == muxcore.Shield {
				continue // there, the origin itself says that it cannot
			}
			backends[1].Store = unconditional{hooks[1]}
			none := newMux(t, muxcore.Settings{Mode: mode}, backends...)
			if err := write(none, muxcore.Conditions{IfMatch: "*"}); muxcore.CodeOf(err) != muxcore.CodeUnsupported {
				t.Errorf("%s: %s with nobody who can = %v, want unsupported", mode, what, err)
			}
		}
	}
}

// A disk gave an object that came without a type the one of its extension, a bucket gave it none: it depended on who answered.
func TestAnObjectHasItsTypeWhoeverAnswers(t *testing.T) {
	a, b := memory(t), memory(t)
	m := newMux(t, muxcore.Settings{Mode: muxcore.Mirror}, muxcore.Backend{Name: "a", Store: a}, muxcore.Backend{Name: "b", Store: b})
	for key, want := range map[string]string{"x/a.html": "text/html; charset=utf-8", "x/a": ""} {
		put(t, m, key, "body")
		for _, s := range []muxcore.Store{a, b, m} {
			if info, err := s.Stat(t.Context(), key, muxcore.Conditions{}); err != nil || info.ContentType != want {
				t.Errorf("Stat(%q) = type %q, %v, want %q", key, info.ContentType, err, want)
			}
		}
	}
	opts := muxcore.PutOptions{Attributes: muxcore.Attributes{ContentType: "text/x-own"}}
	if _, err := m.Put(t.Context(), "own.html", strings.NewReader("body"), 4, opts); err != nil {
		t.Fatal(err)
	}
	if info, err := b.Stat(t.Context(), "own.html", muxcore.Conditions{}); err != nil || info.ContentType != "text/x-own" {
		t.Errorf("Stat of a declared type = %q, %v, want it as it was declared", info.ContentType, err)
	}
}
