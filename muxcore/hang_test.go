package muxcore_test

import (
	"context"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// deaf are n backends that may hang, and do so until release is closed: they do not hear when their context ends.
func deaf(tb testing.TB, n int, body string) (backends []muxcore.Backend, hooks []*hooked, release chan struct{}) {
	tb.Helper()
	release = make(chan struct{})
	backends, hooks = copies(tb, n, body, muxcore.PutOptions{ETag: `"one"`})
	for i := range backends {
		hooks[i].deaf = true
		backends[i].Store = waiting{hooks[i], muxcore.WaitsUnbounded}
	}
	return backends, hooks, release
}

// inside counts who is in a hook that waits for release.
func inside(n *atomic.Int64, release <-chan struct{}) func(context.Context, muxcore.Op) error {
	return func(context.Context, muxcore.Op) error {
		n.Add(1)
		defer n.Add(-1)
		<-release
		return errBroken
	}
}

// Calls that hang on with nobody waiting for them are capped: a member of a mirror that loses every race would collect one
// with each read. When they come back, it is asked again.
func TestCallsThatHangAreCapped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backends, hooks, release := deaf(t, 2, "body")
		var n atomic.Int64
		hooks[1].set(inside(&n, release))
		m := newMux(t, muxcore.Settings{Mode: muxcore.Mirror}, backends...)
		for range 1000 {
			wantBody(t, m, "k", "body", "b0")
			time.Sleep(time.Second)
		}
		if got := n.Load(); got < 64 || got > 66 {
			t.Errorf("%d calls hang after 1000 reads, want some 64", got)
		}
		close(release)
		synctest.Wait()
		calls := hooks[1].calls.Load()
		wantBody(t, m, "k", "body", "b0")
		synctest.Wait()
		if hooks[1].calls.Load() == calls {
			t.Error("a backend whose calls have come back is not asked again")
		}
	})
}

// What hangs where all others are down says so.
func TestABackendFullOfHungCallsIsNotAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backends, hooks, release := deaf(t, 1, "body")
		var n atomic.Int64
		hooks[0].set(inside(&n, release))
		m := newMux(t, muxcore.Settings{}, backends...)
		for range 100 { // callers who do not wait for the timeout
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, _ = m.Stat(ctx, "k", muxcore.Conditions{})
			cancel()
		}
		if got := n.Load(); got > 68 {
			t.Errorf("%d calls hang, want some 64", got)
		}
		if _, err := m.Stat(t.Context(), "k", muxcore.Conditions{}); muxcore.CodeOf(err) != muxcore.CodeAllBackendsDown {
			t.Errorf("Stat = %v, want all down", err)
		}
		close(release)
	})
}

// A store that may hang but is only busy takes any number of calls at a time.
func TestABusyStoreIsNotAHungOne(t *testing.T) {
	for _, mode := range []muxcore.Mode{muxcore.Failover, muxcore.Mirror} {
		synctest.Test(t, func(t *testing.T) {
			backends, hooks, _ := deaf(t, 2, "body")
			hooks[0].set(func(context.Context, muxcore.Op) error { time.Sleep(time.Second); return nil })
			hooks[1].set(func(context.Context, muxcore.Op) error { time.Sleep(2 * time.Second); return nil })
			m := newMux(t, muxcore.Settings{Mode: mode}, backends...)
			var wg sync.WaitGroup
			for range 300 {
				wg.Go(func() {
					if _, err := m.Stat(t.Context(), "k", muxcore.Conditions{}); err != nil {
						t.Errorf("%s: Stat = %v", mode, err)
					}
				})
				wg.Go(func() {
					for _, err := range m.List(t.Context(), muxcore.ListOptions{Limit: 1}) {
						if err != nil {
							t.Errorf("%s: List = %v", mode, err)
						}
					}
				})
			}
			wg.Wait()
			synctest.Wait()
			if mode == muxcore.Mirror {
				return // there, the losers are left out once the losses hang; the winners have all answered
			}
			if got := hooks[1].calls.Load(); got != 0 {
				t.Errorf("%d calls went to the second backend, want none", got)
			}
		})
	}
}

// The losers of races run on for a moment, and in many reads at a time that is many calls: no reason to ask nobody.
func TestManyLosersOfRacesAreNotHungCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backends, hooks, _ := deaf(t, 2, "body")
		for i, h := range hooks {
			h.set(func(context.Context, muxcore.Op) error {
				time.Sleep(time.Second * time.Duration(1+(h.calls.Load()+int64(i))%2))
				return nil
			})
		}
		m := newMux(t, muxcore.Settings{Mode: muxcore.Mirror}, backends...)
		var wg sync.WaitGroup
		for range 2 {
			for range 600 {
				wg.Go(func() {
					if _, err := m.Stat(t.Context(), "k", muxcore.Conditions{}); err != nil {
						t.Errorf("Stat = %v", err)
					}
				})
			}
			time.Sleep(1100 * time.Millisecond) // the winners are in, the losers are not
		}
		wg.Wait()
	})
}

