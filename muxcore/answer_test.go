package muxcore_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// A 404 is said only when all who could hold the key have said it; what else the others said decides the answer.
func TestWhatSeveralAnswersAddUpTo(t *testing.T) {
	denied := func(context.Context, muxcore.Op) error { return &muxcore.Error{Code: muxcore.CodeDenied, Status: 403} }
	expired := answers(muxcore.CodeCredentialExpired)
	plain := func(context.Context, muxcore.Op) error { return fmt.Errorf("opening: %w", fs.ErrNotExist) }
	for name, row := range map[string]struct {
		first, second func(context.Context, muxcore.Op) error
		want          muxcore.Code
	}{
		"both miss":                             {nil, nil, muxcore.CodeKeyNotFound},
		"both miss, one in plain words":         {plain, nil, muxcore.CodeKeyNotFound},
		"one is denied, one misses":             {denied, nil, muxcore.CodeAllBackendsDown},
		"one misses, one is denied":             {nil, denied, muxcore.CodeAllBackendsDown},
		"one fails, one misses":                 {fails, nil, muxcore.CodeAllBackendsDown},
		"one misses, one fails":                 {nil, fails, muxcore.CodeAllBackendsDown},
		"both are denied":                       {denied, denied, muxcore.CodeDenied},
		"both are denied, by credentials":       {denied, expired, muxcore.CodeCredentialExpired},
		"one is denied, one fails":              {denied, fails, muxcore.CodeAllBackendsDown},
		"the first hangs, the second misses":    {hangs, nil, muxcore.CodeAllBackendsDown},
		"both hang":                             {hangs, hangs, muxcore.CodeBackendTimeout},
		"the first knows nothing of the method": {answers(muxcore.CodeUnsupported), nil, muxcore.CodeUnsupported},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				backends, hooks := crowd(t, 1, 1)
				hooks[0].set(row.first)
				hooks[1].set(row.second)
				m := newMux(t, muxcore.Settings{OnMissNext: true}, backends...)
				if _, err := m.Get(t.Context(), "none", muxcore.GetOptions{}); muxcore.CodeOf(err) != row.want {
					t.Errorf("Get = %v, want %s", err, row.want)
				}
			})
		})
	}
}

// A write that nobody took ends as a read that nobody answered does: denied if all denied it, timed out if the last one did, in all modes.
func TestAWriteThatNobodyTookSaysWhy(t *testing.T) {
	denied, expired := answers(muxcore.CodeDenied), answers(muxcore.CodeCredentialExpired)
	for name, row := range map[string]struct {
		first, second func(context.Context, muxcore.Op) error
		want          muxcore.Code
	}{
		"both deny it":                {denied, denied, muxcore.CodeDenied},
		"both deny it, by credential": {expired, expired, muxcore.CodeCredentialExpired},
		"the origin denies it":        {denied, fails, muxcore.CodeAllBackendsDown},
		"both fail":                   {fails, fails, muxcore.CodeAllBackendsDown},
		"both hang":                   {hangs, hangs, muxcore.CodeBackendTimeout},
	} {
		for _, mode := range muxcore.Modes() {
			t.Run(name+", "+string(mode), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					backends, hooks := crowd(t, 1, 1)
					hooks[0].set(row.first)
					hooks[1].set(row.second)
					want := row.want
					if mode == muxcore.Shield && name == "the origin denies it" {
						want = muxcore.CodeDenied
					}
					m := newMux(t, muxcore.Settings{Mode: mode}, backends...)
					if _, err := m.Delete(t.Context(), "k", muxcore.DeleteOptions{}); muxcore.CodeOf(err) != want {
						t.Errorf("Delete = %v, want %s", err, want)
					}
					m = newMux(t, muxcore.Settings{Mode: mode}, backends...)
					if _, err := m.Put(t.Context(), "k", strings.NewReader("new"), 3, muxcore.PutOptions{}); muxcore.CodeOf(err) != want {
						t.Errorf("Put = %v, want %s", err, want)
					}
				})
			})
		}
	}
}

// An absence in the words of the standard library is a miss like any other: the next is asked.
func TestAPlainAbsenceIsAMiss(t *testing.T) {
	for _, set := range []muxcore.Settings{{OnMissNext: true}, {Mode: muxcore.Mirror}} {
		backends, hooks := crowd(t, 1, 1)
		hooks[0].set(func(context.Context, muxcore.Op) error { return fs.ErrNotExist })
		m := newMux(t, set, backends...)
		wantBody(t, m, "k", "body", "b1")
		if s := m.Stats().Backends[0]; s.Status != muxcore.StatusUp {
			t.Errorf("b0 is %s", s.Status)
		}
	}
}

