package storetest

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

func newFaulty(t *testing.T) *Faulty {
	t.Helper()
	f := NewFaulty(newMem(t))
	for key, body := range map[string]string{"a": "0123456789", "b/1": "one", "b/2": "two"} {
		if _, err := f.inner.Put(t.Context(), key, strings.NewReader(body), int64(len(body)), muxcore.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

func read(ctx context.Context, s muxcore.Store, key string, opts muxcore.GetOptions) (string, error) {
	o, err := s.Get(ctx, key, opts)
	if err != nil {
		return "", err
	}
	defer o.Body.Close()
	data, err := io.ReadAll(o.Body)
	return string(data), err
}

func TestFaultyWithoutAScriptPassesTheSuite(t *testing.T) {
	Run(t, Harness{New: func(tb testing.TB) muxcore.Store {
		f := NewFaulty(newMem(tb))
		tb.Cleanup(func() { f.CheckLeaks(tb) })
		return f
	}})
}

func TestFaultyFollowsItsScriptByCall(t *testing.T) {
	f := newFaulty(t)
	f.On(muxcore.OpGet, 2, Fail(errBroken))
	f.From(muxcore.OpGet, 4, FailCode(muxcore.CodeDenied))
	var got []string
	for range 5 {
		_, err := read(t.Context(), f, "a", muxcore.GetOptions{})
		switch {
		case errors.Is(err, errBroken):
			got = append(got, "broken")
		case err != nil:
			got = append(got, string(muxcore.CodeOf(err)))
		default:
			got = append(got, "ok")
		}
	}
	if want := "ok broken ok STORAGE.DENIED STORAGE.DENIED"; strings.Join(got, " ") != want {
		t.Errorf("five reads give %q, want %q", got, want)
	}
	if _, err := f.Stat(t.Context(), "a", muxcore.Conditions{}); err != nil {
		t.Errorf("Stat, of which the script says nothing, = %v", err)
	}
	f.Mend()
	f.OnKey(muxcore.OpGet, "b/1", Fail(errBroken))
	if _, err := read(t.Context(), f, "b/1", muxcore.GetOptions{}); !errors.Is(err, errBroken) {
		t.Errorf("Get(b/1) = %v, want %v", err, errBroken)
	}
	if got, err := read(t.Context(), f, "b/2", muxcore.GetOptions{}); got != "two" || err != nil {
		t.Errorf("Get(b/2) = %q, %v", got, err)
	}
	if f.Calls(muxcore.OpGet) != 7 || f.Calls(muxcore.OpStat) != 1 || f.AllCalls() != 8 || f.Keys(muxcore.OpGet)[6] != "b/2" {
		t.Errorf("counts: %d gets, %d stats, %d in all, keys %q", f.Calls(muxcore.OpGet), f.Calls(muxcore.OpStat), f.AllCalls(), f.Keys(muxcore.OpGet))
	}
}

func TestFaultyBreaksWholly(t *testing.T) {
	f := newFaulty(t)
	f.Break(errBroken)
	_, _, errs := callAll(t.Context(), f)
	errs = append(errs, f.Probe(t.Context()))
	for i, err := range errs {
		if !errors.Is(err, errBroken) {
			t.Errorf("call %d of a broken store = %v", i, err)
		}
	}
	f.Mend()
	if _, _, errs := callAll(t.Context(), f); errors.Join(errs...) != nil {
		t.Errorf("calls of a mended store = %v", errs)
	}
}

// callAll makes one call of each kind.
func callAll(ctx context.Context, f *Faulty) (body string, keys []string, errs []error) {
	body, err := read(ctx, f, "a", muxcore.GetOptions{})
	errs = append(errs, err)
	_, err = f.Stat(ctx, "a", muxcore.Conditions{})
	errs = append(errs, err)
	_, err = f.Put(ctx, "new", strings.NewReader("x"), 1, muxcore.PutOptions{})
	errs = append(errs, err)
	_, err = f.Delete(ctx, "b/1", muxcore.DeleteOptions{})
	errs = append(errs, err)
	err = nil
	for e, lerr := range f.List(ctx, muxcore.ListOptions{}) {
		keys, err = append(keys, e.Key), lerr
	}
	return body, keys, append(errs, err)
}

func TestFaultyBodiesGoWrongAtAByte(t *testing.T) {
	for _, row := range []struct {
		name  string
		fault Fault
		want  string
		err   error
	}{
		{"cut with an error", Cut(4, errBroken), "0123", errBroken},
		{"cut without one", Cut(4, nil), "0123", io.ErrUnexpectedEOF},
		{"cut at once", Cut(0, errBroken), "", errBroken},
		{"cut cleanly", CutClean(4), "0123", nil},
		{"too long", Extra("extra"), "0123456789extra", nil},
		{"one byte flipped", Flip(3), "012\xcc456789", nil},
		{"in drops", Drip(3, 0), "0123456789", nil},
		{"cut past the end", Cut(100, errBroken), "0123456789", nil},
	} {
		f := newFaulty(t)
		f.On(muxcore.OpGet, Every, row.fault)
		got, err := read(t.Context(), f, "a", muxcore.GetOptions{})
		if got != row.want || !errors.Is(err, row.err) {
			t.Errorf("%s: Get = %q, %v, want %q, %v", row.name, got, err, row.want, row.err)
		}
		f.CheckLeaks(t)
	}
}

func TestFaultyLiesAboutObjects(t *testing.T) {
	f := newFaulty(t)
	f.On(muxcore.OpGet, 1, ETag(`"lie"`), WrongSize(99))
	f.On(muxcore.OpGet, 2, WrongOffset(2))
	f.On(muxcore.OpGet, 3, IgnoreRange())
	part := muxcore.GetOptions{Range: muxcore.Range{Offset: 5}}
	o, err := f.Get(t.Context(), "a", part)
	if err != nil || o.ETag != `"lie"` || o.Size != 99 || o.Length != 94 {
		t.Errorf("first Get = %+v, %v", o, err)
	}
	o.Body.Close()
	if o, err = f.Get(t.Context(), "a", part); err != nil || o.Offset != 7 {
		t.Errorf("second Get = %+v, %v", o, err)
	}
	o.Body.Close()
	if got, err := read(t.Context(), f, "a", part); got != "0123456789" || err != nil {
		t.Errorf("third Get = %q, %v", got, err)
	}
}

func TestFaultyPutsFailInTheBody(t *testing.T) {
	f := newFaulty(t)
	f.On(muxcore.OpPut, 1, Cut(3, errBroken))
	f.On(muxcore.OpPut, 2, FailLate(errBroken))
	body := strings.NewReader("0123456789")
	if _, err := f.Put(t.Context(), "new", body, 10, muxcore.PutOptions{}); !errors.Is(err, errBroken) || body.Len() != 7 {
		t.Errorf("Put = %v, %d bytes are left unread, want %v and 7", err, body.Len(), errBroken)
	}
	if _, err := f.inner.Stat(t.Context(), "new", muxcore.Conditions{}); !errors.Is(err, muxcore.ErrKeyNotFound) {
		t.Errorf("Stat after a Put that was cut = %v", err)
	}
	if _, err := f.Put(t.Context(), "late", strings.NewReader("x"), 1, muxcore.PutOptions{}); !errors.Is(err, errBroken) {
		t.Errorf("Put with a lost answer = %v", err)
	}
	if _, err := f.inner.Stat(t.Context(), "late", muxcore.Conditions{}); err != nil {
		t.Errorf("Stat after a Put with a lost answer = %v, want the object", err)
	}
}

func TestFaultyListsFailAtAnEntry(t *testing.T) {
	f := newFaulty(t)
	f.On(muxcore.OpList, 1, Cut(2, errBroken))
	f.On(muxcore.OpList, 2, CutClean(1))
	f.On(muxcore.OpList, 3, FailLate(errBroken))
	for i, want := range []string{"a b/1 ! ", "a ", "a b/1 b/2 ! ", "a b/1 b/2 "} {
		got := ""
		for e, err := range f.List(t.Context(), muxcore.ListOptions{}) {
			if err != nil {
				e.Key = "!"
			}
			got += e.Key + " "
		}
		if got != want {
			t.Errorf("list %d = %q, want %q", i+1, got, want)
		}
	}
}

func TestFaultyStallsUntilReleasedOrTheContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFaulty(t)
		f.On(muxcore.OpGet, 1, Stall())
		f.On(muxcore.OpGet, 2, Stall())
		f.On(muxcore.OpGet, 3, Hang())
		f.On(muxcore.OpGet, 4, HangBody(4))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := read(ctx, f, "a", muxcore.GetOptions{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a stalled Get = %v, want the end of its context", err)
		}
		var wg sync.WaitGroup
		for range 3 { // a stall, a hang, and a body that hangs; none notices a context that has ended
			wg.Go(func() {
				if got, err := read(context.WithoutCancel(ctx), f, "a", muxcore.GetOptions{}); got != "0123456789" || err != nil {
					t.Errorf("a released Get = %q, %v", got, err)
				}
			})
		}
		if err := f.AwaitStalled(t.Context(), 3); err != nil {
			t.Fatal(err)
		}
		if f.Stalled() != 3 || f.OpenBodies() != 1 || f.MostInFlight() < 2 || len(f.Leaks()) != 2 {
			t.Errorf("stalled %d, open %d, most %d, leaks %q", f.Stalled(), f.OpenBodies(), f.MostInFlight(), f.Leaks())
		}
		f.Release()
		wg.Wait()
		if err := f.AwaitIdle(t.Context()); err != nil || f.InFlight() != 0 {
			t.Errorf("AwaitIdle = %v with %d in flight", err, f.InFlight())
		}
		f.CheckLeaks(t)
	})
}

func TestFaultyHangIsDeafToItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFaulty(t)
		f.On(muxcore.OpStat, 1, Hang())
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := f.Stat(ctx, "a", muxcore.Conditions{})
			done <- err
		}()
		synctest.Wait()
		cancel()
		synctest.Wait()
		select {
		case err := <-done:
			t.Errorf("a hanging Stat returns %v at the end of its context", err)
		default:
		}
		f.Release()
		<-done
	})
}

func TestClosingABodyEndsItsStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFaulty(t)
		f.On(muxcore.OpGet, 1, HangBody(2))
		o, err := f.Get(t.Context(), "a", muxcore.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() {
			_, err := io.ReadAll(o.Body)
			done <- err
		}()
		synctest.Wait()
		o.Body.Close()
		if err := <-done; err == nil {
			t.Error("a body closed in its stall ends cleanly")
		}
		f.CheckLeaks(t)
	})
}

func TestFaultyTakesItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFaulty(t)
		f.On(muxcore.OpGet, 1, Delay(time.Minute), Drip(2, time.Second))
		start := time.Now()
		if got, err := read(t.Context(), f, "a", muxcore.GetOptions{}); got != "0123456789" || err != nil {
			t.Errorf("Get = %q, %v", got, err)
		}
		// Five drops, and one pause before the end is seen.
		if took := time.Since(start); took != time.Minute+6*time.Second {
			t.Errorf("a slow Get took %v", took)
		}
	})
}

func TestFaultyReportsALeak(t *testing.T) {
	f := newFaulty(t)
	o, err := f.Get(t.Context(), "a", muxcore.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := f.Leaks(); len(got) != 1 || !strings.Contains(got[0], `get "a"`) {
		t.Errorf("Leaks = %q with a body open", got)
	}
	o.Body.Close()
	f.CheckLeaks(t)
}

func TestFaultyRefusesWhatItSaysItCannotDo(t *testing.T) {
	f := newFaulty(t)
	f.SetCapabilities(muxcore.Capabilities{})
	f.SetWaits(muxcore.WaitsWithContext)
	_, err := f.Put(t.Context(), "x", strings.NewReader("x"), 1, muxcore.PutOptions{})
	if !errors.Is(err, muxcore.ErrUnsupported) || muxcore.CapabilitiesOf(f) != (muxcore.Capabilities{}) || muxcore.WaitsOf(f) != muxcore.WaitsWithContext {
		t.Errorf("Put = %v, capabilities %+v, waits %v", err, muxcore.CapabilitiesOf(f), muxcore.WaitsOf(f))
	}
}

func TestFaultyPanics(t *testing.T) {
	f := newFaulty(t)
	f.On(muxcore.OpDelete, 1, Panic("boom"))
	defer func() {
		if r := recover(); r != "boom" {
			t.Errorf("recovered %v, want boom", r)
		}
		f.CheckLeaks(t)
	}()
	_, _ = f.Delete(t.Context(), "a", muxcore.DeleteOptions{})
}
