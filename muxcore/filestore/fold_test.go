package filestore

import (
	"os"
	"path/filepath"
	"testing"
)

// foldsNames tells whether this file system takes names that differ in case for one.
func foldsNames(tb testing.TB) bool {
	tb.Helper()
	dir := tb.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "case"), nil, 0o600); err != nil {
		tb.Fatal(err)
	}
	_, err := os.Stat(filepath.Join(dir, "CASE"))
	return err == nil
}
