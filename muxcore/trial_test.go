package muxcore_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// answers is a hook that answers every call with a code.
func answers(code muxcore.Code) func(context.Context, muxcore.Op) error {
	return func(context.Context, muxcore.Op) error { return &muxcore.Error{Code: code} }
}

// A backend that is down comes back by a word of its own, not by what a store refuses before it asks anybody, nor by what
// becomes of the uploader's body. The trial is given back at once.
func TestOnlyTheBackendsOwnWordRevivesIt(t *testing.T) {
	stat := func(ctx context.Context, m *muxcore.Mux) { _, _ = m.Stat(ctx, "k", muxcore.Conditions{}) }
	upload := func(ctx context.Context, m *muxcore.Mux) {
		body := io.MultiReader(strings.NewReader(long(100_000)), iotest.ErrReader(errBroken))
		_, _ = m.Put(ctx, "new", body, 200_000, muxcore.PutOptions{})
	}
	list := func(ctx context.Context, m *muxcore.Mux) {
		for range m.List(ctx, muxcore.ListOptions{}) {
		}
	}
	left := func(ctx context.Context, m *muxcore.Mux) {
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		stat(ctx, m)
	}
	for name, row := range map[string]struct {
		says func(context.Context, muxcore.Op) error
		do   func(ctx context.Context, m *muxcore.Mux)
	}{
		"a key that the store refuses":              {answers(muxcore.CodeInvalidKey), stat},
		"a call that the store does not know":       {answers(muxcore.CodeUnsupported), stat},
		"a list that the store does not know":       {answers(muxcore.CodeUnsupported), list},
		"a write that the store never takes":        {answers(muxcore.CodeReadOnly), upload},
		"a body that is not what it was said to be": {answers(muxcore.CodeBodyMismatch), upload},
		"an uploader that breaks off":               {nil, upload},
		"a caller that left":                        {nil, left},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				backends, hooks := crowd(t, 1)
				m := newMux(t, muxcore.Settings{}, backends...)
				hooks[0].set(fails)
				stat(t.Context(), m)
				_, _ = m.Put(t.Context(), "new", strings.NewReader("x"), 1, muxcore.PutOptions{})
				time.Sleep(time.Second)
				hooks[0].set(row.says)
				calls := hooks[0].calls.Load()
				row.do(t.Context(), m)
				if name != "a caller that left" && hooks[0].calls.Load() == calls {
					t.Fatal("there was no trial")
				}
				if s := m.Stats().Backends[0]; s.Status != muxcore.StatusDown || !s.WritesDown {
					t.Errorf("it is %s, writes down %t: revived", s.Status, s.WritesDown)
				}
				hooks[0].set(nil)
				if _, err := m.Stat(t.Context(), "absent", muxcore.Conditions{}); !errors.Is(err, muxcore.ErrKeyNotFound) {
					t.Errorf("Stat = %v, want a trial and its answer", err)
				}
				put(t, m, "new", "x")
				if s := m.Stats().Backends[0]; s.Status != muxcore.StatusUp || s.WritesDown {
					t.Errorf("after an answer of its own it is %s, writes down %t", s.Status, s.WritesDown)
				}
			})
		})
	}
}

// A mirror that is tried out in a fan-out is not revived, nor blamed, by what the origin says.
func TestAFollowersTrialIsItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backends, hooks := crowd(t, 1, 1)
		m := newMux(t, muxcore.Settings{Mode: muxcore.Shield}, backends...)
		hooks[1].set(fails)
		put(t, m, "new", "x")
		time.Sleep(time.Second)
		hooks[1].set(nil)
		hooks[0].set(fails)
		if _, err := m.Put(t.Context(), "new", strings.NewReader("x"), 1, muxcore.PutOptions{}); err == nil {
			t.Fatal("Put succeeds against the origin")
		}
		if !m.Stats().Backends[1].WritesDown {
			t.Error("the mirror was revived by the origin's failure")
		}
		hooks[0].set(nil)
		time.Sleep(time.Second)
		if r := put(t, m, "new", "x"); len(r.Missed) != 0 || m.Stats().Backends[1].WritesDown {
			t.Errorf("missed by %v", r.Missed)
		}
	})
}

// A member of a mirror that is only slower than others is well: its trial is not called off when another wins, nor
// when the caller goes with that.
func TestASlowerMemberOfAMirrorComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backends, hooks := crowd(t, 1, 1)
		m := newMux(t, muxcore.Settings{Mode: muxcore.Mirror}, backends...)
		hooks[0].set(slow(5 * time.Millisecond))
		hooks[1].set(fails)
		wantBody(t, m, "k", "body", "b0")
		hooks[1].set(slow(10 * time.Millisecond))
		time.Sleep(time.Minute)
		ctx, leave := context.WithCancel(t.Context())
		if _, _, err := read(ctx, m, "k", muxcore.GetOptions{}); err != nil {
			t.Errorf("Get = %v", err)
		}
		leave() // with what the caller wanted
		time.Sleep(time.Second)
		if s := m.Stats().Backends[1]; s.Status != muxcore.StatusUp || s.InFlightCount != 0 {
			t.Errorf("b1 is %s with %d in flight", s.Status, s.InFlightCount)
		}
	})
}

// A body that was being opened while its backend went down, and breaks later, is of the time before: it counts no more.
func TestABodyFromBeforeTheOutageDoesNotCountAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backends, hooks := copies(t, 1, long(100_000), muxcore.PutOptions{ETag: `"one"`})
		m := newMux(t, muxcore.Settings{}, backends...)
		hooks[0].wrap = cutAt(50_000, errBroken)
		hooks[0].set(func(_ context.Context, op muxcore.Op) error {
			if op == muxcore.OpStat {
				return errUnavailable
			}
			time.Sleep(100 * time.Millisecond)
			return nil
		})
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, _, err := read(t.Context(), m, "k", muxcore.GetOptions{}); !errors.Is(err, errBroken) {
				t.Errorf("read = %v, want the error that broke it", err)
			}
		})
		time.Sleep(50 * time.Millisecond)
		_, _ = m.Stat(t.Context(), "k", muxcore.Conditions{})
		wg.Wait()
		if s := m.Stats().Backends[0]; s.ConsecutiveFailures != 1 || s.Errors != 2 {
			t.Errorf("%d failures in a row of %d errors, want one", s.ConsecutiveFailures, s.Errors)
		}
	})
}

// The caller who leaves in the middle of an upload is an abort in events, and nobody's fault.
func TestAnUploaderThatLeavesIsAnAbort(t *testing.T) {
	for _, mode := range []muxcore.Mode{muxcore.Failover, muxcore.Mirror, muxcore.Shield} {
		var classes []muxcore.Class
		backends, _ := crowd(t, 1)
		m := newMux(t, muxcore.Settings{Mode: mode, Observe: func(e muxcore.Event) {
			if e.Kind == muxcore.EventAttempt {
				classes = append(classes, e.Class)
			}
		}}, backends...)
		ctx, cancel := context.WithCancel(t.Context())
		leaves := readerFunc(func([]byte) (int, error) { cancel(); return 0, ctx.Err() })
		_, err := m.Put(ctx, "new", io.MultiReader(strings.NewReader(long(70_000)), leaves), 100_000, muxcore.PutOptions{})
		if len(classes) != 1 || classes[0] != muxcore.ClassAbort || muxcore.CodeOf(err) != muxcore.CodeBackendAborted {
			t.Errorf("%s: Put = %v, attempts %v; want one abort", mode, err, classes)
		}
	}
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
