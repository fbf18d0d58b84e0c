package muxcore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// region is a mux over one backend "eu", which is a mux over the backends given.
func region(tb testing.TB, inner muxcore.Settings, backends ...muxcore.Backend) *muxcore.Mux {
	tb.Helper()
	return newMux(tb, muxcore.Settings{}, muxcore.Backend{Name: "eu", Store: newMux(tb, inner, backends...)})
}

// Only the nested mux can tell whether it makes progress: it gets the time that failing over inside takes.
func TestANestedMuxHasTheTimeToFailOver(t *testing.T) {
	for _, hung := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			backends, hooks := crowd(t, 1, 1, 1)
			for i := range hung {
				hooks[i].set(hangs)
			}
			m := region(t, muxcore.Settings{Timeout: 40 * time.Second}, backends...)
			want := fmt.Sprint("eu.b", hung)
			wantBody(t, m, "k", "body", want)
			r, err := m.Put(t.Context(), "new", strings.NewReader("x"), 1, muxcore.PutOptions{})
			if err != nil || r.Via.Backend != want {
				t.Errorf("Put with %d that hang = %+v, %v, want it on %s", hung, r.Via, err, want)
			}
			if s := m.Stats().Backends[0]; s.Status != muxcore.StatusUp || s.WritesDown {
				t.Errorf("eu, which answers, is %+v", s)
			}
		})
	}
}

func TestATimeoutOfItsOwnHoldsForANestedMux(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backends, hooks := crowd(t, 1, 1)
		hooks[0].set(hangs)
		inner := newMux(t, muxcore.Settings{}, backends...)
		m := newMux(t, muxcore.Settings{}, muxcore.Backend{Name: "eu", Store: inner, Timeout: 10 * time.Second})
		begin := time.Now()
		if _, err := m.Get(t.Context(), "k", muxcore.GetOptions{}); muxcore.CodeOf(err) != muxcore.CodeBackendTimeout {
			t.Errorf("Get = %v, want a timeout", err)
		}
		if took := time.Since(begin); took != 10*time.Second {
			t.Errorf("took %v, want the timeout of eu", took)
		}
	})
}

// A stall in mid-body is for the nested mux to get over, however the body is read.
func TestABodyOfANestedMuxSurvivesAStall(t *testing.T) {
	for how, readAll := range map[string]func(io.Reader) (string, error){
		"by Read": func(r io.Reader) (string, error) { b, err := io.ReadAll(struct{ io.Reader }{r}); return string(b), err },
		"by WriteTo": func(r io.Reader) (string, error) {
			var b strings.Builder
			_, err := io.Copy(&b, r)
			return b.String(), err
		},
	} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				body := long(100_000)
				backends, hooks := copies(t, 2, body, muxcore.PutOptions{ETag: `"one"`})
				hooks[0].wrap = func(ctx context.Context, rc io.ReadCloser) io.ReadCloser { return &staller{rc, 50_000, ctx.Done()} }
				m := region(t, muxcore.Settings{}, backends...)
				obj, err := m.Get(t.Context(), "k", muxcore.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				defer obj.Body.Close()
				if got, err := readAll(obj.Body); err != nil || got != body {
					t.Errorf("read %d bytes, %v", len(got), err)
				}
				if s := m.Stats().Backends[0]; s.Status != muxcore.StatusUp || s.Mux.TotalResumes != 1 {
					t.Errorf("stats = %+v, want eu up and one resume inside", s)
				}
			})
		})
	}
}

