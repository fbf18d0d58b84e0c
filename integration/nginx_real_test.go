//go:build linux

package integration_test

import (
	"testing"
	"time"

	"github.com/suaveplan/caddy-storage-mux/integration/nginxd"
	"github.com/suaveplan/caddy-storage-mux/integration/rig"
	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/httpstore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/storetest"
)

// TestTheRealNginx holds what we believe of WebDAV against the server that most people run it on.
func TestTheRealNginx(t *testing.T) {
	t.Parallel()
	s := nginxd.Start(t)
	t.Run("served by Caddy", func(t *testing.T) {
		servedWell(t, rig.Start(t, `storage_mux {
			writable
			list
			backend n http {$NGINX}
		}`, rig.Env("NGINX", s.Folder(t))), true)
	})
	t.Run("conformance", func(t *testing.T) { realNginxSuite(t, s) })
}

func realNginxSuite(t *testing.T, s *nginxd.Server) {
	skip := map[string]string{
		"a store refuses a key it cannot hold and changes nothing": "nginx answers a name of more than 255 bytes with 500, as it does a full disk",
		"an overwrite replaces the whole object":                   "nginx makes strong ETags of the size and the second, which two versions can share",
	}
	storetest.Run(t, storetest.Harness{TimeResolution: time.Second, Parallel: true, Timeout: 5 * time.Minute, Skip: skip, New: func(tb testing.TB) muxcore.Store {
		store, err := httpstore.New(httpstore.Settings{BaseURL: s.Folder(tb)})
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { store.Close() })
		return store
	}})
}