// Plain errors get the code that they mean.
func TestAPlainErrorGetsItsCode(t *testing.T) {
	for err, want := range map[error]muxcore.Code{
		fs.ErrNotExist: muxcore.CodeKeyNotFound, fs.ErrInvalid: muxcore.CodeInvalidKey, errors.ErrUnsupported: muxcore.CodeUnsupported,
		fs.ErrPermission: muxcore.CodeDenied,
	} {
		m := newMux(t, muxcore.Settings{}, muxcore.Backend{Name: "a", Store: broken{err}})
		if _, got := m.Get(t.Context(), "k", muxcore.GetOptions{}); muxcore.CodeOf(got) != want || !errors.Is(got, err) || backendOf(got) != "a" {
			t.Errorf("Get from a store that says %v = %v, want %s of a", err, got, want)
		}
	}
}

// When to come back: once the first is due for a trial; and of a single backend, not before it wants to be asked.
func TestRetryAfterIsWhenSomebodyIsDue(t *testing.T) {
	busy := func(context.Context, muxcore.Op) error {
		return &muxcore.Error{Code: muxcore.CodeUnavailable, Status: 503, RetryAfter: 20 * time.Second}
	}
	for name, row := range map[string]struct {
		backends int
		cooldown time.Duration
		want     time.Duration
	}{
		"of a single backend that says when":       {1, time.Second, 20 * time.Second},
		"of a single backend with a long cooldown": {1, time.Minute, time.Minute},
		"of two, when the first is due":            {2, time.Second, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				backends, hooks := copies(t, row.backends, "body", muxcore.PutOptions{})
				for _, h := range hooks {
					h.set(busy)
				}
				m := newMux(t, muxcore.Settings{Cooldown: row.cooldown}, backends...)
				_, err := m.Stat(t.Context(), "k", muxcore.Conditions{})
				if e, ok := errors.AsType[*muxcore.Error](err); !ok || e.RetryAfter != row.want {
					t.Errorf("Stat = %#v, want to come back in %v", err, row.want)
				}
			})
		})
	}
}

// Backups come after all others, whatever the order of the config and the mode; among them the config's holds.
func TestBackupsComeLastWhateverTheConfig(t *testing.T) {
	for _, mode := range []muxcore.Mode{muxcore.Failover, muxcore.RoundRobin, muxcore.Weighted, muxcore.StickyByKey} {
		backends, hooks := crowd(t, 1, 1, 1, 1)
		backends[0].Backup, backends[2].Backup = true, true
		var order []string
		for i, h := range hooks {
			h.set(func(context.Context, muxcore.Op) error {
				order = append(order, fmt.Sprint("b", i))
				return errUnavailable
			})
		}
		m := newMux(t, muxcore.Settings{Mode: mode}, backends...)
		for what, do := range map[string]func() error{
			"Get": func() error { _, err := m.Get(t.Context(), "k", muxcore.GetOptions{}); return err },
			"Put": func() error {
				_, err := m.Put(t.Context(), "k", strings.NewReader("x"), 1, muxcore.PutOptions{Conditions: muxcore.Conditions{IfMatch: "*"}})
				return err
			},
		} {
			order = nil
			if err := do(); err == nil || len(order) != 4 {
				t.Fatalf("%s: %s = %v after %v, want all asked", mode, what, err, order)
			}
			if slices.Sort(order[:2]); fmt.Sprint(order) != "[b1 b3 b0 b2]" {
				t.Errorf("%s: %s asked %v, want the backups b0 and b2 last", mode, what, order)
			}
		}
	}
}

// The last resort is the one that is due first, ordinary or backup; on a tie the ordinary one.
func TestTheLastResortPrefersTheOrdinaryOnATie(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backends, hooks := crowd(t, 1, 1)
		backends[0].Backup = true
		m := newMux(t, muxcore.Settings{LastResort: true}, backends...)
		hooks[0].set(fails)
		hooks[1].set(fails)
		_, _ = m.Stat(t.Context(), "k", muxcore.Conditions{})
		hooks[0].set(nil)
		hooks[1].set(nil)
		wantBody(t, m, "k", "body", "b1")
	})
}
