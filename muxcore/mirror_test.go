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

// slow delays calls, as long as their context lasts.
func slow(d time.Duration) func(context.Context, muxcore.Op) error {
	return func(ctx context.Context, _ muxcore.Op) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return &muxcore.Error{Code: muxcore.CodeUnavailable, Err: ctx.Err()}
		}
	}
}

// The fastest answers, the others are cancelled, and that is nobody's fault.
func TestMirrorReadsRace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backends, hooks := crowd(t, 1, 1, 1)
		m := newMux(t, muxcore.Settings{Mode: muxcore.Mirror}, backends...)
		hooks[0].set(slow(time.Minute))
		hooks[1].set(slow(time.Second))
		hooks[2].set(fails)
		begin := time.Now()
		wantBody(t, m, "k", "body", "b1")
		if took := time.Since(begin); took != time.Second {
			t.Errorf("took %v, want the time of the fastest that is well", took)
		}
		time.Sleep(muxcore.RaceGrace)
		synctest.Wait()
		for i, want := range []muxcore.Status{muxcore.StatusUp, muxcore.StatusUp, muxcore.StatusDown} {
			if s := m.Stats().Backends[i]; s.Status != want || s.InFlightCount != 0 {
				t.Errorf("backend %d after the race: %+v", i, s)
			}
		}
	})
}

// Whoever is beaten has a moment to answer, so that its connection is not lost, even when the caller has gone with the answer of another;
// a caller that goes without one takes all with it.
func TestThoseThatAreBeatenHaveAMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backends, hooks := crowd(t, 1, 1, 1)
		m := newMux(t, muxcore.Settings{Mode: muxcore.Mirror}, backends...)
		begin := time.Now()
		var calledOff time.Duration
		hooks[0].set(slow(time.Millisecond))
		hooks[1].set(slow(muxcore.RaceGrace))
		hooks[2].set(func(ctx context.Context, op muxcore.Op) error {
			err := slow(time.Minute)(ctx, op)
			calledOff = time.Since(begin)
			return err
		})
		ctx, cancel := context.WithCancel(t.Context())
		if got, _, err := read(ctx, m, "k", muxcore.GetOptions{}); got != "body" || err != nil {
			t.Fatalf("read %q, %v", got, err)
		}
		cancel()
		time.Sleep(time.Second)
		if hits := m.Stats().Backends[1].Hits; hits != 1 || calledOff != time.Millisecond+muxcore.RaceGrace {
			t.Errorf("%d answers of one that was about to answer; one that was not was called off after %v", hits, calledOff)
		}

		begin = time.Now()
		ctx, cancel = context.WithCancel(t.Context())
		hooks[0].set(slow(time.Minute))
		hooks[1].set(slow(time.Minute))
		time.AfterFunc(time.Second, cancel)
		if _, err := m.Get(ctx, "k", muxcore.GetOptions{}); muxcore.CodeOf(err) != muxcore.CodeBackendAborted {
			t.Errorf("Get of a caller that has gone = %v", err)
		}
		synctest.Wait()
		if calledOff != time.Second {
			t.Errorf("called off after %v, want as soon as the caller had gone", calledOff)
		}
		for _, b := range m.Stats().Backends {
			if b.InFlightCount != 0 || b.Status != muxcore.StatusUp {
				t.Errorf("%s: %s with %d still in flight", b.Name, b.Status, b.InFlightCount)
			}
		}
	})
}

// The winner's body goes on when the losers are cancelled, and is continued like any other.
func TestMirrorWinnerBodyLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body := long(200_000)
		backends, hooks := copies(t, 3, body, muxcore.PutOptions{ETag: `"one"`})
		m := newMux(t, muxcore.Settings{Mode: muxcore.Mirror}, backends...)
		hooks[1].set(slow(time.Second))
		hooks[2].set(slow(time.Second))
		hooks[0].wrap = cutAt(100_000, errBroken)
		if got, _, err := read(t.Context(), m, "k", muxcore.GetOptions{}); err != nil || got != body {
			t.Errorf("read %d bytes, %v", len(got), err)
		}
		time.Sleep(muxcore.RaceGrace)
		synctest.Wait()
		for _, b := range m.Stats().Backends {
			if b.InFlightCount != 0 {
				t.Errorf("%s: %d still in flight", b.Name, b.InFlightCount)
			}
		}
	})
}

