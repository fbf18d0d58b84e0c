package filestore

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newStore(tb testing.TB, s Settings) *Store {
	tb.Helper()
	if s.Root == "" {
		s.Root = tb.TempDir()
	}
	store, err := New(s)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = store.Close() })
	return store
}

func TestConformance(t *testing.T) {
	storetest.Run(t, storetest.Harness{
		New:        func(tb testing.TB) muxcore.Store { return newStore(tb, Settings{}) },
		FoldsNames: foldsNames(t),
		Timeout:    2 * time.Minute,
	})
}

func TestConformanceWithSideFiles(t *testing.T) {
	storetest.Run(t, storetest.Harness{
		New: func(tb testing.TB) muxcore.Store {
			s := newStore(tb, Settings{})
			s.quirks = quirks{noAttributes: true, noSync: true}
			return s
		},
		FoldsNames: foldsNames(t),
	})
}
