package swiftstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/suaveplan/caddy-storage-mux/internal/swiftfake"
	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/internal/cloudtest"
	"github.com/suaveplan/caddy-storage-mux/muxcore/storetest"
	"github.com/suaveplan/caddy-storage-mux/muxcore/swiftstore"
)

func TestMain(m *testing.M) { cloudtest.Main(m) }

// settings are those of a container of c.
func settings(c *swiftfake.Cluster, container string) swiftstore.Settings {
	return swiftstore.Settings{Container: container, AuthURL: c.URL + "/auth/v1.0", User: "test:" + swiftfake.User, Key: swiftfake.Key}
}

// open makes a store of settings.
func open(tb testing.TB, set swiftstore.Settings) *swiftstore.Store {
	tb.Helper()
	return cloudtest.Open(tb, swiftstore.New, set)
}

// suite runs the conformance suite on containers of one cluster.
func suite(t *testing.T, skip map[string]string, quick []string, make func(testing.TB, swiftstore.Settings) muxcore.Store) {
	t.Helper()
	c := swiftfake.New(t)
	h := storetest.Harness{TimeResolution: time.Second, Skip: skip, Quick: quick}
	cloudtest.Suite(t, h, func(tb testing.TB, n int64) muxcore.Store {
		name := fmt.Sprintf("container %d", n)
		c.AddContainer(name)
		return make(tb, settings(c, name))
	})
}

func TestConformance(t *testing.T) {
	suite(t, nil, nil, func(tb testing.TB, set swiftstore.Settings) muxcore.Store { return open(tb, set) })
}

func TestConformanceInAMuxBelowAPrefix(t *testing.T) {
	suite(t, cloudtest.NotInMux(), storetest.Beneath(), func(tb testing.TB, set swiftstore.Settings) muxcore.Store {
		set.Prefix = "/a b/é/"
		return cloudtest.InMux(tb, open(tb, set))
	})
}

// put puts a body and says what went wrong.
func put(t *testing.T, s muxcore.Store, key, body string) muxcore.PutResult {
	t.Helper()
	return cloudtest.Put(t, s, key, body, muxcore.PutOptions{})
}
