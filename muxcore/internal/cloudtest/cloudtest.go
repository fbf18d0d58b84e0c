// Package cloudtest is what the tests of stores at cloud services share.
package cloudtest

import (
	"io"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/storetest"
)

// Main is a TestMain. No test may leave goroutines behind.
func Main(m *testing.M) {
	debug.SetGCPercent(400) // a good part of what the suites cost is collecting short-lived bodies
	goleak.VerifyTestMain(m)
}

// Open makes a store of settings, until the test ends.
func Open[T any, S io.Closer](tb testing.TB, make func(T) (S, error), settings T) S {
	tb.Helper()
	s, err := make(settings)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = s.Close() })
	return s
}

// Suite runs the conformance suite of h. make makes the nth store, each in an empty place of its own.
func Suite(t *testing.T, h storetest.Harness, make func(tb testing.TB, n int64) muxcore.Store) {
	t.Helper()
	t.Parallel()
	var n atomic.Int64
	h.Timeout = 3 * time.Minute
	h.New = func(tb testing.TB) muxcore.Store { return make(tb, n.Add(1)) }
	storetest.Run(t, h)
}

// InMux puts a mux over a store.
func InMux(tb testing.TB, s muxcore.Store) muxcore.Store {
	tb.Helper()
	m, err := muxcore.New(muxcore.Settings{}, muxcore.Backend{Name: "cloud", Store: s})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = m.Close() })
	return m
}

// NotInMux are the checks, and why, that a store with a prefix in a mux is not put to.
func NotInMux() map[string]string {
	return map[string]string{
		"an overwrite takes the old attributes away": "a mux gives every object an identity",
		"a store's own ETag is not a stored one":     "a mux gives every object an identity",
		"keys are bytes and come back as they were":  "the longest of them has no room beside a prefix",
		"every list is what an oracle says":          "as without a mux, and it costs most of the time",
	}
}

// Put puts a body, and ends the test if that fails.
func Put(t *testing.T, s muxcore.Store, key, body string, opts muxcore.PutOptions) muxcore.PutResult {
	t.Helper()
	res, err := s.Put(t.Context(), key, strings.NewReader(body), int64(len(body)), opts)
	if err != nil {
		t.Fatalf("Put(%q) = %v", key, err)
	}
	return res
}

// Calls are all operations on a key.
func Calls(t *testing.T, s muxcore.Store, key string) map[string]func() error {
	return map[string]func() error{
		"Get":  func() error { _, err := s.Get(t.Context(), key, muxcore.GetOptions{}); return err },
		"Stat": func() error { _, err := s.Stat(t.Context(), key, muxcore.Conditions{}); return err },
		"Put": func() error {
			_, err := s.Put(t.Context(), key, strings.NewReader("x"), 1, muxcore.PutOptions{})
			return err
		},
		"Delete": func() error { _, err := s.Delete(t.Context(), key, muxcore.DeleteOptions{}); return err },
		"List": func() error {
			for _, err := range s.List(t.Context(), muxcore.ListOptions{}) {
				return err
			}
			return nil
		},
	}
}