func TestMirrorMissIsFinalOnlyWhenAllSaySo(t *testing.T) {
	a, b := hook(memory(t), nil), hook(memory(t), nil)
	put(t, b.Store, "only-b", "from b")
	m := newMux(t, muxcore.Settings{Mode: muxcore.Mirror, Cooldown: 1, MaxCooldown: 1}, muxcore.Backend{Name: "a", Store: a}, muxcore.Backend{Name: "b", Store: b})
	wantBody(t, m, "only-b", "from b", "b")
	if _, err := m.Get(t.Context(), "none", muxcore.GetOptions{}); !errors.Is(err, muxcore.ErrKeyNotFound) {
		t.Errorf("Get = %v, want not found", err)
	}
	b.set(fails)
	if _, err := m.Get(t.Context(), "none", muxcore.GetOptions{}); muxcore.CodeOf(err) != muxcore.CodeAllBackendsDown {
		t.Errorf("Get with one that could not be asked = %v, want all down", err)
	}
}

// One body, streamed to all at the same time: sizes around the spool and the chunks, known and unknown lengths.
func TestFanOutGivesEveryoneTheSameBytes(t *testing.T) {
	for _, mode := range []muxcore.Mode{muxcore.Mirror, muxcore.Shield} {
		for _, size := range []int{0, 1, 64<<10 - 1, 64 << 10, 64<<10 + 1, 128 << 10, 400 << 10, 400<<10 + 17} {
			for _, declared := range []int64{int64(size), -1} {
				backends, hooks := crowd(t, 1, 0, 1)
				m := newMux(t, muxcore.Settings{Mode: mode}, backends...)
				body := long(size)
				r, err := m.Put(t.Context(), "new", io.LimitReader(strings.NewReader(body), int64(size)), declared, muxcore.PutOptions{})
				if err != nil || len(r.Missed) != 0 || r.Existed {
					t.Fatalf("%s of %d bytes, declared %d: %+v, %v", mode, size, declared, r, err)
				}
				for i := range hooks {
					got, obj, err := read(t.Context(), hooks[i].Store, "new", muxcore.GetOptions{})
					if err != nil || got != body || obj.ETag != r.ETag || !obj.ModTime.Equal(r.ModTime) {
						t.Errorf("%s of %d bytes: backend %d holds %d bytes, %+v, %v; want those of %+v", mode, size, i, len(got), obj, err, r.Info)
					}
				}
			}
		}
	}
}

func TestWriteQuorum(t *testing.T) {
	for _, row := range []struct {
		quorum muxcore.Quorum
		broken int
		want   muxcore.Code
	}{
		{1, 2, ""},
		{1, 3, muxcore.CodeAllBackendsDown},
		{2, 1, ""},
		{2, 2, muxcore.CodeWriteFanoutPartial},
		{muxcore.QuorumMajority, 1, ""},
		{muxcore.QuorumMajority, 2, muxcore.CodeWriteFanoutPartial},
		{muxcore.QuorumAll, 0, ""},
		{muxcore.QuorumAll, 1, muxcore.CodeWriteFanoutPartial},
	} {
		t.Run(fmt.Sprint(row.quorum, " with ", row.broken, " broken"), func(t *testing.T) {
			var partials []muxcore.Event
			backends, hooks := crowd(t, 1, 1, 1)
			m := newMux(t, muxcore.Settings{Mode: muxcore.Mirror, WriteQuorum: row.quorum, Observe: func(e muxcore.Event) {
				if e.Kind == muxcore.EventFanoutPartial {
					partials = append(partials, e)
				}
			}}, backends...)
			for i := range row.broken {
				hooks[i].set(fails)
			}
			r, err := m.Put(t.Context(), "new", strings.NewReader("x"), 1, muxcore.PutOptions{})
			if muxcore.CodeOf(err) != row.want {
				t.Fatalf("Put = %v, want %q", err, row.want)
			}
			if err == nil && len(r.Missed) != row.broken {
				t.Errorf("missed by %v, want %d", r.Missed, row.broken)
			}
			if told := len(partials) == 1; told != (row.broken > 0 && row.broken < 3) {
				t.Errorf("%d partial events", len(partials))
			} else if told && (len(partials[0].Failed) != row.broken || len(partials[0].Causes) != row.broken) {
				t.Errorf("event = %+v", partials[0])
			}
		})
	}
}

