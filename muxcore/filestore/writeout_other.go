//go:build !linux

package filestore

import "os"

// writeOut is for Linux only.
func writeOut(*os.File, int64, int64) {}
