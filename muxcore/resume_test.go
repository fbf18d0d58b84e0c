package muxcore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/storetest"
)

// cutAt ends a body after n bytes: in an error, or in an early end if err is nil.
func cutAt(n int64, err error) func(context.Context, io.ReadCloser) io.ReadCloser {
	return func(_ context.Context, body io.ReadCloser) io.ReadCloser {
		end := io.Reader(strings.NewReader(""))
		if err != nil {
			end = iotest.ErrReader(err)
		}
		return struct {
			io.Reader
			io.Closer
		}{io.MultiReader(io.LimitReader(body, n), end), body}
	}
}

// copies are n backends that hold body at "k" under one identity, each behind a hook.
func copies(tb testing.TB, n int, body string, opts muxcore.PutOptions) ([]muxcore.Backend, []*hooked) {
	tb.Helper()
	var backends []muxcore.Backend
	var hooks []*hooked
	for i := range n {
		s := memory(tb)
		if _, err := s.Put(tb.Context(), "k", strings.NewReader(body), int64(len(body)), opts); err != nil {
			tb.Fatal(err)
		}
		h := hook(s, nil)
		hooks = append(hooks, h)
		backends = append(backends, muxcore.Backend{Name: fmt.Sprint("b", i), Store: h})
	}
	return backends, hooks
}

// long is n bytes in which every place looks different.
func long(n int) string {
	b := make([]byte, 0, n+20)
	for i := int64(0); len(b) < n; i++ {
		b = append(strconv.AppendInt(b, i, 10), ',')
	}
	return string(b[:n])
}

// A body goes on from another backend at the exact byte, wherever the first breaks off and however it is read.
func TestABodySurvivesItsBackend(t *testing.T) {
	const size = 100_000
	body := long(size)
	stored := muxcore.PutOptions{ETag: `"one"`}
	readers := map[string]func(io.Reader) ([]byte, error){
		"by Read":    func(r io.Reader) ([]byte, error) { return io.ReadAll(struct{ io.Reader }{r}) },
		"by WriteTo": func(r io.Reader) ([]byte, error) { var b bytes.Buffer; _, err := io.Copy(&b, r); return b.Bytes(), err },
		"by bytes":   func(r io.Reader) ([]byte, error) { return io.ReadAll(iotest.OneByteReader(r)) },
	}
	for how, readAll := range readers {
		for i, cut := range []int64{1, 1000, 32 << 10, 32<<10 + 1, 60_000, size - 1} {
			for j, cause := range []error{nil, errBroken} {
				for k, rng := range []muxcore.Range{{}, {Offset: 500}, {Offset: 500, Length: 80_000}, {Offset: -99_000}} {
					if !storetest.Thorough && (i+j+k)%2 > 0 {
						continue // each two of them are tried together
					}
					backends, hooks := copies(t, 3, body, stored)
					hooks[0].wrap = cutAt(cut, cause)
					hooks[1].wrap = cutAt(cut/2+1, cause) // and breaks once more
					m := newMux(t, muxcore.Settings{}, backends...)
					obj, err := m.Get(t.Context(), "k", muxcore.GetOptions{Range: rng})
					if err != nil {
						t.Fatalf("Get = %v", err)
					}
					got, err := readAll(obj.Body)
					want := body[obj.Offset : obj.Offset+obj.Length]
					if err != nil || string(got) != want {
						t.Errorf("%s, cut at %d by %v, range %+v: %d bytes, %v; want %d bytes", how, cut, cause, rng, len(got), err, len(want))
					}
					if err := obj.Body.Close(); err != nil {
						t.Error(err)
					}
				}
			}
		}
	}
}

