package muxcore_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/storetest"
)

// pair is a mux of two memory stores, a and b, that fail on script.
func pair(tb testing.TB) (m *muxcore.Mux, a, b *storetest.Faulty) {
	tb.Helper()
	a, b = storetest.NewFaulty(memory(tb)), storetest.NewFaulty(memory(tb))
	m = newMux(tb, muxcore.Settings{Mode: muxcore.Mirror},
		muxcore.Backend{Name: "a", Store: a}, muxcore.Backend{Name: "b", Store: b})
	return m, a, b
}

// noLeaks fails the test if a store has a call or a body open.
func noLeaks(tb testing.TB, stores ...*storetest.Faulty) {
	tb.Helper()
	for _, s := range stores {
		s.CheckLeaks(tb)
	}
}

func TestCopyKeepsWhatAnObjectIs(t *testing.T) {
	for _, size := range []int{0, 1, 32 << 10, 300_000} {
		for _, waits := range []muxcore.Waits{muxcore.WaitsNever, muxcore.WaitsWithContext, muxcore.WaitsUnbounded} {
			t.Run(fmt.Sprintf("%d bytes, waits %d", size, waits), func(t *testing.T) {
				a, b := memory(t), memory(t)
				m := newMux(t, muxcore.Settings{Mode: muxcore.Mirror},
					muxcore.Backend{Name: "a", Store: waiting{a, waits}}, muxcore.Backend{Name: "b", Store: waiting{b, waits}})
				body := bytes.Repeat([]byte("x"), size)
				put := muxcore.PutOptions{ETag: `"id"`, ModTime: time.Unix(1_700_000_000, 0), Attributes: muxcore.Attributes{
					ContentType: "text/x-odd", CacheControl: "no-cache", Metadata: map[string]string{"colour": "red"},
				}}
				if _, err := a.Put(t.Context(), "k", bytes.NewReader(body), int64(size), put); err != nil {
					t.Fatal(err)
				}
				if _, err := m.Copy(t.Context(), "k", "a", "b", nil, muxcore.Conditions{}, nil); err != nil {
					t.Fatalf("copy = %v", err)
				}
				want, err := a.Stat(t.Context(), "k", muxcore.Conditions{})
				if err != nil {
					t.Fatal(err)
				}
				got, obj, err := read(t.Context(), b, "k", muxcore.GetOptions{})
				if err != nil || got != string(body) {
					t.Fatalf("the copy is %d bytes, %v, want the %d of the source", len(got), err, size)
				}
				if diff := cmp.Diff(want, obj.Info); diff != "" {
					t.Errorf("the copy is described otherwise than the source (-source +copy):\n%s", diff)
				}
			})
		}
	}
}

func TestCopyOfAForeignObjectGetsNoIdentityOfOurs(t *testing.T) {
	m, a, b := pair(t)
	put(t, a, "k", "body")
	r, err := m.Copy(t.Context(), "k", "a", "b", nil, muxcore.Conditions{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := b.Stat(t.Context(), "k", muxcore.Conditions{}); err != nil || info.ETagStored || r.ETagStored {
		t.Errorf("Stat = %+v, %v, want an ETag of the store's own", info, err)
	}
}

func TestCopyIsCommittedOnlyWhenItMayBe(t *testing.T) {
	errNo := errors.New("no longer")
	for _, body := range []string{"", "short", strings.Repeat("long", 100_000)} {
		t.Run(fmt.Sprintf("%d bytes", len(body)), func(t *testing.T) {
			m, a, b := pair(t)
			put(t, a, "k", body)
			put(t, b, "k", "old")
			still := func(_ context.Context, copied *muxcore.Info) error {
				if copied.Size != int64(len(body)) {
					t.Errorf("asked about %+v, want the source's object", copied)
				}
				wantBody(t, b, "k", "old", "")
				return errNo
			}
			if _, err := m.Copy(t.Context(), "k", "a", "b", nil, muxcore.Conditions{}, still); !errors.Is(err, errNo) {
				t.Errorf("copy = %v, want %v", err, errNo)
			}
			wantBody(t, b, "k", "old", "")
			noLeaks(t, a, b)
		})
	}
}

func TestCopyHoldsTheLockOfTheKeyWhileItCommits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, a, b := pair(t)
		put(t, a, "k", "from a")
		written := make(chan error, 1)
		still := func(ctx context.Context, _ *muxcore.Info) error {
			go func() {
				_, err := m.Put(ctx, "k", strings.NewReader("newer"), 5, muxcore.PutOptions{})
				written <- err
			}()
			synctest.Wait()
			select {
			case err := <-written:
				t.Errorf("a Put of the same key ended meanwhile: %v", err)
			default:
			}
			return nil
		}
		if _, err := m.Copy(t.Context(), "k", "a", "b", nil, muxcore.Conditions{}, still); err != nil {
			t.Fatal(err)
		}
		if err := <-written; err != nil {
			t.Fatal(err)
		}
		wantBody(t, a, "k", "newer", "")
		wantBody(t, b, "k", "newer", "")
	})
}

