package integration_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/suaveplan/caddy-storage-mux/integration/origin"
	"github.com/suaveplan/caddy-storage-mux/internal/bunnyfake"
	"github.com/suaveplan/caddy-storage-mux/internal/s3fake"
	"github.com/suaveplan/caddy-storage-mux/internal/swiftfake"
	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/bunnystore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/filestore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/httpstore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/journal"
	"github.com/suaveplan/caddy-storage-mux/muxcore/memstore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/s3store"
	"github.com/suaveplan/caddy-storage-mux/muxcore/storetest"
	"github.com/suaveplan/caddy-storage-mux/muxcore/swiftstore"
)

// mixture makes muxes of one backend of each type.
type mixture struct {
	service *s3fake.Service
	cluster *swiftfake.Cluster
	zones   *bunnyfake.Zones
	made    atomic.Int64
}

func newMixture(t *testing.T) *mixture {
	t.Helper()
	service := s3fake.New(t)
	service.MinPart(1)
	return &mixture{service: service, cluster: swiftfake.New(t), zones: bunnyfake.New(t)}
}

// open makes a mux. What keeps no metadata answers only where the others fail, or not at all in a mirror, where the first
// answer counts: its own attributes would differ each time.
func (x *mixture) open(tb testing.TB, mode muxcore.Mode) muxcore.Store {
	tb.Helper()
	name := fmt.Sprintf("box-%d", x.made.Add(1))
	x.service.AddBucket(name)
	x.cluster.AddContainer(name)
	x.zones.AddZone(name)
	s3, err := s3store.New(s3store.Settings{Bucket: name, Endpoint: x.service.URL, AccessKey: s3fake.AccessKey, SecretKey: s3fake.SecretKey})
	opened(tb, s3, err)
	swift, err := swiftstore.New(swiftstore.Settings{Container: name, AuthURL: x.cluster.URL + "/auth/v1.0", User: "test:" + swiftfake.User, Key: swiftfake.Key})
	opened(tb, swift, err)
	disk, err := filestore.New(filestore.Settings{Root: tb.TempDir()})
	opened(tb, disk, err)
	memory, err := memstore.New(memstore.Settings{})
	if err != nil {
		tb.Fatal(err)
	}
	zone, err := bunnystore.New(bunnystore.Settings{Zone: name, Endpoint: x.zones.URL, AccessKey: bunnyfake.AccessKey})
	opened(tb, zone, err)
	web, err := httpstore.New(httpstore.Settings{BaseURL: origin.New(tb).URL()})
	opened(tb, web, err)
	weight := 1
	if mode == muxcore.Mirror {
		weight = 0
	}
	missed := journal.New(filepath.Join(tb.TempDir(), "journal"), journal.Settings{}) // a connection may break on a busy machine
	opened(tb, missed, nil)
	m, err := muxcore.New(
		muxcore.Settings{Mode: mode, Journal: missed.Scope(""), Timeout: 2 * time.Minute, WriteQuorum: map[muxcore.Mode]muxcore.Quorum{muxcore.Mirror: muxcore.QuorumMajority}[mode]},
		muxcore.Backend{Name: "s3", Store: s3}, muxcore.Backend{Name: "swift", Store: swift}, muxcore.Backend{Name: "disk", Store: disk},
		muxcore.Backend{Name: "memory", Store: memory}, muxcore.Backend{Name: "bunny", Store: zone, Weight: &weight}, muxcore.Backend{Name: "web", Store: web, Weight: &weight},
	)
	return opened(tb, m, err)
}

// A mux of all types is a store as each of them is.
func TestAMuxOfEveryTypeIsAStore(t *testing.T) {
	t.Parallel()
	x := newMixture(t)
	for _, mode := range []muxcore.Mode{muxcore.Failover, muxcore.Shield, muxcore.Mirror} {
		t.Run(string(mode), func(t *testing.T) {
			m := x.open(t, mode)
			r, err := m.Put(t.Context(), "a b/é", strings.NewReader("body"), 4, muxcore.PutOptions{})
			if err != nil || len(r.Missed) > 0 {
				t.Errorf("Put = %v, missed by %q, want nobody to miss it", err, r.Missed)
			}
			storetest.Run(t, storetest.Harness{
				TimeResolution: time.Second, Parallel: true, Timeout: 5 * time.Minute, Quick: storetest.Beneath(),
				Skip: map[string]string{
					"a store's own ETag is not a stored one":     "a mux stores the identity that it gives",
					"an overwrite takes the old attributes away": "likewise",
					"every list is what an oracle says":          "as on a mux of stores in memory, and it costs most of the time",
				},
				New: func(tb testing.TB) muxcore.Store { return x.open(tb, mode) },
			})
		})
	}
}
