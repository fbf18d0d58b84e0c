package muxcore_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// selfWriter is a body that writes itself by a function.
type selfWriter struct {
	io.ReadCloser
	to func(r io.Reader, w io.Writer) (int64, error)
}

func (b selfWriter) WriteTo(w io.Writer) (int64, error) { return b.to(b.ReadCloser, w) }

// selfWriting are two copies of body, of which the first never waits and writes itself.
func selfWriting(tb testing.TB, body string, to func(r io.Reader, w io.Writer) (int64, error)) *muxcore.Mux {
	tb.Helper()
	backends, hooks := copies(tb, 2, body, muxcore.PutOptions{ETag: `"one"`})
	hooks[0].wrap = func(_ context.Context, rc io.ReadCloser) io.ReadCloser { return selfWriter{rc, to} }
	backends[0].Store = waiting{hooks[0], muxcore.WaitsNever}
	return newMux(tb, muxcore.Settings{}, backends...)
}

// some writes n bytes and then ends in err. Like a file, it hands its reader to a writer that can read.
func some(n int64, err error) func(r io.Reader, w io.Writer) (int64, error) {
	return func(r io.Reader, w io.Writer) (int64, error) {
		r = io.LimitReader(r, n)
		if err != nil {
			r = io.MultiReader(r, iotest.ErrReader(err))
		}
		return io.Copy(w, r)
	}
}

// reading is a writer that reads for itself, as connections and files do.
type reading struct {
	strings.Builder
	from func(w io.Writer, r io.Reader) (int64, error)
}

func (w *reading) ReadFrom(r io.Reader) (int64, error) { return w.from(&w.Builder, r) }

