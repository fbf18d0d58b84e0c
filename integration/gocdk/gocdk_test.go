package gocdk_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/integration/gocdk"
	"github.com/suaveplan/caddy-storage-mux/internal/s3fake"
	"github.com/suaveplan/caddy-storage-mux/internal/swiftfake"
	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/filestore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/memstore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/s3store"
	"github.com/suaveplan/caddy-storage-mux/muxcore/swiftstore"
)

// opened is a store that is closed when the test ends.
func opened(tb testing.TB, s muxcore.Store, err error) muxcore.Store {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = muxcore.Close(s) })
	return s
}

func memory(tb testing.TB) muxcore.Store {
	tb.Helper()
	s, err := memstore.New(memstore.Settings{})
	return opened(tb, s, err)
}

func disk(tb testing.TB) muxcore.Store {
	tb.Helper()
	s, err := filestore.New(filestore.Settings{Root: tb.TempDir()})
	return opened(tb, s, err)
}

func TestMemory(t *testing.T) { gocdk.Run(t, memory) }

func TestDisk(t *testing.T) { gocdk.Run(t, disk) }

func TestS3(t *testing.T) {
	service := s3fake.New(t)
	var n atomic.Int64
	gocdk.Run(t, func(tb testing.TB) muxcore.Store {
		name := fmt.Sprintf("bucket-%d", n.Add(1))
		service.AddBucket(name)
		s, err := s3store.New(s3store.Settings{Bucket: name, Endpoint: service.URL, AccessKey: s3fake.AccessKey, SecretKey: s3fake.SecretKey})
		return opened(tb, s, err)
	})
}

func TestSwift(t *testing.T) {
	cluster := swiftfake.New(t)
	var n atomic.Int64
	gocdk.Run(t, func(tb testing.TB) muxcore.Store {
		name := fmt.Sprintf("box %d", n.Add(1))
		cluster.AddContainer(name)
		s, err := swiftstore.New(swiftstore.Settings{Container: name, AuthURL: cluster.URL + "/auth/v1.0", User: "test:" + swiftfake.User, Key: swiftfake.Key})
		return opened(tb, s, err)
	})
}

func TestAMirrorOfMemoryAndDisk(t *testing.T) {
	gocdk.Run(t, func(tb testing.TB) muxcore.Store {
		m, err := muxcore.New(muxcore.Settings{Mode: muxcore.Mirror},
			muxcore.Backend{Name: "memory", Store: memory(tb)}, muxcore.Backend{Name: "disk", Store: disk(tb)})
		return opened(tb, m, err)
	})
}
