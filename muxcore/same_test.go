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

// A nested mux took the 412 or 404 of its first backend for its own last word, so that nothing went on there although
// another backend inside had the copy.
func TestAResumeIsSoughtInAllOfANestedMux(t *testing.T) {
	body := long(100_000)
	for name, spoil := range map[string]func(s muxcore.Store) error{
		"another version": func(s muxcore.Store) error {
			_, err := s.Put(t.Context(), "k", strings.NewReader("other"), 5, muxcore.PutOptions{ETag: `"two"`})
			return err
		},
		"a shorter one of the same tag": func(s muxcore.Store) error {
			_, err := s.Put(t.Context(), "k", strings.NewReader(body[:90_000]), 90_000, muxcore.PutOptions{ETag: `"one"`})
			return err
		},
		"none": func(s muxcore.Store) error { _, err := s.Delete(t.Context(), "k", muxcore.DeleteOptions{}); return err },
	} {
		for _, mode := range muxcore.Modes() {
			t.Run(fmt.Sprint(name, ", ", mode), func(t *testing.T) {
				backends, hooks := copies(t, 3, body, muxcore.PutOptions{ETag: `"one"`})
				hooks[0].wrap = cutAt(50_000, errBroken)
				if err := spoil(hooks[1].Store); err != nil {
					t.Fatal(err)
				}
				one := 1
				backends[1].Weight, backends[2].Weight = &one, &one
				inner := newMux(t, muxcore.Settings{Mode: mode}, backends[1:]...)
				m := newMux(t, muxcore.Settings{}, backends[0], muxcore.Backend{Name: "eu", Store: inner})
				if got, _, err := read(t.Context(), m, "k", muxcore.GetOptions{}); err != nil || got != body {
					t.Errorf("read %d bytes, %v, want all %d", len(got), err, len(body))
				}
			})
		}
	}
}

// Same asks on until the very object is found, and says so if it is not.
func TestSameOpensOnlyACopy(t *testing.T) {
	body := long(100_000)
	for _, mode := range muxcore.Modes() {
		backends, hooks := copies(t, 3, body, muxcore.PutOptions{ETag: `"one"`})
		one := 1
		for i := range backends {
			backends[i].Weight = &one
		}
		if _, err := hooks[0].Store.Put(t.Context(), "k", strings.NewReader("x"), 1, muxcore.PutOptions{ETag: `"two"`}); err != nil {
			t.Fatal(err)
		}
		if _, err := hooks[1].Store.Delete(t.Context(), "k", muxcore.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		m := newMux(t, muxcore.Settings{Mode: mode}, backends...)
		info, err := hooks[2].Store.Stat(t.Context(), "k", muxcore.Conditions{})
		if err != nil {
			t.Fatal(err)
		}
		opts := muxcore.GetOptions{Range: muxcore.Range{Offset: 10, Length: 50_000}, Same: &info}
		if got, obj, err := read(t.Context(), m, "k", opts); err != nil || got != body[10:50_010] || obj.Via.Backend != "b2" {
			t.Errorf("%s: read %d bytes, %v", mode, len(got), err)
		}
		hooks[2].set(fails)
		if _, err := m.Get(t.Context(), "k", opts); muxcore.CodeOf(err) != muxcore.CodeAllBackendsDown {
			t.Errorf("%s: with the copy away, Get = %v, want all down", mode, err)
		}
		hooks[2].set(nil)
		info.ETag = `"three"`
		opts.Conditions = muxcore.Conditions{}
		m = newMux(t, muxcore.Settings{Mode: mode}, backends...)
		if _, err := m.Get(t.Context(), "k", opts); !errors.Is(err, muxcore.ErrPreconditionFailed) {
			t.Errorf("%s: Get of a copy that nobody has = %v, want a failed precondition", mode, err)
		}
		for _, b := range m.Stats().Backends {
			if b.Status != muxcore.StatusUp || b.InFlightCount != 0 {
				t.Errorf("%s: %s is %s with %d in flight", mode, b.Name, b.Status, b.InFlightCount)
			}
		}
	}
}

// A small body that breaks off comes whole from whoever has any version: nothing of it has gone out.
func TestASmallBodyIsNeverBroken(t *testing.T) {
	for _, cut := range []int64{1, 2000, 4999} {
		for _, cause := range []error{nil, errBroken} {
			a, b := hook(memory(t), nil), memory(t)
			put(t, a.Store, "k", long(5000))
			put(t, b, "k", "from b")
			a.wrap = cutAt(cut, cause)
			m := newMux(t, muxcore.Settings{}, muxcore.Backend{Name: "a", Store: a}, muxcore.Backend{Name: "b", Store: b})
			wantBody(t, m, "k", "from b", "b")
		}
	}
}

// One that drips does not keep its reader waiting for the whole of it.
func TestASmallBodyThatDripsIsAnsweredBeforeItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backends, hooks := copies(t, 1, long(1000), muxcore.PutOptions{ETag: `"one"`})
		hooks[0].wrap = func(_ context.Context, rc io.ReadCloser) io.ReadCloser {
			return bodyOf{func(p []byte) (int, error) {
				time.Sleep(time.Second)
				return rc.Read(p[:1])
			}, rc.Close}
		}
		m := newMux(t, muxcore.Settings{}, backends...)
		begin := time.Now()
		obj, err := m.Get(t.Context(), "k", muxcore.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer obj.Body.Close()
		if took := time.Since(begin); took != time.Second {
			t.Errorf("the answer took %v, want one byte's second", took)
		}
		if got, err := io.ReadAll(obj.Body); err != nil || string(got) != long(1000) {
			t.Errorf("read %d bytes, %v", len(got), err)
		}
	})
}

