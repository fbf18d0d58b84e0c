package muxcore_test

import (
	"context"
	"errors"
	"io"
	"iter"
	"runtime/debug"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/memstore"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // most of what the suites cost is collecting short-lived bodies
	goleak.VerifyTestMain(m)
}

// memory is a new memory store.
func memory(tb testing.TB) *memstore.Store {
	tb.Helper()
	s, err := memstore.New(memstore.Settings{})
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// newMux makes a mux that the test closes.
func newMux(tb testing.TB, set muxcore.Settings, backends ...muxcore.Backend) *muxcore.Mux {
	tb.Helper()
	m, err := muxcore.New(set, backends...)
	if err != nil {
		tb.Fatalf("New(%+v) = %v", set, err)
	}
	tb.Cleanup(func() {
		if err := m.Close(); err != nil {
			tb.Errorf("Close() = %v", err)
		}
	})
	return m
}

// put stores an object, or ends the test.
func put(tb testing.TB, s muxcore.Store, key, body string) muxcore.PutResult {
	tb.Helper()
	r, err := s.Put(tb.Context(), key, strings.NewReader(body), int64(len(body)), muxcore.PutOptions{})
	if err != nil {
		tb.Fatalf("Put(%q) = %v", key, err)
	}
	return r
}

// read reads an object whole.
func read(ctx context.Context, s muxcore.Store, key string, opts muxcore.GetOptions) (string, *muxcore.Object, error) {
	obj, err := s.Get(ctx, key, opts)
	if err != nil {
		return "", nil, err
	}
	defer obj.Body.Close()
	b, err := io.ReadAll(obj.Body)
	return string(b), obj, err
}

// wantBody reads an object and compares.
func wantBody(tb testing.TB, s muxcore.Store, key, want, backend string) {
	tb.Helper()
	got, obj, err := read(tb.Context(), s, key, muxcore.GetOptions{})
	if err != nil {
		tb.Fatalf("Get(%q) = %v, want it from %q", key, err, backend)
	}
	if got != want || obj.Via.Backend != backend {
		tb.Errorf("Get(%q) = %q from %q, want %q from %q", key, got, obj.Via.Backend, want, backend)
	}
}

// waiting is a store that claims to wait in another way than it does, so that the mux calls it in another way.
type waiting struct {
	muxcore.Store
	waits muxcore.Waits
}

func (w waiting) Waits() muxcore.Waits { return w.waits }

func (w waiting) Capabilities() muxcore.Capabilities { return muxcore.CapabilitiesOf(w.Store) }

var errBroken = errors.New("broken")

// broken is a store that fails every call.
type broken struct{ err error }

func (b broken) fail() error {
	if b.err != nil {
		return b.err
	}
	return &muxcore.Error{Code: muxcore.CodeUnavailable, Err: errBroken}
}

func (b broken) Get(context.Context, string, muxcore.GetOptions) (*muxcore.Object, error) {
	return nil, b.fail()
}

func (b broken) Stat(context.Context, string, muxcore.Conditions) (muxcore.Info, error) {
	return muxcore.Info{}, b.fail()
}

func (b broken) Put(context.Context, string, io.Reader, int64, muxcore.PutOptions) (muxcore.PutResult, error) {
	return muxcore.PutResult{}, b.fail()
}

func (b broken) Delete(context.Context, string, muxcore.DeleteOptions) (muxcore.DeleteResult, error) {
	return muxcore.DeleteResult{}, b.fail()
}

func (b broken) List(context.Context, muxcore.ListOptions) iter.Seq2[muxcore.Entry, error] {
	return func(yield func(muxcore.Entry, error) bool) { yield(muxcore.Entry{}, b.fail()) }
}

// backendOf is the backend that an error came from.
func backendOf(err error) string {
	if e, ok := errors.AsType[*muxcore.Error](err); ok {
		return e.Backend
	}
	return ""
}

// newMuxUnclosed makes a mux that whoever takes it closes.
func newMuxUnclosed(tb testing.TB, set muxcore.Settings, backends ...muxcore.Backend) *muxcore.Mux {
	tb.Helper()
	m, err := muxcore.New(set, backends...)
	if err != nil {
		tb.Fatalf("New(%+v) = %v", set, err)
	}
	return m
}
