package memstore_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/memstore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newStore(tb testing.TB, s memstore.Settings) *memstore.Store {
	tb.Helper()
	store, err := memstore.New(s)
	if err != nil {
		tb.Fatal(err)
	}
	return store
}

func TestConformance(t *testing.T) {
	storetest.Run(t, storetest.Harness{
		New: func(tb testing.TB) muxcore.Store { return newStore(tb, memstore.Settings{}) },
	})
}

func TestConformanceWithALimit(t *testing.T) {
	storetest.Run(t, storetest.Harness{
		New: func(tb testing.TB) muxcore.Store { return newStore(tb, memstore.Settings{MaxBytes: 64 << 20}) },
	})
}