// teller is a store that tells whether it was closed while somebody was inside.
type teller struct {
	waiting
	n      *atomic.Int64
	closed chan struct{}
	early  *atomic.Bool
}

func (s teller) Close() error {
	s.early.Store(s.n.Load() > 0)
	close(s.closed)
	return nil
}

// A store that was removed is closed when the last call has come back, even one that nobody waits for any more: a
// call, a list, a read of a body and an active check alike.
func TestAStoreIsClosedWhenNobodyIsInside(t *testing.T) {
	for name, enter := range map[string]func(ctx context.Context, m *muxcore.Mux){
		"a call": func(ctx context.Context, m *muxcore.Mux) { _, _ = m.Stat(ctx, "k", muxcore.Conditions{}) },
		"a list": func(ctx context.Context, m *muxcore.Mux) {
			for range m.List(ctx, muxcore.ListOptions{}) {
			}
		},
		"a body": func(ctx context.Context, m *muxcore.Mux) { _, _, _ = read(ctx, m, "k", muxcore.GetOptions{}) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				backends, hooks, release := deaf(t, 2, long(100_000))
				var n atomic.Int64
				s := teller{waiting{hooks[0], muxcore.WaitsUnbounded}, &n, make(chan struct{}), new(atomic.Bool)}
				backends[0].Store = s
				if name == "a body" {
					hooks[0].wrap = func(_ context.Context, rc io.ReadCloser) io.ReadCloser {
						return countedBody{&staller{rc, 50_000, release}, &n}
					}
				} else {
					hooks[0].set(inside(&n, release))
				}
				m := newMux(t, muxcore.Settings{Timeout: time.Second}, backends...)
				enter(t.Context(), m)
				if err := m.Remove("b0"); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if n.Load() == 0 {
					t.Fatal("nobody is inside")
				}
				close(release)
				<-s.closed
				if s.early.Load() {
					t.Error("the store was closed while somebody was inside")
				}
			})
		})
	}
}

// countedBody counts who is in its Read.
type countedBody struct {
	io.ReadCloser
	n *atomic.Int64
}

func (b countedBody) Read(p []byte) (int, error) {
	b.n.Add(1)
	defer b.n.Add(-1)
	return b.ReadCloser.Read(p)
}

func TestAStoreIsNotClosedUnderItsCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backends, hooks, _ := deaf(t, 2, "body")
		var n atomic.Int64
		s := checkedTeller{teller{waiting{hooks[1], muxcore.WaitsUnbounded}, &n, make(chan struct{}), new(atomic.Bool)}}
		backends[1].Store = s
		m := newMux(t, muxcore.Settings{HealthInterval: time.Second}, backends...)
		synctest.Wait()
		if n.Load() != 1 {
			t.Fatal("no check is under way")
		}
		if err := m.Remove("b1"); err != nil {
			t.Fatal(err)
		}
		<-s.closed
		if s.early.Load() {
			t.Error("the store was closed while a check was inside")
		}
	})
}

// checkedTeller has checks that take a moment to hear that they are over.
type checkedTeller struct{ teller }

func (s checkedTeller) Probe(ctx context.Context) error {
	s.n.Add(1)
	defer s.n.Add(-1)
	<-ctx.Done()
	time.Sleep(time.Millisecond)
	return ctx.Err()
}

// What a hung call brings too late is closed, and its backend is down for the time that it hung, not for ever.
func TestAHungBackendComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backends, hooks, release := deaf(t, 2, "body")
		var n atomic.Int64
		hooks[0].set(inside(&n, release))
		m := newMux(t, muxcore.Settings{Timeout: time.Second}, backends...)
		wantBody(t, m, "k", "body", "b1")
		close(release)
		hooks[0].set(nil)
		time.Sleep(time.Second)
		wantBody(t, m, "k", "body", "b0")
	})
}

// Close of a mux comes back although a call hangs; the store is closed when that call comes back.
func TestCloseDoesNotWaitForWhatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backends, hooks, release := deaf(t, 1, "body")
		var n atomic.Int64
		hooks[0].set(inside(&n, release))
		s := teller{waiting{hooks[0], muxcore.WaitsUnbounded}, &n, make(chan struct{}), new(atomic.Bool)}
		backends[0].Store = s
		m, err := muxcore.New(muxcore.Settings{Timeout: time.Second}, backends...)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.Stat(t.Context(), "k", muxcore.Conditions{}); muxcore.CodeOf(err) != muxcore.CodeBackendTimeout {
			t.Errorf("Stat = %v, want a timeout", err)
		}
		if err := m.Close(); err != nil {
			t.Errorf("Close = %v", err)
		}
		select {
		case <-s.closed:
			t.Error("the store was closed while a call was inside")
		default:
		}
		close(release)
		<-s.closed
	})
}