func TestPartialWritesCanFail(t *testing.T) {
	for _, mode := range []muxcore.Mode{muxcore.Mirror, muxcore.Shield} {
		backends, hooks := crowd(t, 1, 1)
		hooks[1].set(fails)
		m := newMux(t, muxcore.Settings{Mode: mode, FailPartialWrites: true}, backends...)
		if _, err := m.Put(t.Context(), "new", strings.NewReader("x"), 1, muxcore.PutOptions{}); muxcore.CodeOf(err) != muxcore.CodeWriteFanoutPartial {
			t.Errorf("%s: Put = %v, want partial", mode, err)
		}
	}
}

// A backend that hangs in mid-body holds up the others no longer than its own timeout.
func TestAHungBackendIsCutLooseFromAFanOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backends, hooks := crowd(t, 1, 1, 1)
		backends[1].Store = stuckPut{hooks[1]}
		m := newMux(t, muxcore.Settings{Mode: muxcore.Mirror, Timeout: time.Second}, backends...)
		begin := time.Now()
		body := long(1 << 20)
		r, err := m.Put(t.Context(), "new", strings.NewReader(body), int64(len(body)), muxcore.PutOptions{})
		if err != nil || fmt.Sprint(r.Missed) != "[b1]" {
			t.Fatalf("Put = %v, %v", r.Missed, err)
		}
		if took := time.Since(begin); took != time.Second {
			t.Errorf("took %v, want the timeout of the one that hangs", took)
		}
		for _, i := range []int{0, 2} {
			if got, _, err := read(t.Context(), hooks[i].Store, "new", muxcore.GetOptions{}); err != nil || got != body {
				t.Errorf("backend %d holds %d bytes, %v", i, len(got), err)
			}
		}
	})
}

// stuckPut takes a part of the body and then hangs until its context ends.
type stuckPut struct{ *hooked }

func (s stuckPut) Put(ctx context.Context, _ string, body io.Reader, _ int64, _ muxcore.PutOptions) (muxcore.PutResult, error) {
	_, _ = io.CopyN(io.Discard, body, 1000)
	<-ctx.Done()
	return muxcore.PutResult{}, &muxcore.Error{Code: muxcore.CodeUnavailable, Err: context.Cause(ctx)}
}

// A body that is not what was declared changes nothing anywhere, and is nobody's fault but the uploader's.
func TestAWrongBodyChangesNothingAnywhere(t *testing.T) {
	wrong := muxcore.Digests{SHA256: make([]byte, 32)}
	for _, mode := range muxcore.Modes() {
		for _, size := range []int{10, 300_000} {
			for name, put := range map[string]func(s muxcore.Store) error{
				"short": func(s muxcore.Store) error {
					_, err := s.Put(t.Context(), "new", strings.NewReader(long(size)), int64(size)+1, muxcore.PutOptions{})
					return err
				},
				"long": func(s muxcore.Store) error {
					_, err := s.Put(t.Context(), "new", strings.NewReader(long(size)), int64(size)-1, muxcore.PutOptions{})
					return err
				},
				"wrong digest": func(s muxcore.Store) error {
					_, err := s.Put(t.Context(), "new", strings.NewReader(long(size)), int64(size), muxcore.PutOptions{Digests: wrong})
					return err
				},
				"wrong digest, unknown length": func(s muxcore.Store) error {
					_, err := s.Put(t.Context(), "new", strings.NewReader(long(size)), -1, muxcore.PutOptions{Digests: wrong})
					return err
				},
			} {
				backends, hooks := crowd(t, 1, 1)
				m := newMux(t, muxcore.Settings{Mode: mode}, backends...)
				if err := put(m); !errors.Is(err, muxcore.ErrBodyMismatch) {
					t.Errorf("%s, %s body of %d: Put = %v, want a mismatch", mode, name, size, err)
				}
				for i := range hooks {
					if _, err := hooks[i].Store.Stat(t.Context(), "new", muxcore.Conditions{}); !errors.Is(err, muxcore.ErrKeyNotFound) {
						t.Errorf("%s, %s body of %d: backend %d has it", mode, name, size, i)
					}
					if s := m.Stats().Backends[i]; s.WritesDown || s.Errors != 0 {
						t.Errorf("%s, %s body of %d: counts against backend %d", mode, name, size, i)
					}
				}
			}
		}
	}
}