// A copy that is not the same object is no continuation: the reader gets an error, never another's bytes.
func TestABodyIsNeverContinuedWithAnother(t *testing.T) {
	body := long(100_000)
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, other := range map[string]func(o *muxcore.Object){
		"another version":  func(o *muxcore.Object) { o.ETag = `"two"` },
		"a weak validator": func(o *muxcore.Object) { o.ETag = `W/"one"` },
		"no validator":     func(o *muxcore.Object) { o.ETag = "" },
		"another length":   func(o *muxcore.Object) { o.Size++ },
		"another offset":   func(o *muxcore.Object) { o.Offset++ },
		"another part":     func(o *muxcore.Object) { o.Length-- },
		"a foreign one changed since": func(o *muxcore.Object) {
			o.ETagStored, o.ModTime, o.Digests = false, o.ModTime.Add(time.Second), muxcore.Digests{}
		},
	} {
		t.Run(name, func(t *testing.T) {
			backends, hooks := copies(t, 2, body, muxcore.PutOptions{ETag: `"one"`, ModTime: at})
			hooks[0].wrap = cutAt(50_000, errBroken)
			backends[1].Store = lying{hooks[1], other}
			m := newMux(t, muxcore.Settings{}, backends...)
			got, _, err := read(t.Context(), m, "k", muxcore.GetOptions{})
			if err == nil || got != body[:50_000] {
				t.Errorf("read %d bytes, %v; want an error after 50000", len(got), err)
			}
			if !errors.Is(err, errBroken) {
				t.Errorf("error = %v, want it to tell what broke", err)
			}
		})
	}
}

// lying is a store that says something else of its objects than what they are.
type lying struct {
	*hooked
	lie func(o *muxcore.Object)
}

func (l lying) Get(ctx context.Context, key string, opts muxcore.GetOptions) (*muxcore.Object, error) {
	obj, err := l.hooked.Get(ctx, key, opts)
	if err == nil {
		l.lie(obj)
	}
	return obj, err
}

func TestABodyOfUnknownLengthIsNotContinued(t *testing.T) {
	backends, hooks := copies(t, 2, long(100_000), muxcore.PutOptions{ETag: `"one"`})
	hooks[0].wrap = cutAt(50_000, errBroken)
	backends[0].Store = lying{hooks[0], func(o *muxcore.Object) { o.Size, o.Length = -1, -1 }}
	m := newMux(t, muxcore.Settings{}, backends...)
	if _, _, err := read(t.Context(), m, "k", muxcore.GetOptions{}); !errors.Is(err, errBroken) {
		t.Errorf("read = %v, want the error that broke it", err)
	}
}

// A backend that brings no byte at all has not answered: whatever the next one holds is as good.
func TestABodyWithoutItsFirstByteIsNoAnswer(t *testing.T) {
	a, b := hook(memory(t), nil), memory(t)
	put(t, a.Store, "k", "from a")
	put(t, b, "k", "from b")
	a.wrap = cutAt(0, errBroken)
	m := newMux(t, muxcore.Settings{}, muxcore.Backend{Name: "a", Store: a}, muxcore.Backend{Name: "b", Store: b})
	wantBody(t, m, "k", "from b", "b")
	if s := m.Stats().Backends[0]; s.Status != muxcore.StatusDown {
		t.Errorf("the backend is %s, want it down", s.Status)
	}
}

// A stall in mid-body is a failure after the timeout; a slow reader is nobody's.
func TestAStalledBodyMovesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body := long(100_000)
		backends, hooks := copies(t, 2, body, muxcore.PutOptions{ETag: `"one"`})
		hooks[0].wrap = func(ctx context.Context, rc io.ReadCloser) io.ReadCloser { return &staller{rc, 50_000, ctx.Done()} }
		m := newMux(t, muxcore.Settings{Timeout: time.Second}, backends...)
		obj, err := m.Get(t.Context(), "k", muxcore.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer obj.Body.Close()
		begin := time.Now()
		time.Sleep(time.Hour) // the client takes its time
		got, err := io.ReadAll(obj.Body)
		if err != nil || string(got) != body {
			t.Fatalf("read %d bytes, %v", len(got), err)
		}
		if took := time.Since(begin) - time.Hour; took != time.Second {
			t.Errorf("moved on after %v, want the timeout of 1s", took)
		}
		if s := m.Stats(); s.Backends[0].Timeouts != 1 || s.TotalResumes != 1 {
			t.Errorf("stats = %+v, want one timeout and one resume", s)
		}
	})
}

