package muxcore_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// listed is a store whose lists pass through a function: it is called before each entry, from 1, and its error breaks
// them off. It keeps what was asked.
type listed struct {
	*hooked
	each  func(n int) error
	asked *[]muxcore.ListOptions
}

func (l listed) List(ctx context.Context, opts muxcore.ListOptions) iter.Seq2[muxcore.Entry, error] {
	return func(yield func(muxcore.Entry, error) bool) {
		if l.asked != nil {
			*l.asked = append(*l.asked, opts)
		}
		n := 0
		for e, err := range l.hooked.List(ctx, opts) {
			n++
			if broke := l.each(n); broke != nil {
				yield(muxcore.Entry{}, broke)
				return
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// breaksAt breaks a list off at its nth entry.
func breaksAt(n int, err error) func(int) error {
	return func(i int) error {
		if i >= n {
			return err
		}
		return nil
	}
}

func panicsAt(n int) func(int) error {
	return func(i int) error {
		if i == n {
			panic("oh")
		}
		return nil
	}
}

// shelves are n backends that all hold "k" and k000 to k<keys-1>.
func shelves(tb testing.TB, n, keys int) ([]muxcore.Backend, []*hooked) {
	tb.Helper()
	backends, hooks := copies(tb, n, "body", muxcore.PutOptions{ETag: `"one"`})
	for _, h := range hooks {
		for i := range keys {
			put(tb, h.Store, fmt.Sprintf("k%03d", i), "x")
		}
	}
	return backends, hooks
}

// list collects a list: its keys, who gave them, and how it ended.
func list(ctx context.Context, s muxcore.Store, opts muxcore.ListOptions) (keys, from []string, err error) {
	for e, err := range s.List(ctx, opts) {
		if err != nil {
			return keys, from, err
		}
		keys, from = append(keys, e.Key), append(from, e.Via.Backend)
	}
	return keys, from, nil
}

// A list whose backend breaks off goes on elsewhere after the last key that was given, within the limit that is left. It
// counts against the backend as any other call would.
func TestAListGoesOnElsewhere(t *testing.T) {
	for name, row := range map[string]struct {
		each func(int) error
		down bool
	}{
		"after a failure":         {breaksAt(3, errUnavailable), true},
		"after a panic":           {panicsAt(3), true},
		"when it is not let on":   {breaksAt(3, &muxcore.Error{Code: muxcore.CodeDenied, Status: 403}), false},
		"before the first entry":  {breaksAt(1, errUnavailable), true},
		"when it never could":     {breaksAt(1, &muxcore.Error{Code: muxcore.CodeUnsupported}), false},
		"when it lost the knack":  {breaksAt(3, &muxcore.Error{Code: muxcore.CodeUnsupported}), false},
		"with nobody to blame it": {breaksAt(3, &muxcore.Error{Code: muxcore.CodeAllBackendsDown, Unsure: true}), false},
	} {
		t.Run(name, func(t *testing.T) {
			backends, hooks := shelves(t, 2, 10)
			var asked []muxcore.ListOptions
			var told []string
			backends[0].Store = listed{hooks[0], row.each, nil}
			backends[1].Store = listed{hooks[1], breaksAt(100, nil), &asked}
			m := newMux(t, muxcore.Settings{}, backends...)
			opts := muxcore.ListOptions{Prefix: "k", Limit: 7, OnDegraded: func(b string, _ error) { told = append(told, b) }}
			keys, from, err := list(t.Context(), m, opts)
			if err != nil || fmt.Sprint(keys) != "[k k000 k001 k002 k003 k004 k005]" {
				t.Fatalf("List = %v, %v", keys, err)
			}
			given := slices.Index(from, "b1")
			if len(asked) != 1 || asked[0].Limit != 7-given || asked[0].Prefix != "k" || given > 0 && asked[0].After != keys[given-1] {
				t.Errorf("after %d entries of %v, b1 was asked %+v", given, from, asked)
			}
			if s := m.Stats(); s.Backends[0].Status == muxcore.StatusDown != row.down || s.Backends[1].Status != muxcore.StatusUp {
				t.Errorf("statuses = %s, %s; want b0 down: %t", s.Backends[0].Status, s.Backends[1].Status, row.down)
			}
			for _, b := range m.Stats().Backends {
				if b.InFlightCount != 0 {
					t.Errorf("%s: %d still in flight", b.Name, b.InFlightCount)
				}
			}
		})
	}
}

// A list that stalls anywhere, even while its first entry is being handed out, goes on elsewhere after the timeout.
func TestAListThatStallsGoesOnElsewhere(t *testing.T) {
	for _, at := range []int{1, 2, 2, 2, 3, 5, 11} {
		synctest.Test(t, func(t *testing.T) {
			backends, hooks := shelves(t, 2, 10)
			release := make(chan struct{})
			backends[0].Store = listed{hooks[0], func(n int) error {
				if n == at {
					<-release // whatever becomes of its context
				}
				return nil
			}, nil}
			m := newMux(t, muxcore.Settings{Timeout: time.Second}, backends...)
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			begin := time.Now()
			if keys, _, err := list(ctx, m, muxcore.ListOptions{}); err != nil || len(keys) != 11 {
				t.Errorf("stalling at %d: List = %v, %v", at, keys, err)
			}
			if took := time.Since(begin); took != time.Second {
				t.Errorf("stalling at %d: took %v, want the timeout", at, took)
			}
			if s := m.Stats().Backends[0]; s.Status != muxcore.StatusDown || s.Timeouts != 1 {
				t.Errorf("stalling at %d: b0 is %s with %d timeouts", at, s.Status, s.Timeouts)
			}
			close(release)
		})
	}
}

func TestANoInMidListIsFinal(t *testing.T) {
	backends, hooks := shelves(t, 2, 10)
	backends[0].Store = listed{hooks[0], breaksAt(3, &muxcore.Error{Code: muxcore.CodeInvalidKey}), nil}
	m := newMux(t, muxcore.Settings{}, backends...)
	if keys, _, err := list(t.Context(), m, muxcore.ListOptions{}); !errors.Is(err, muxcore.ErrInvalidKey) || len(keys) != 2 || hooks[1].calls.Load() != 0 {
		t.Errorf("List = %v, %v, want the answer of b0 after two", keys, err)
	}
}

// However long the reader takes over an entry, and wherever the list stands then, it is nobody's fault.
func TestASlowReaderOfAListIsNobodysFault(t *testing.T) {
	for _, mode := range []muxcore.Mode{muxcore.Failover, muxcore.Mirror} {
		for _, at := range []int{1, 100, 150, 200} {
			synctest.Test(t, func(t *testing.T) {
				backends, _ := shelves(t, 2, 199)
				m := newMux(t, muxcore.Settings{Mode: mode}, backends...)
				n := 0
				for _, err := range m.List(t.Context(), muxcore.ListOptions{}) {
					if err != nil {
						t.Errorf("%s: after %d: %v", mode, n, err)
						break
					}
					if n++; n == at {
						synctest.Wait()
						time.Sleep(time.Hour)
					}
				}
				for _, b := range m.Stats().Backends {
					if n != 200 || b.Status != muxcore.StatusUp {
						t.Errorf("%s, waiting at %d: %d entries, %s is %s: %s", mode, at, n, b.Name, b.Status, b.Reason)
					}
				}
			})
		}
	}
}

// The lists of a merge are opened side by side: members that hang cost one timeout together, and nothing of the others.
func TestMergedListsOpenSideBySide(t *testing.T) {
	for _, well := range []int{0, 0, 0, 1, 3} { // those who are well may be anywhere in their lists by then
		synctest.Test(t, func(t *testing.T) {
			backends, hooks := shelves(t, 4, 10)
			var ill []string
			for i, h := range hooks {
				if i != well {
					h.set(hangs)
					ill = append(ill, backends[i].Name)
				}
			}
			backends[well].Store = listed{hooks[well], func(int) error { time.Sleep(10 * time.Millisecond); return nil }, nil}
			m := newMux(t, muxcore.Settings{Mode: muxcore.Mirror}, backends...)
			var degraded []string
			begin := time.Now()
			keys, _, err := list(t.Context(), m, muxcore.ListOptions{OnDegraded: func(b string, _ error) { degraded = append(degraded, b) }})
			if err != nil || len(keys) != 11 || !slices.Equal(degraded, ill) {
				t.Errorf("List = %d entries, %v, degraded %v, want %v", len(keys), err, degraded, ill)
			}
			if took := time.Since(begin); took != 30*time.Second {
				t.Errorf("took %v, want one timeout", took)
			}
			if s := m.Stats().Backends[well]; s.Status != muxcore.StatusUp {
				t.Errorf("%s, which is well, is %s: %s", s.Name, s.Status, s.Reason)
			}
		})
	}
}

// A merged list that no member brings to its end has not ended: it is an error, never a short list. One that some member
// brings to its end is whole as far as that one goes, and the others are named.
func TestAMergedListThatNobodyEndsIsAnError(t *testing.T) {
	unsupported := &muxcore.Error{Code: muxcore.CodeUnsupported}
	for name, row := range map[string]struct {
		each     [2]func(int) error
		want     muxcore.Code
		degraded string
	}{
		"all break":               {[2]func(int) error{breaksAt(3, errUnavailable), breaksAt(4, errUnavailable)}, muxcore.CodeAllBackendsDown, "[b0 b1]"},
		"none can list":           {[2]func(int) error{breaksAt(1, unsupported), breaksAt(1, unsupported)}, muxcore.CodeUnsupported, "[b0 b1]"},
		"one cannot, one breaks":  {[2]func(int) error{breaksAt(1, unsupported), breaksAt(3, errUnavailable)}, muxcore.CodeAllBackendsDown, "[b0 b1]"},
		"one breaks":              {[2]func(int) error{breaksAt(3, errUnavailable), breaksAt(100, nil)}, "", "[b0]"},
		"one cannot":              {[2]func(int) error{breaksAt(1, unsupported), breaksAt(100, nil)}, "", "[b0]"},
		"all go on to their ends": {[2]func(int) error{breaksAt(100, nil), breaksAt(100, nil)}, "", "[]"},
	} {
		t.Run(name, func(t *testing.T) {
			backends, hooks := shelves(t, 2, 10)
			for i := range backends {
				backends[i].Store = listed{hooks[i], row.each[i], nil}
			}
			m := newMux(t, muxcore.Settings{Mode: muxcore.Mirror}, backends...)
			var degraded []string
			keys, _, err := list(t.Context(), m, muxcore.ListOptions{OnDegraded: func(b string, _ error) { degraded = append(degraded, b) }})
			if slices.Sort(degraded); muxcore.CodeOf(err) != row.want || fmt.Sprint(degraded) != row.degraded {
				t.Errorf("List = %v, %v, degraded %v; want %q and %s", keys, err, degraded, row.want, row.degraded)
			}
			if err == nil && len(keys) != 11 {
				t.Errorf("%d entries, and no error", len(keys))
			}
		})
	}
}

func TestACancelledListIsAnAbort(t *testing.T) {
	for _, mode := range []muxcore.Mode{muxcore.Failover, muxcore.Mirror} {
		synctest.Test(t, func(t *testing.T) {
			backends, _ := shelves(t, 2, 199)
			backends = append(backends, muxcore.Backend{Name: "empty", Store: memory(t)}) // comes to its end, and that does not count
			m := newMux(t, muxcore.Settings{Mode: mode}, backends...)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			n, last := 0, error(nil)
			for _, err := range m.List(ctx, muxcore.ListOptions{}) {
				if n++; n == 10 {
					cancel()
				}
				last = err
			}
			if muxcore.CodeOf(last) != muxcore.CodeBackendAborted {
				t.Errorf("%s: ended after %d in %v, want an abort", mode, n, last)
			}
			for _, b := range m.Stats().Backends {
				if b.Status != muxcore.StatusUp {
					t.Errorf("%s: %s is %s", mode, b.Name, b.Status)
				}
			}
		})
	}
}

// goroutine is the number of the one that asks.
func goroutine() string {
	buf := make([]byte, 64)
	return strings.Fields(string(buf[:runtime.Stack(buf, false)]))[1]
}

// Whoever is told of missing parts need not lock: it is told on the goroutine that reads the list, however deep the part.
func TestMissingPartsAreToldToTheReader(t *testing.T) {
	for _, mode := range []muxcore.Mode{muxcore.Failover, muxcore.Mirror} {
		var inners []muxcore.Backend
		for i := range 2 {
			backends, hooks := shelves(t, 2, 300)
			backends[1].Store = listed{hooks[1], breaksAt(100, errUnavailable), nil}
			inner := newMux(t, muxcore.Settings{Mode: muxcore.Mirror}, backends...)
			inners = append(inners, muxcore.Backend{Name: fmt.Sprint("m", i), Store: inner})
		}
		m := newMux(t, muxcore.Settings{Mode: mode}, inners...)
		want, reader := "[m0.b1]", goroutine()
		if mode == muxcore.Mirror {
			want = "[m0.b1 m1.b1]"
		}
		var names []string
		keys, _, err := list(t.Context(), m, muxcore.ListOptions{OnDegraded: func(b string, _ error) {
			if names = append(names, b); goroutine() != reader {
				t.Errorf("%s: told of %s on another goroutine", mode, b)
			}
		}})
		if slices.Sort(names); err != nil || len(keys) != 301 || fmt.Sprint(names) != want {
			t.Errorf("%s: %d entries, %v, degraded %v, want %s", mode, len(keys), err, names, want)
		}
	}
}

// A panic in the reader's loop goes through, and leaves nothing behind.
func TestAPanicOfTheReaderLeaksNothing(t *testing.T) {
	for _, mode := range []muxcore.Mode{muxcore.Failover, muxcore.Mirror} {
		backends, _ := shelves(t, 2, 200)
		m := newMux(t, muxcore.Settings{Mode: mode}, backends...)
		if p := caught(func() {
			for range m.List(t.Context(), muxcore.ListOptions{}) {
				panic("reader")
			}
		}); p != "reader" {
			t.Errorf("%s: caught %v", mode, p)
		}
		for _, b := range m.Stats().Backends {
			if b.InFlightCount != 0 {
				t.Errorf("%s: %d in flight on %s", mode, b.InFlightCount, b.Name)
			}
		}
	}
}

// caught is what f panics with.
func caught(f func()) (p any) {
	defer func() { p = recover() }()
	f()
	return nil
}

// Keys that live on backends of their own are all listed, page by page.
func TestStickyListsAreMerged(t *testing.T) {
	for _, rendezvous := range []bool{false, true} {
		backends, _ := crowd(t, 1, 1)
		m := newMux(t, muxcore.Settings{Mode: muxcore.StickyByKey, Rendezvous: rendezvous}, backends...)
		for i := range 20 {
			put(t, m, fmt.Sprintf("n%02d", i), "x")
		}
		seen := make(map[string]bool)
		for after := ""; ; {
			keys, _, err := list(t.Context(), m, muxcore.ListOptions{Limit: 5, After: after})
			if err != nil {
				t.Fatal(err)
			}
			if len(keys) == 0 {
				break
			}
			for _, key := range keys {
				seen[key] = true
			}
			after = keys[len(keys)-1]
		}
		if len(seen) != 21 {
			t.Errorf("rendezvous %t: pages show %d of 21 keys that reads find", rendezvous, len(seen))
		}
	}
}
