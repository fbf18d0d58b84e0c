package filestore

import (
	"os"
	"runtime/debug"
	"testing"
	"time"

	"github.com/pkg/xattr"
	"go.uber.org/goleak"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/storetest"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // most of what the suite costs beside the disk is collecting short-lived bodies
	goleak.VerifyTestMain(m)
}

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

// inMemory is a directory in memory that keeps attributes, where the system has such; else an ordinary one. The suite
// writes thousands of objects, and each waits for its disk.
func inMemory(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "filestore-") //nolint:usetesting // tb.TempDir is on the disk
	if err != nil {
		return tb.TempDir()
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	if xattr.Set(dir, attribute, []byte("x")) != nil {
		return tb.TempDir()
	}
	return dir
}

func TestConformance(t *testing.T) {
	storetest.Run(t, storetest.Harness{
		New:        func(tb testing.TB) muxcore.Store { return newStore(tb, Settings{Root: inMemory(tb)}) },
		FoldsNames: foldsNames(t),
		Timeout:    2 * time.Minute,
	})
}

// What may depend on the kind of file system is checked on the one that tests get, too.
func TestConformanceOnADisk(t *testing.T) {
	skip := make(map[string]string)
	for _, name := range storetest.Checks() {
		skip[name] = "checked in memory"
	}
	for _, name := range []string{
		"keys that look alike are different objects", "objects of every size are read whole", "an overwrite replaces the whole object",
		"attributes come back as they were", "conditions of writes hold or change nothing", "one of many writers creates an object",
		"pages give each entry once",
	} {
		delete(skip, name)
	}
	storetest.Run(t, storetest.Harness{
		New:        func(tb testing.TB) muxcore.Store { return newStore(tb, Settings{}) },
		FoldsNames: foldsNames(t),
		Skip:       skip,
		Timeout:    2 * time.Minute,
	})
}

func TestConformanceWithSideFiles(t *testing.T) {
	storetest.Run(t, storetest.Harness{
		New: func(tb testing.TB) muxcore.Store {
			s := newStore(tb, Settings{Root: inMemory(tb)})
			s.quirks = quirks{noAttributes: true, noSync: true}
			return s
		},
		FoldsNames: foldsNames(t),
		Quick: []string{ // the side files come and go with their objects, and are none
			"keys that look alike are different objects", "a key below an object is held or is a conflict", "the internal prefix holds objects",
			"bodies of known and unknown length are kept", "a body that fails changes nothing", "an overwrite replaces the whole object",
			"a deleted object is gone", "attributes come back as they were", "a stored identity comes back as it was",
			"an overwrite takes the old attributes away", "a stored identity decides conditions", "a store's own ETag is not a stored one",
			"conditions of writes hold or change nothing", "one of many writers creates an object", "compare and swap loses no update",
			"readers beside writers read one whole version", "an open body outlives an overwrite and a delete",
			"neighbours come and go without harm", "pages give each entry once", "what an entry says is true", "a long list is complete",
		},
	})
}