// "Not everybody could be asked" is a nested mux's honest answer, not its failure: it stays up, and the next is asked.
func TestAnOpenAnswerOfANestedMuxIsNotItsFailure(t *testing.T) {
	for name, inner := range map[string]muxcore.Settings{"mirror": {Mode: muxcore.Mirror}, "on_miss next": {OnMissNext: true}} {
		t.Run(name, func(t *testing.T) {
			backends, hooks := crowd(t, 1, 1)
			hooks[1].set(fails)
			m := region(t, inner, backends...)
			for range 2 {
				_, err := m.Get(t.Context(), "missing", muxcore.GetOptions{})
				if e, ok := errors.AsType[*muxcore.Error](err); !ok || e.Code != muxcore.CodeAllBackendsDown || !e.Unsure {
					t.Errorf("Get of what one does not have and one cannot say = %#v, want an open answer", err)
				}
			}
			wantBody(t, m, "k", "body", "eu.b0")
			if s := m.Stats().Backends[0]; s.Status != muxcore.StatusUp {
				t.Errorf("eu is %s: %s", s.Status, s.Reason)
			}
			hooks[0].set(fails)
			if _, err := m.Get(t.Context(), "k", muxcore.GetOptions{}); err == nil {
				t.Fatal("Get succeeds with all failing")
			}
			if s := m.Stats().Backends[0]; s.Status != muxcore.StatusDown {
				t.Errorf("eu with all of it down is %s", s.Status)
			}
		})
	}
}

// What a nested mux can do follows its backends, also two levels up.
func TestAbilitiesFollowTheBackendsInside(t *testing.T) {
	inner := newMux(t, muxcore.Settings{}, muxcore.Backend{Name: "ro", Store: memory(t), ReadOnly: true})
	m := newMux(t, muxcore.Settings{}, muxcore.Backend{Name: "world", Store: region(t, muxcore.Settings{}, muxcore.Backend{Name: "de", Store: inner})})
	write := func() error {
		_, err := m.Put(t.Context(), "x", strings.NewReader("x"), 1, muxcore.PutOptions{})
		return err
	}
	if err := write(); !errors.Is(err, muxcore.ErrReadOnly) || m.Capabilities().Write {
		t.Errorf("Put with nothing writable = %v, want read-only", err)
	}
	if err := m.Add("world.eu.de", muxcore.Backend{Name: "rw", Store: memory(t)}); err != nil {
		t.Fatal(err)
	}
	if err := write(); err != nil || !m.Capabilities().Write {
		t.Errorf("Put = %v although world.eu.de.rw is writable now", err)
	}
	if err := m.Remove("world.eu.de.rw"); err != nil {
		t.Fatal(err)
	}
	if err := write(); !errors.Is(err, muxcore.ErrReadOnly) {
		t.Errorf("Put = %v although nothing is writable any more", err)
	}
}

// What was missed inside is told outside, by dotted names, of every kind of write.
func TestMissesInsideAreToldOutside(t *testing.T) {
	for name, write := range map[string]func(m *muxcore.Mux) (muxcore.Via, []string, error){
		"Put": func(m *muxcore.Mux) (muxcore.Via, []string, error) {
			r, err := m.Put(t.Context(), "new", strings.NewReader("x"), 1, muxcore.PutOptions{})
			return r.Via, r.Missed, err
		},
		"Delete": func(m *muxcore.Mux) (muxcore.Via, []string, error) {
			r, err := m.Delete(t.Context(), "k", muxcore.DeleteOptions{})
			return r.Via, r.Missed, err
		},
		"conditional Delete": func(m *muxcore.Mux) (muxcore.Via, []string, error) {
			r, err := m.Delete(t.Context(), "k", muxcore.DeleteOptions{Conditions: muxcore.Conditions{IfMatch: `"one"`}})
			return r.Via, r.Missed, err
		},
	} {
		for _, outer := range []muxcore.Mode{muxcore.Failover, muxcore.Mirror, muxcore.Shield} {
			backends, hooks := crowd(t, 1, 1)
			hooks[1].set(fails)
			inner := newMux(t, muxcore.Settings{Mode: muxcore.Mirror}, backends...)
			m := newMux(t, muxcore.Settings{Mode: outer}, muxcore.Backend{Name: "eu", Store: inner})
			via, missed, err := write(m)
			if err != nil || fmt.Sprint(missed) != "[eu.b1]" || via.Backend != "eu.b0" {
				t.Errorf("%s in %s: via %+v, missed by %v, %v; want eu.b0 and [eu.b1]", name, outer, via, missed, err)
			}
		}
	}
}

