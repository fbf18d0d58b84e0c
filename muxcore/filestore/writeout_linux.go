package filestore

import (
	"os"

	"golang.org/x/sys/unix"
)

// writeOut has the system begin to bring n bytes from off on to the disk, so that the fsync at the end finds little to wait for. A file
// system that cannot do so does it then.
func writeOut(f *os.File, off, n int64) {
	_ = unix.SyncFileRange(int(f.Fd()), off, n, unix.SYNC_FILE_RANGE_WRITE)
}
