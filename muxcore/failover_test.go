package muxcore_test

import (
	"context"
	"errors"
	"io"
	"iter"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// hooked is a store that runs a function before each call; its error is the call's. It waits as its context says.
type hooked struct {
	muxcore.Store
	before atomic.Pointer[func(ctx context.Context, op muxcore.Op) error]
	calls  atomic.Int64
	wrap   func(context.Context, io.ReadCloser) io.ReadCloser // around bodies
	deaf   bool                                               // does not hear when its context ends
}

func hook(s muxcore.Store, before func(ctx context.Context, op muxcore.Op) error) *hooked {
	h := &hooked{Store: s}
	h.set(before)
	return h
}

func (h *hooked) set(before func(ctx context.Context, op muxcore.Op) error) { h.before.Store(&before) }

func (h *hooked) run(ctx context.Context, op muxcore.Op) error {
	h.calls.Add(1)
	if before := *h.before.Load(); before != nil {
		return before(ctx, op)
	}
	return nil
}

func (h *hooked) Waits() muxcore.Waits { return muxcore.WaitsWithContext }

func (h *hooked) Capabilities() muxcore.Capabilities { return muxcore.CapabilitiesOf(h.Store) }

func (h *hooked) Get(ctx context.Context, key string, opts muxcore.GetOptions) (*muxcore.Object, error) {
	if err := h.run(ctx, muxcore.OpGet); err != nil {
		return nil, err
	}
	if h.deaf {
		ctx = context.WithoutCancel(ctx)
	}
	obj, err := h.Store.Get(ctx, key, opts)
	if err == nil && h.wrap != nil {
		obj.Body = h.wrap(ctx, obj.Body)
	}
	return obj, err
}

func (h *hooked) Stat(ctx context.Context, key string, cond muxcore.Conditions) (muxcore.Info, error) {
	if err := h.run(ctx, muxcore.OpStat); err != nil {
		return muxcore.Info{}, err
	}
	return h.Store.Stat(ctx, key, cond)
}

func (h *hooked) Put(ctx context.Context, key string, body io.Reader, size int64, opts muxcore.PutOptions) (muxcore.PutResult, error) {
	if err := h.run(ctx, muxcore.OpPut); err != nil {
		return muxcore.PutResult{}, err
	}
	return h.Store.Put(ctx, key, body, size, opts)
}

func (h *hooked) Delete(ctx context.Context, key string, opts muxcore.DeleteOptions) (muxcore.DeleteResult, error) {
	if err := h.run(ctx, muxcore.OpDelete); err != nil {
		return muxcore.DeleteResult{}, err
	}
	return h.Store.Delete(ctx, key, opts)
}

func (h *hooked) List(ctx context.Context, opts muxcore.ListOptions) iter.Seq2[muxcore.Entry, error] {
	return func(yield func(muxcore.Entry, error) bool) {
		if err := h.run(ctx, muxcore.OpList); err != nil {
			yield(muxcore.Entry{}, err)
			return
		}
		h.Store.List(ctx, opts)(yield)
	}
}

var errUnavailable = &muxcore.Error{Code: muxcore.CodeUnavailable, Status: 500, Err: errBroken}

func fails(context.Context, muxcore.Op) error { return errUnavailable }

func hangs(ctx context.Context, _ muxcore.Op) error {
	<-ctx.Done()
	return &muxcore.Error{Code: muxcore.CodeUnavailable, Err: ctx.Err()}
}

// two is a mux over a and b, of which a hook is in front of a. Both hold "k", each with its own name in it.
func two(tb testing.TB, set muxcore.Settings, before func(context.Context, muxcore.Op) error) (*muxcore.Mux, *hooked) {
	tb.Helper()
	a, b := memory(tb), memory(tb)
	put(tb, a, "k", "from a")
	put(tb, b, "k", "from b")
	first := hook(a, before)
	return newMux(tb, set, muxcore.Backend{Name: "a", Store: first}, muxcore.Backend{Name: "b", Store: b}), first
}

func TestFailoverAnswersFromTheNextBackend(t *testing.T) {
	status := func(code int) func(context.Context, muxcore.Op) error {
		return func(context.Context, muxcore.Op) error {
			return &muxcore.Error{Code: muxcore.CodeUnavailable, Status: code, Err: errBroken}
		}
	}
	for name, before := range map[string]func(context.Context, muxcore.Op) error{
		"after a 500":         status(500),
		"after a 408":         status(408),
		"after a 429":         status(429),
		"after a 403":         func(context.Context, muxcore.Op) error { return &muxcore.Error{Code: muxcore.CodeDenied, Status: 403} },
		"after a panic":       func(context.Context, muxcore.Op) error { panic("oh") },
		"after a plain error": func(context.Context, muxcore.Op) error { return errBroken },
		"after a hang":        hangs,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, _ := two(t, muxcore.Settings{}, before)
				wantBody(t, m, "k", "from b", "b")
				if _, err := m.Stat(t.Context(), "k", muxcore.Conditions{}); err != nil {
					t.Errorf("Stat = %v", err)
				}
			})
		})
	}
}