func TestCopySaysWhoseFaultItIs(t *testing.T) {
	wrong := sha256.Sum256([]byte("something else"))
	tests := []struct {
		name         string
		atA, atB     storetest.Fault
		op           muxcore.Op
		is           error
		downA, downB bool
	}{
		{name: "the source fails", atA: storetest.Fail(errBroken), op: muxcore.OpGet, is: errBroken, downA: true},
		{name: "the source panics", atA: storetest.Panic("oh"), op: muxcore.OpGet, downA: true},
		{name: "the source breaks off", atA: storetest.Cut(150_000, errBroken), op: muxcore.OpGet, is: errBroken, downA: true},
		{name: "the source ends early", atA: storetest.CutClean(150_000), op: muxcore.OpGet, downA: true},
		{name: "the source goes on and on", atA: storetest.Extra("more"), op: muxcore.OpGet, downA: true},
		{name: "the source gives a part", atA: storetest.WrongOffset(3), op: muxcore.OpGet},
		{name: "the source has rotted", atA: storetest.Flip(299_999), op: muxcore.OpGet, is: muxcore.ErrCorrupt},
		{name: "the source's record is of something else", atA: storetest.Describe(func(i *muxcore.Info) { i.Digests.SHA256 = wrong[:] }), op: muxcore.OpGet, is: muxcore.ErrCorrupt},
		{name: "the source stalls", atA: storetest.StallBody(150_000), op: muxcore.OpGet, downA: true},
		{name: "the source hangs", atA: storetest.Hang(), op: muxcore.OpGet, downA: true},
		{name: "the target fails", atB: storetest.Fail(errBroken), op: muxcore.OpPut, is: errBroken, downB: true},
		{name: "the target breaks off", atB: storetest.Cut(100_000, errBroken), op: muxcore.OpPut, is: errBroken, downB: true},
		{name: "the target hangs", atB: storetest.HangBody(100_000), op: muxcore.OpPut, downB: true},
		{name: "the target refuses", atB: storetest.FailCode(muxcore.CodeTooLarge), op: muxcore.OpPut},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, a, b := pair(t)
				put(t, a, "k", strings.Repeat("abc", 100_000))
				put(t, b, "k", "old")
				a.From(muxcore.OpGet, 1, test.atA)
				b.From(muxcore.OpPut, 1, test.atB)
				_, err := m.Copy(t.Context(), "k", "a", "b", nil, muxcore.Conditions{}, nil)
				e, ok := errors.AsType[*muxcore.Error](err)
				if !ok || e.Op != test.op || e.Key != "k" || test.is != nil && !errors.Is(err, test.is) {
					t.Errorf("copy = %v, want an error of %v", err, test.op)
				}
				if ok && e.Backend != map[muxcore.Op]string{muxcore.OpGet: "a", muxcore.OpPut: "b"}[test.op] {
					t.Errorf("copy blames %q", e.Backend)
				}
				a.Mend()
				b.Mend()
				a.Release()
				b.Release()
				synctest.Wait()
				stats := m.Stats().Backends
				if down := stats[0].Status == muxcore.StatusDown; down != test.downA {
					t.Errorf("a is %v, want down: %t", stats[0].Status, test.downA)
				}
				if down := stats[1].Reason != ""; down != test.downB {
					t.Errorf("b's reason is %q, want one: %t", stats[1].Reason, test.downB)
				}
				wantBody(t, b, "k", "old", "")
				noLeaks(t, a, b)
			})
		})
	}
}

func TestCopyEndsWithItsCallerAndBlamesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, a, b := pair(t)
		put(t, a, "k", strings.Repeat("abc", 100_000))
		put(t, b, "k", "old")
		a.On(muxcore.OpGet, 1, storetest.StallBody(150_000))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := m.Copy(ctx, "k", "a", "b", nil, muxcore.Conditions{}, nil)
			done <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("copy = %v, want it cancelled", err)
		}
		wantBody(t, b, "k", "old", "")
		for _, s := range m.Stats().Backends {
			if s.Status != muxcore.StatusUp || s.Reason != "" {
				t.Errorf("%s is %s for %q", s.Name, s.Status, s.Reason)
			}
		}
		synctest.Wait()
		noLeaks(t, a, b)
	})
}

func TestCopyRespectsWhatWasCompared(t *testing.T) {
	m, a, b := pair(t)
	old := put(t, a, "k", "old").Info
	put(t, a, "k", "newer")
	if _, err := m.Copy(t.Context(), "k", "a", "b", &old, muxcore.Conditions{}, nil); !errors.Is(err, muxcore.ErrChanged) {
		t.Errorf("copy of a version that is gone = %v, want %v", err, muxcore.ErrChanged)
	}
	put(t, b, "k", "b's own")
	if _, err := m.Copy(t.Context(), "k", "a", "b", nil, muxcore.Conditions{IfNoneMatch: "*"}, nil); !errors.Is(err, muxcore.ErrPreconditionFailed) {
		t.Errorf("copy over what must not be there = %v", err)
	}
	wantBody(t, b, "k", "b's own", "")
	noLeaks(t, a, b)
}