// If-None-Match: * on a mux admits exactly one of many writers, in every mode.
func TestOneOfManyWritersCreates(t *testing.T) {
	for _, mode := range muxcore.Modes() {
		backends, hooks := crowd(t, 1, 1, 1)
		m := newMux(t, muxcore.Settings{Mode: mode}, backends...)
		results := make(chan error, 24)
		for i := range 24 {
			go func() {
				_, err := m.Put(t.Context(), "new", strings.NewReader(fmt.Sprint(i)), -1, muxcore.PutOptions{Conditions: muxcore.Conditions{IfNoneMatch: "*"}})
				results <- err
			}()
		}
		created := 0
		for range 24 {
			if err := <-results; err == nil {
				created++
			} else if !errors.Is(err, muxcore.ErrPreconditionFailed) {
				t.Errorf("%s: Put = %v", mode, err)
			}
		}
		if created != 1 {
			t.Errorf("%s: %d writers created the object, want 1", mode, created)
		}
		if mode == muxcore.Mirror || mode == muxcore.Shield {
			first, _, _ := read(t.Context(), hooks[0].Store, "new", muxcore.GetOptions{})
			for i := range hooks {
				if got, _, err := read(t.Context(), hooks[i].Store, "new", muxcore.GetOptions{}); got != first || err != nil {
					t.Errorf("%s: backend %d holds %q, %v; want %q", mode, i, got, err, first)
				}
			}
		}
	}
}

// A backend whose writes fail keeps serving reads.
func TestFailedWritesDoNotStopReads(t *testing.T) {
	backends, hooks := crowd(t, 1, 1)
	m := newMux(t, muxcore.Settings{}, backends...)
	hooks[0].set(func(_ context.Context, op muxcore.Op) error {
		if op.Writes() {
			return errUnavailable
		}
		return nil
	})
	r, err := m.Put(t.Context(), "new", strings.NewReader("x"), 1, muxcore.PutOptions{})
	if err != nil || r.Via.Backend != "b1" || fmt.Sprint(r.Missed) != "[b0]" {
		t.Fatalf("Put = %+v, %v, want it on b1, missed by b0", r, err)
	}
	wantBody(t, m, "k", "body", "b0")
	if s := m.Stats().Backends[0]; s.Status != muxcore.StatusUp || !s.WritesDown {
		t.Errorf("stats = %+v, want it up for reads only", s)
	}
}

func TestDeleteGoesEverywhere(t *testing.T) {
	for _, mode := range muxcore.Modes() {
		backends, hooks := crowd(t, 1, 1, 1)
		m := newMux(t, muxcore.Settings{Mode: mode}, backends...)
		if r, err := m.Delete(t.Context(), "k", muxcore.DeleteOptions{}); err != nil || len(r.Missed) != 0 {
			t.Errorf("%s: Delete = %+v, %v", mode, r, err)
		}
		if _, err := m.Delete(t.Context(), "k", muxcore.DeleteOptions{}); !errors.Is(err, muxcore.ErrKeyNotFound) {
			t.Errorf("%s: second Delete = %v, want not found", mode, err)
		}
		hooks[1].set(fails)
		if r, err := m.Delete(t.Context(), "k", muxcore.DeleteOptions{}); err != nil || fmt.Sprint(r.Missed) != "[b1]" {
			t.Errorf("%s: Delete with one that could not be asked = %+v, %v", mode, r, err)
		}
		hooks[0].set(fails)
		hooks[2].set(fails)
		if _, err := m.Delete(t.Context(), "k", muxcore.DeleteOptions{}); muxcore.CodeOf(err) != muxcore.CodeAllBackendsDown {
			t.Errorf("%s: Delete with none = %v, want all down", mode, err)
		}
	}
}

func TestReadOnlyBackendsAreNotWritten(t *testing.T) {
	for _, mode := range muxcore.Modes() {
		backends, hooks := crowd(t, 1, 1)
		backends[1].ReadOnly = true
		m := newMux(t, muxcore.Settings{Mode: mode}, backends...)
		put(t, m, "new", "x")
		if _, err := hooks[1].Store.Stat(t.Context(), "new", muxcore.Conditions{}); err == nil {
			t.Errorf("%s: the read-only backend was written", mode)
		}
		backends[0].ReadOnly = true
		m2 := newMux(t, muxcore.Settings{Mode: mode}, backends...)
		if _, err := m2.Put(t.Context(), "new", strings.NewReader("x"), 1, muxcore.PutOptions{}); !errors.Is(err, muxcore.ErrReadOnly) {
			t.Errorf("%s: Put with none writable = %v, want read-only", mode, err)
		}
		if _, err := m2.Delete(t.Context(), "k", muxcore.DeleteOptions{}); !errors.Is(err, muxcore.ErrReadOnly) {
			t.Errorf("%s: Delete with none writable = %v, want read-only", mode, err)
		}
	}
}