func TestFailoverTakesAFinalAnswer(t *testing.T) {
	for name, want := range map[string]*muxcore.Error{
		"absent":       {Code: muxcore.CodeKeyNotFound},
		"not modified": {Code: muxcore.CodeNotModified},
		"412":          {Code: muxcore.CodePreconditionFailed},
		"416":          {Code: muxcore.CodeRangeNotSatisfiable},
		"a 4xx":        {Code: muxcore.CodeUnavailable, Status: 410},
	} {
		t.Run(name, func(t *testing.T) {
			m, a := two(t, muxcore.Settings{}, func(context.Context, muxcore.Op) error { return want })
			for range 3 {
				if _, err := m.Get(t.Context(), "k", muxcore.GetOptions{}); muxcore.CodeOf(err) != want.Code {
					t.Errorf("Get = %v, want %v", err, want)
				}
			}
			if s := m.Stats().Backends[0]; s.Status != muxcore.StatusUp || s.Errors != 0 || a.calls.Load() != 3 {
				t.Errorf("an answer counts against the backend: %+v", s)
			}
		})
	}
}

// The cooldown doubles with each failed trial; until it is over the backend is not asked, after it once at a time.
func TestADownBackendIsLeftAloneAndComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events []muxcore.Event
		m, a := two(t, muxcore.Settings{Float64: func() float64 { return 0 }, Observe: func(e muxcore.Event) {
			if e.Kind != muxcore.EventAttempt {
				events = append(events, e)
			}
		}}, fails)
		calls := int64(1)
		wantBody(t, m, "k", "from b", "b")
		for _, cooldown := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
			time.Sleep(cooldown*time.Second - 1)
			wantBody(t, m, "k", "from b", "b")
			if got := a.calls.Load(); got != calls {
				t.Fatalf("%d calls during the cooldown of %vs, want %d", got, int(cooldown), calls)
			}
			time.Sleep(time.Nanosecond)
			wantBody(t, m, "k", "from b", "b")
			if calls++; a.calls.Load() != calls {
				t.Fatalf("no trial after the cooldown of %vs", int(cooldown))
			}
		}
		a.set(nil)
		time.Sleep(time.Minute)
		wantBody(t, m, "k", "from a", "a")
		wantBody(t, m, "k", "from a", "a")
		var kinds []string
		for _, e := range events {
			if e.Kind != muxcore.EventFailover {
				kinds = append(kinds, string(e.Kind)+" "+e.Name)
			}
		}
		if got := strings.Join(kinds, ", "); got != "storage-mux.backend.down a, storage-mux.backend.recovered a" {
			t.Errorf("events on change only: %s", got)
		}
	})
}

func TestOneTrialAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, a := two(t, muxcore.Settings{}, fails)
		wantBody(t, m, "k", "from b", "b")
		time.Sleep(time.Second)
		release := make(chan struct{})
		a.set(func(context.Context, muxcore.Op) error { <-release; return nil })
		for range 20 {
			go func() { _, _, _ = read(t.Context(), m, "k", muxcore.GetOptions{}) }()
		}
		synctest.Wait()
		if got := a.calls.Load(); got != 2 {
			t.Errorf("%d calls, want the failure and one trial", got)
		}
		close(release)
		synctest.Wait()
		wantBody(t, m, "k", "from a", "a")
	})
}

// A trial whose client leaves says nothing, and gives its place to the next.
func TestACancelledTrialFreesItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, a := two(t, muxcore.Settings{}, fails)
		wantBody(t, m, "k", "from b", "b")
		time.Sleep(time.Second)
		a.set(hangs)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if _, err := m.Get(ctx, "k", muxcore.GetOptions{}); muxcore.CodeOf(err) != muxcore.CodeBackendAborted {
			t.Errorf("Get = %v, want an abort", err)
		}
		a.set(nil)
		wantBody(t, m, "k", "from a", "a")
	})
}

func TestAllDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := hook(memory(t), fails)
		m := newMux(t, muxcore.Settings{}, muxcore.Backend{Name: "a", Store: one}, muxcore.Backend{Name: "b", Store: broken{}})
		for i, attempts := range []int{2, 0} {
			_, err := m.Get(t.Context(), "k", muxcore.GetOptions{})
			e, ok := errors.AsType[*muxcore.Error](err)
			if !ok || e.Code != muxcore.CodeAllBackendsDown || e.Attempts != attempts || e.RetryAfter != time.Second {
				t.Errorf("Get %d = %#v, want all down after %d attempts, due in 1s", i, err, attempts)
			}
		}
		one.set(hangs)
		time.Sleep(time.Second)
		m2 := newMux(t, muxcore.Settings{Timeout: time.Second}, muxcore.Backend{Name: "a", Store: one})
		if _, err := m2.Get(t.Context(), "k", muxcore.GetOptions{}); muxcore.CodeOf(err) != muxcore.CodeBackendTimeout {
			t.Errorf("Get from one that hangs = %v, want a timeout", err)
		}
	})
}

func TestLastResortAsksTheOneDueFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := memory(t), hook(memory(t), fails)
		put(t, a, "k", "from a")
		first := hook(a, fails)
		m := newMux(t, muxcore.Settings{LastResort: true}, muxcore.Backend{Name: "a", Store: first}, muxcore.Backend{Name: "b", Store: b})
		if _, err := m.Get(t.Context(), "k", muxcore.GetOptions{}); err == nil {
			t.Fatal("Get succeeds with all failing")
		}
		first.set(nil)
		wantBody(t, m, "k", "from a", "a")
	})
}

func TestBackupsAreAskedLast(t *testing.T) {
	a, b := memory(t), memory(t)
	put(t, a, "k", "from a")
	put(t, b, "k", "from b")
	second := hook(b, nil)
	for _, mode := range []muxcore.Mode{muxcore.Failover, muxcore.RoundRobin, muxcore.StickyByKey, muxcore.Mirror} {
		m := newMux(t, muxcore.Settings{Mode: mode}, muxcore.Backend{Name: "a", Store: waiting{a, muxcore.WaitsNever}, Backup: true}, muxcore.Backend{Name: "b", Store: second})
		second.set(nil)
		for range 4 {
			wantBody(t, m, "k", "from b", "b")
		}
		second.set(fails)
		wantBody(t, m, "k", "from a", "a")
		wantBody(t, m, "k", "from a", "a")
	}
}

func TestRetryOnTheSameBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, a := two(t, muxcore.Settings{Retry: muxcore.Retry{Max: 2}}, nil)
		a.set(func(context.Context, muxcore.Op) error {
			if a.calls.Load() < 3 {
				return errUnavailable
			}
			return nil
		})
		_, obj, err := read(t.Context(), m, "k", muxcore.GetOptions{})
		if err != nil || obj.Via != (muxcore.Via{Backend: "a", Attempts: 3}) {
			t.Fatalf("Get = %+v, %v, want the third attempt on a", obj, err)
		}
	})
}

// A delay that would not fit a duration any more, were it doubled so often, is still the longest one.
func TestRetriesKeepTheirPauseHoweverMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const retries = 70
		retry := muxcore.Retry{Max: retries, Delay: time.Minute, MaxDelay: time.Hour}
		a := hook(memory(t), fails)
		m := newMux(t, muxcore.Settings{Retry: retry, Float64: func() float64 { return 0.5 }}, muxcore.Backend{Name: "a", Store: a})
		begin := time.Now()
		if _, err := m.Stat(t.Context(), "k", muxcore.Conditions{}); err == nil || a.calls.Load() != 1+retries {
			t.Fatalf("Stat = %v after %d calls, want %d", err, a.calls.Load(), 1+retries)
		}
		want := (63*time.Minute + (retries-6)*time.Hour) / 2 // 1, 2, 4, 8, 16, 32, and 60 from then on
		if took := time.Since(begin); took != want {
			t.Errorf("%d retries took %v, want %v", retries, took, want)
		}
	})
}

