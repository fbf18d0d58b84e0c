package memstore_test

import (
	"runtime/debug"
	"testing"

	"go.uber.org/goleak"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/memstore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/storetest"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // most of what the suite costs is collecting short-lived bodies
	goleak.VerifyTestMain(m)
}

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
		New:      func(tb testing.TB) muxcore.Store { return newStore(tb, memstore.Settings{}) },
		LongList: 300,
	})
}

func TestConformanceWithALimit(t *testing.T) {
	storetest.Run(t, storetest.Harness{
		New: func(tb testing.TB) muxcore.Store { return newStore(tb, memstore.Settings{MaxBytes: 64 << 20}) },
		Quick: []string{ // reads and lists are those of a store without a limit
			"bodies of known and unknown length are kept", "a body is neither closed nor read after Put returns",
			"a short or long body changes nothing", "a body that fails changes nothing", "a wrong digest changes nothing",
			"an overwrite replaces the whole object", "a deleted object is gone", "attributes come back as they were",
			"conditions of writes hold or change nothing", "one of many writers creates an object", "compare and swap loses no update",
			"readers beside writers read one whole version", "a put whose context ends is whole or not at all",
		},
	})
}