// A store that hangs in mid-body and does not hear its context is left behind as well.
func TestADeafBodyIsAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		body := long(100_000)
		backends, hooks := copies(t, 2, body, muxcore.PutOptions{ETag: `"one"`})
		hooks[0].wrap = func(_ context.Context, rc io.ReadCloser) io.ReadCloser { return &staller{rc, 50_000, release} }
		backends[0].Store = waiting{hooks[0], muxcore.WaitsUnbounded}
		m := newMux(t, muxcore.Settings{Timeout: time.Second}, backends...)
		if got, _, err := read(t.Context(), m, "k", muxcore.GetOptions{}); err != nil || got != body {
			t.Fatalf("read %d bytes, %v", len(got), err)
		}
		close(release)
	})
}

// The last resort is for who could not be asked, not for who has just broken: one that breaks each time is asked once for
// each byte at which it does.
func TestTheLastResortDoesNotSpin(t *testing.T) {
	for _, cut := range []int64{0, 50_000} {
		gets := 0
		backends, hooks := copies(t, 1, long(100_000), muxcore.PutOptions{ETag: `"one"`})
		hooks[0].wrap = func(ctx context.Context, rc io.ReadCloser) io.ReadCloser {
			if gets++; gets > 10 {
				t.Fatal("asked over and over again")
			}
			return cutAt(cut, errBroken)(ctx, rc)
		}
		backends[0].Store = waiting{hooks[0], muxcore.WaitsNever}
		m := newMux(t, muxcore.Settings{LastResort: true}, backends...)
		if got, _, err := read(t.Context(), m, "k", muxcore.GetOptions{}); err == nil || len(got) != int(cut) {
			t.Errorf("read %d bytes, %v after %d attempts, want an error after %d", len(got), err, gets, cut)
		}
	}
}

// Close may come from another goroutine while Read is under way, as net/http does it.
func TestABodyMayBeClosedWhileItIsRead(t *testing.T) {
	const size = 300_000
	for _, waits := range []muxcore.Waits{muxcore.WaitsNever, muxcore.WaitsWithContext, muxcore.WaitsUnbounded} {
		for _, cut := range []int64{100_000, 1 << 30} { // it breaks and is continued meanwhile, or not
			backends, hooks := copies(t, 2, long(size), muxcore.PutOptions{ETag: `"one"`})
			hooks[0].wrap = cutAt(cut, errBroken)
			for i := range backends {
				backends[i].Store = waiting{hooks[i], waits}
			}
			m := newMux(t, muxcore.Settings{Cooldown: 1, MaxCooldown: 1}, backends...)
			for i := range 30 {
				obj, err := m.Get(t.Context(), "k", muxcore.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				read := make(chan struct{})
				done := make(chan struct{})
				go func() {
					buf, total := make([]byte, 5000), 0
					for n := 0; ; n++ {
						if n == i {
							close(read)
						}
						got, err := obj.Body.Read(buf)
						if total += got; err != nil {
							if errors.Is(err, io.EOF) && total != size {
								t.Errorf("a body that was closed ends as if it were whole after %d of %d", total, size)
							}
							close(done)
							return
						}
					}
				}()
				<-read
				_ = obj.Body.Close()
				<-done
			}
			for _, b := range m.Stats().Backends {
				if b.InFlightCount != 0 {
					t.Errorf("%s: %d in flight at the end", b.Name, b.InFlightCount)
				}
			}
		}
	}
}

// staller blocks after n bytes until it is released.
type staller struct {
	io.ReadCloser
	n       int64
	release <-chan struct{}
}

func (s *staller) Read(p []byte) (int, error) {
	if s.n == 0 {
		<-s.release
		return 0, errBroken
	}
	n, err := s.ReadCloser.Read(p[:min(int64(len(p)), s.n)])
	s.n -= int64(n)
	return n, err
}