// A mux inside itself would wait for itself.
func TestAMuxCannotHoldItself(t *testing.T) {
	inner := newMux(t, muxcore.Settings{}, muxcore.Backend{Name: "leaf", Store: memory(t)})
	outer := newMux(t, muxcore.Settings{}, muxcore.Backend{Name: "i", Store: inner})
	for name, add := range map[string]func() error{
		"to itself":             func() error { return inner.Add("", muxcore.Backend{Name: "self", Store: inner}) },
		"its ancestor":          func() error { return outer.Add("i", muxcore.Backend{Name: "up", Store: outer}) },
		"its ancestor, by hand": func() error { return inner.Add("", muxcore.Backend{Name: "up", Store: outer}) },
	} {
		if err := add(); muxcore.CodeOf(err) != muxcore.CodeRecursionDepthExceeded {
			t.Errorf("Add %s = %v, want it refused", name, err)
		}
	}
	put(t, outer, "k", "still well")
}

// A nested mux is well as long as it could ask somebody.
func TestANestedMuxIsProbed(t *testing.T) {
	backends, hooks := crowd(t, 1, 1)
	m := newMux(t, muxcore.Settings{Cooldown: time.Hour, MaxCooldown: time.Hour}, backends...)
	if err := muxcore.Probe(t.Context(), m, ""); err != nil {
		t.Errorf("Probe = %v", err)
	}
	for _, h := range hooks {
		h.set(fails)
	}
	_, _ = m.Stat(t.Context(), "k", muxcore.Conditions{})
	if err := muxcore.Probe(t.Context(), m, ""); muxcore.CodeOf(err) != muxcore.CodeAllBackendsDown {
		t.Errorf("Probe with all down = %v", err)
	}
}

// A body that broke inside and could not go on, since nobody inside has the same object, took the whole region out of
// service, although another backend in it was well.
func TestABrokenBodyInsideLeavesTheRegionUp(t *testing.T) {
	backends, hooks := copies(t, 2, long(100_000), muxcore.PutOptions{ETag: `"one"`})
	if _, err := hooks[1].Store.Put(t.Context(), "k", strings.NewReader("other"), 5, muxcore.PutOptions{ETag: `"two"`}); err != nil {
		t.Fatal(err)
	}
	hooks[0].wrap = cutAt(50_000, errBroken)
	m := region(t, muxcore.Settings{}, backends...)
	if _, _, err := read(t.Context(), m, "k", muxcore.GetOptions{}); err == nil {
		t.Fatal("the body ended well")
	}
	wantBody(t, m, "k", "other", "eu.b1")
	if s := m.Stats().Backends[0]; s.Status != muxcore.StatusUp {
		t.Errorf("eu is %s", s.Status)
	}
	hooks[1].set(fails)
	if _, err := m.Stat(t.Context(), "k", muxcore.Conditions{}); muxcore.CodeOf(err) != muxcore.CodeAllBackendsDown {
		t.Errorf("Stat = %v, want all down", err)
	}
}

// The trial from above came while the backend inside was left alone yet, found nobody, and counted as one more that had failed: of three
// levels, one that was back after three seconds was asked after fifteen.
func TestANestedMuxIsTriedWhenItsBackendIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backends, hooks := copies(t, 1, "body", muxcore.PutOptions{})
		cooled := func(shortened float64) muxcore.Settings {
			return muxcore.Settings{Float64: func() float64 { return shortened }}
		}
		inner := newMux(t, cooled(0), backends...)
		middle := newMux(t, cooled(1), muxcore.Backend{Name: "inner", Store: inner})
		m := newMux(t, cooled(1), muxcore.Backend{Name: "middle", Store: middle})
		begin := time.Now()
		hooks[0].set(func(context.Context, muxcore.Op) error {
			if time.Since(begin) < 3500*time.Millisecond {
				return errBroken
			}
			return nil
		})
		for {
			if got, _, err := read(t.Context(), m, "k", muxcore.GetOptions{}); err == nil && got == "body" {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		if took := time.Since(begin); took < 7*time.Second || took > 7100*time.Millisecond {
			t.Errorf("back after %v, want the 7s after which the backend has its third trial", took)
		}
	})
}
