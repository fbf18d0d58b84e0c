package swiftstore_test

import (
	"fmt"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/suaveplan/caddy-storage-mux/internal/swiftfake"
	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/storetest"
	"github.com/suaveplan/caddy-storage-mux/muxcore/swiftstore"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // a good part of what the suites cost is collecting short-lived bodies
	goleak.VerifyTestMain(m)
}

// settings are those of a container of c.
func settings(c *swiftfake.Cluster, container string) swiftstore.Settings {
	return swiftstore.Settings{Container: container, AuthURL: c.URL + "/auth/v1.0", User: "test:" + swiftfake.User, Key: swiftfake.Key}
}

// open makes a store of settings.
func open(tb testing.TB, set swiftstore.Settings) *swiftstore.Store {
	tb.Helper()
	s, err := swiftstore.New(set)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { s.Close() })
	return s
}

// suite runs the conformance suite on containers of one cluster.
func suite(t *testing.T, skip map[string]string, quick []string, make func(testing.TB, swiftstore.Settings) muxcore.Store) {
	t.Helper()
	t.Parallel()
	c := swiftfake.New(t)
	var n atomic.Int64
	storetest.Run(t, storetest.Harness{TimeResolution: time.Second, Timeout: 3 * time.Minute, Skip: skip, Quick: quick, New: func(tb testing.TB) muxcore.Store {
		name := fmt.Sprintf("container %d", n.Add(1))
		c.AddContainer(name)
		return make(tb, settings(c, name))
	}})
}

func TestConformance(t *testing.T) {
	suite(t, nil, nil, func(tb testing.TB, set swiftstore.Settings) muxcore.Store { return open(tb, set) })
}

func TestConformanceInAMuxBelowAPrefix(t *testing.T) {
	skip := map[string]string{
		"an overwrite takes the old attributes away": "a mux gives every object an identity",
		"a store's own ETag is not a stored one":     "a mux gives every object an identity",
		"keys are bytes and come back as they were":  "the longest of them has no room beside a prefix",
		"every list is what an oracle says":          "as without a mux, and it costs most of the time",
	}
	suite(t, skip, storetest.Beneath(), func(tb testing.TB, set swiftstore.Settings) muxcore.Store {
		set.Prefix = "/a b/é/"
		m, err := muxcore.New(muxcore.Settings{}, muxcore.Backend{Name: "swift", Store: open(tb, set)})
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { m.Close() })
		return m
	})
}

// put puts a body and says what went wrong.
func put(t *testing.T, s muxcore.Store, key, body string) muxcore.PutResult {
	t.Helper()
	res, err := s.Put(t.Context(), key, strings.NewReader(body), int64(len(body)), muxcore.PutOptions{})
	if err != nil {
		t.Fatalf("Put(%q) = %v", key, err)
	}
	return res
}