// A body that brings neither bytes nor an end spun for ever.
func TestABodyOfEmptyReadsIsAFailure(t *testing.T) {
	for _, after := range []int64{0, 50_000} {
		backends, hooks := copies(t, 2, long(100_000), muxcore.PutOptions{ETag: `"one"`})
		hooks[0].wrap = func(_ context.Context, rc io.ReadCloser) io.ReadCloser {
			first := io.LimitReader(rc, after)
			return bodyOf{func(p []byte) (int, error) { n, _ := first.Read(p); return n, nil }, rc.Close}
		}
		m := newMux(t, muxcore.Settings{}, backends...)
		if got, _, err := read(t.Context(), m, "k", muxcore.GetOptions{}); err != nil || got != long(100_000) {
			t.Errorf("read %d bytes, %v", len(got), err)
		}
	}
}

// A body that panicked while it wrote itself was continued from where that began: its bytes came twice.
func TestAPanicHalfwayDoublesNoByte(t *testing.T) {
	body := long(100_000)
	for name, to := range map[string]func(r io.Reader, w io.Writer) (int64, error){
		"panics":           func(r io.Reader, w io.Writer) (int64, error) { _, _ = io.CopyN(w, r, 50_000); panic("oh") },
		"tells too little": func(r io.Reader, w io.Writer) (int64, error) { _, _ = io.CopyN(w, r, 50_000); return 10, errBroken },
		"tells too much":   func(r io.Reader, w io.Writer) (int64, error) { _, _ = io.CopyN(w, r, 50_000); return 60_000, errBroken },
		"writes on and on": func(r io.Reader, w io.Writer) (int64, error) {
			_, _ = io.Copy(w, r)
			return io.Copy(w, strings.NewReader("more"))
		},
		"writes past after": func(r io.Reader, w io.Writer) (int64, error) {
			return io.Copy(w, io.MultiReader(r, strings.NewReader("more")))
		},
	} {
		m := selfWriting(t, body, to)
		obj, err := m.Get(t.Context(), "k", muxcore.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		if n, err := io.Copy(&b, obj.Body); err != nil || n != int64(len(body)) || b.String() != body {
			t.Errorf("%s: Copy = %d, %v; %d bytes", name, n, err, b.Len())
		}
		_ = obj.Body.Close()
	}
}