// A body that writes itself may break in any way: the rest comes from elsewhere, to the byte, and it is its backend's
// fault. Both a writer that is written to and one that reads for itself get it whole.
func TestABodyThatWritesItselfIsContinued(t *testing.T) {
	body := long(100_000)
	for name, row := range map[string]struct {
		to   func(r io.Reader, w io.Writer) (int64, error)
		well bool
	}{
		"all is well":                  {some(100_000, nil), true},
		"it fails at once":             {some(0, errBroken), false},
		"it fails half-way":            {some(50_000, errBroken), false},
		"it ends early":                {some(50_000, nil), false},
		"it fails after its last byte": {some(100_000, errBroken), true},
	} {
		for kind, sink := range map[string]func() (io.Writer, func() string){
			"written to": func() (io.Writer, func() string) { b := new(strings.Builder); return struct{ io.Writer }{b}, b.String },
			"reading":    func() (io.Writer, func() string) { w := &reading{from: io.Copy}; return w, w.String },
		} {
			t.Run(name+", "+kind, func(t *testing.T) {
				m := selfWriting(t, body, row.to)
				obj, err := m.Get(t.Context(), "k", muxcore.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				defer obj.Body.Close()
				w, written := sink()
				n, err := obj.Body.(io.WriterTo).WriteTo(w)
				if err != nil || n != int64(len(body)) || written() != body {
					t.Errorf("WriteTo = %d, %v, wrote %d bytes; want %d", n, err, len(written()), len(body))
				}
				s := m.Stats()
				if up := s.Backends[0].Status == muxcore.StatusUp; up != row.well || s.TotalResumes == 0 != row.well {
					t.Errorf("b0 up: %t, %d resumes", up, s.TotalResumes)
				}
			})
		}
	}
}

// A panic in the way that a body writes itself is an error like any other.
func TestAPanicInABodyIsAnError(t *testing.T) {
	body := long(100_000)
	m := selfWriting(t, body, func(io.Reader, io.Writer) (int64, error) { panic("oh") })
	obj, err := m.Get(t.Context(), "k", muxcore.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if _, err := io.Copy(&b, obj.Body); err != nil || b.String() != body {
		t.Errorf("%d bytes, %v, want the rest from elsewhere", b.Len(), err)
	}
	_ = obj.Body.Close()
	for name, wrap := range map[string]func(io.ReadCloser) io.ReadCloser{
		"Read": func(rc io.ReadCloser) io.ReadCloser {
			return bodyOf{func([]byte) (int, error) { panic("oh") }, rc.Close}
		},
		"Close": func(rc io.ReadCloser) io.ReadCloser { return bodyOf{rc.Read, func() error { panic("oh") }} },
	} {
		for _, waits := range []muxcore.Waits{muxcore.WaitsNever, muxcore.WaitsWithContext, muxcore.WaitsUnbounded} {
			backends, hooks := copies(t, 2, body, muxcore.PutOptions{ETag: `"one"`})
			hooks[0].wrap = func(_ context.Context, rc io.ReadCloser) io.ReadCloser { return wrap(rc) }
			backends[0].Store = waiting{hooks[0], waits}
			m := newMux(t, muxcore.Settings{}, backends...)
			if got, _, err := read(t.Context(), m, "k", muxcore.GetOptions{}); err != nil || got != body {
				t.Errorf("a panic in %s: %d bytes, %v", name, len(got), err)
			}
			for _, b := range m.Stats().Backends {
				if b.InFlightCount != 0 {
					t.Errorf("a panic in %s: %d in flight on %s", name, b.InFlightCount, b.Name)
				}
			}
		}
	}
}

// bodyOf is a body made of functions.
type bodyOf struct {
	read  func([]byte) (int, error)
	close func() error
}

func (b bodyOf) Read(p []byte) (int, error) { return b.read(p) }
func (b bodyOf) Close() error               { return b.close() }

// An object without a body is a failure of the store, also in a race.
func TestAnObjectWithoutABodyIsAFailure(t *testing.T) {
	for _, mode := range []muxcore.Mode{muxcore.Failover, muxcore.Mirror} {
		backends, hooks := crowd(t, 1, 1)
		backends[0].Store = waiting{lying{hooks[0], func(o *muxcore.Object) { _ = o.Body.Close(); o.Body = nil }}, muxcore.WaitsNever}
		m := newMux(t, muxcore.Settings{Mode: mode}, backends...)
		wantBody(t, m, "k", "body", "b1")
	}
}

// A writer that fails is nobody's fault but its own: its error comes back, the backend stays up, and the body is not read
// on from a place that nobody knows.
func TestAWriterThatFailsIsNotTheBackends(t *testing.T) {
	errWriter := errors.New("the client is gone")
	full := func(w io.Writer, n int64) io.Writer { return &limitedWriter{w, n, errWriter} }
	for name, w := range map[string]io.Writer{
		"written to":                      full(io.Discard, 40_000),
		"reading":                         &reading{from: func(w io.Writer, r io.Reader) (int64, error) { return io.Copy(full(w, 40_000), r) }},
		"reading, and failing at the end": &reading{from: func(w io.Writer, r io.Reader) (int64, error) { n, _ := io.Copy(w, r); return n, errWriter }},
		"buffering":                       bufio.NewWriterSize(full(io.Discard, 40_000), 1000),
	} {
		for how, to := range map[string]func(r io.Reader, w io.Writer) (int64, error){"itself": some(100_000, nil), "by reading": nil} {
			t.Run(name+", "+how, func(t *testing.T) {
				m := selfWriting(t, long(100_000), to)
				obj, err := m.Get(t.Context(), "k", muxcore.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				defer obj.Body.Close()
				body := io.Reader(obj.Body)
				if to == nil {
					body = struct{ io.Reader }{obj.Body}
				}
				if n, err := io.Copy(w, body); !errors.Is(err, errWriter) || n > 100_000 {
					t.Errorf("Copy = %d, %v, want the writer's error", n, err)
				}
				if s := m.Stats(); s.Backends[0].Status != muxcore.StatusUp || s.Backends[0].Errors != 0 || s.TotalResumes != 0 {
					t.Errorf("stats = %+v, want nobody blamed", s.Backends[0])
				}
				if n, err := obj.Body.Read(make([]byte, 10)); to != nil && (n != 0 || !errors.Is(err, errWriter)) {
					t.Errorf("Read after that = %d, %v, want the error again", n, err)
				}
			})
		}
	}
}

// limitedWriter takes n bytes and then fails.
type limitedWriter struct {
	w   io.Writer
	n   int64
	err error
}

func (l *limitedWriter) Write(p []byte) (int, error) {
	if int64(len(p)) > l.n {
		n, _ := l.w.Write(p[:l.n])
		l.n = 0
		return n, l.err
	}
	l.n -= int64(len(p))
	return l.w.Write(p)
}

// What breaks on both sides at once ends in an error, and never in a short success.
func TestABodyAndAWriterMayBothBreak(t *testing.T) {
	backends, hooks := copies(t, 1, long(100_000), muxcore.PutOptions{ETag: `"one"`})
	hooks[0].wrap = func(_ context.Context, rc io.ReadCloser) io.ReadCloser {
		return selfWriter{rc, some(50_000, errBroken)}
	}
	backends[0].Store = waiting{hooks[0], muxcore.WaitsNever}
	m := newMux(t, muxcore.Settings{}, backends...)
	obj, err := m.Get(t.Context(), "k", muxcore.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer obj.Body.Close()
	n, err := io.Copy(&reading{from: io.Copy}, obj.Body)
	if n != 50_000 || !errors.Is(err, errBroken) || backendOf(err) != "b0" {
		t.Errorf("Copy = %d, %v, want the error that broke it, of b0", n, err)
	}
	if s := m.Stats().Backends[0]; s.Status != muxcore.StatusDown {
		t.Errorf("b0 is %s", s.Status)
	}
}

// The own way to write of a body that may hang is not taken: nothing could end it.
func TestABodyThatMayHangDoesNotWriteItself(t *testing.T) {
	for _, waits := range []muxcore.Waits{muxcore.WaitsUnbounded, muxcore.WaitsWithContext} {
		synctest.Test(t, func(t *testing.T) {
			body := long(100_000)
			backends, hooks := copies(t, 2, body, muxcore.PutOptions{ETag: `"one"`})
			release := make(chan struct{})
			defer time.AfterFunc(time.Hour, func() { close(release) }).Stop()
			hooks[0].wrap = func(_ context.Context, rc io.ReadCloser) io.ReadCloser {
				return selfWriter{&staller{rc, 50_000, release}, func(io.Reader, io.Writer) (int64, error) { <-release; return 0, errBroken }}
			}
			backends[0].Store = waiting{hooks[0], muxcore.WaitsUnbounded}
			if waits == muxcore.WaitsWithContext {
				hooks[0].wrap = func(ctx context.Context, rc io.ReadCloser) io.ReadCloser {
					return selfWriter{&staller{rc, 50_000, ctx.Done()}, func(io.Reader, io.Writer) (int64, error) { <-release; return 0, errBroken }}
				}
				backends[0].Store = hooks[0]
			}
			m := newMux(t, muxcore.Settings{Timeout: time.Second}, backends...)
			obj, err := m.Get(t.Context(), "k", muxcore.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer obj.Body.Close()
			var b strings.Builder
			begin := time.Now()
			if _, err := io.Copy(struct{ io.Writer }{&b}, obj.Body); err != nil || b.String() != body {
				t.Errorf("%d bytes, %v", b.Len(), err)
			}
			if took := time.Since(begin); took != time.Second {
				t.Errorf("took %v, want the timeout", took)
			}
			if waits == muxcore.WaitsUnbounded {
				time.Sleep(time.Hour) // the read that was abandoned comes back
			}
		})
	}
}