// So is a cooldown.
func TestALongCooldownIsNotOverAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const years = 5 * 365 * 24 * time.Hour
		set := muxcore.Settings{Cooldown: years, MaxCooldown: years, LastResort: true}
		a := hook(memory(t), fails)
		m := newMux(t, set, muxcore.Backend{Name: "a", Store: a})
		for range 8 { // each a trial that fails, so that the next cooldown would be twice as long
			_, _ = m.Stat(t.Context(), "k", muxcore.Conditions{})
		}
		if until := m.Stats().Backends[0].NextTrialAt; time.Until(*until) != years {
			t.Errorf("after %d calls it is due at %v, want in five years", a.calls.Load(), until)
		}
	})
}

// The deadline is split over the attempts, so that one that hangs leaves time for the next.
func TestTheDeadlineIsSplit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := two(t, muxcore.Settings{Deadline: 3 * time.Second}, hangs)
		begin := time.Now()
		wantBody(t, m, "k", "from b", "b")
		if took := time.Since(begin); took != 1500*time.Millisecond {
			t.Errorf("took %v, want half of the deadline", took)
		}
		m2 := newMux(t, muxcore.Settings{Deadline: 2 * time.Second}, muxcore.Backend{Name: "x", Store: hook(memory(t), hangs)}, muxcore.Backend{Name: "y", Store: hook(memory(t), hangs)})
		begin = time.Now()
		_, err := m2.Get(t.Context(), "k", muxcore.GetOptions{})
		if took := time.Since(begin); took != 2*time.Second || muxcore.CodeOf(err) != muxcore.CodeBackendTimeout {
			t.Errorf("Get = %v after %v, want a timeout at the deadline", err, took)
		}
	})
}

// A store that ignores its context is abandoned, and what it brings too late is closed.
func TestAHungBackendIsAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		closed := make(chan struct{})
		a, b := memory(t), memory(t)
		put(t, a, "k", "from a")
		put(t, b, "k", "from b")
		stuck := hook(a, func(context.Context, muxcore.Op) error { <-release; return nil })
		stuck.deaf = true
		stuck.wrap = func(_ context.Context, body io.ReadCloser) io.ReadCloser { return closeTeller{body, closed} }
		m := newMux(t, muxcore.Settings{Timeout: time.Second},
			muxcore.Backend{Name: "a", Store: waiting{stuck, muxcore.WaitsUnbounded}}, muxcore.Backend{Name: "b", Store: b})
		wantBody(t, m, "k", "from b", "b")
		close(release)
		<-closed
	})
}

type closeTeller struct {
	io.ReadCloser
	closed chan struct{}
}

func (c closeTeller) Close() error {
	close(c.closed)
	return c.ReadCloser.Close()
}

func TestOnMissNextIsAnHonest404(t *testing.T) {
	a, b := hook(memory(t), nil), hook(memory(t), nil)
	put(t, b.Store, "only-b", "from b")
	m := newMux(t, muxcore.Settings{OnMissNext: true}, muxcore.Backend{Name: "a", Store: a}, muxcore.Backend{Name: "b", Store: b})
	wantBody(t, m, "only-b", "from b", "b")
	if _, err := m.Get(t.Context(), "nowhere", muxcore.GetOptions{}); !errors.Is(err, muxcore.ErrKeyNotFound) {
		t.Errorf("Get with all asked = %v, want not found", err)
	}
	b.set(fails)
	for range 2 {
		if _, err := m.Get(t.Context(), "nowhere", muxcore.GetOptions{}); muxcore.CodeOf(err) != muxcore.CodeAllBackendsDown {
			t.Errorf("Get with one that could not be asked = %v, want all down", err)
		}
	}
}

func TestAllDeniedIsDenied(t *testing.T) {
	denied := broken{&muxcore.Error{Code: muxcore.CodeDenied, Status: 403}}
	m := newMux(t, muxcore.Settings{}, muxcore.Backend{Name: "a", Store: denied}, muxcore.Backend{Name: "b", Store: denied})
	if _, err := m.Get(t.Context(), "k", muxcore.GetOptions{}); muxcore.CodeOf(err) != muxcore.CodeDenied {
		t.Errorf("Get = %v, want denied", err)
	}
	if s := m.Stats().Backends[0]; s.Status != muxcore.StatusUp || s.Reason == "" {
		t.Errorf("denied backend: %+v, want it up with a reason", s)
	}
}
