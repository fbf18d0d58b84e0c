package filestore

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/windows"
)

// openFlags has nothing to add: there are no FIFOs in the file system.
const openFlags = 0

// forbiddenChars are those that no name can have.
const forbiddenChars = `<>:"|?*`

var errNoLocks = errors.New("no advisory locks that end with their process")

// inode tells files of one directory apart, also after one has taken the name of the other.
func inode(f *os.File, _ fs.FileInfo) uint64 {
	var info syscall.ByHandleFileInformation
	if err := syscall.GetFileInformationByHandle(syscall.Handle(f.Fd()), &info); err != nil {
		return 0
	}
	return uint64(info.FileIndexHigh)<<32 | uint64(info.FileIndexLow)
}

// sameDevice is not known here.
func sameDevice(_, _ fs.FileInfo) bool { return false }

// links is how many names a file has.
func links(fs.FileInfo) uint64 { return 1 }

// isNoFile tells whether opening failed because of what stands at the path, or on the way to it.
func isNoFile(err error) bool {
	return isAny(err, windows.ERROR_PATH_NOT_FOUND, windows.ERROR_DIRECTORY, windows.ERROR_INVALID_NAME, windows.ERROR_BAD_PATHNAME,
		windows.ERROR_FILENAME_EXCED_RANGE, syscall.ENOTDIR, syscall.ELOOP, windows.ERROR_CANT_RESOLVE_FILENAME)
}

// isInTheWay tells whether a write failed because an object or keys are where it wanted to go.
func isInTheWay(err error) bool {
	return isAny(err, windows.ERROR_DIRECTORY, windows.ERROR_DIR_NOT_EMPTY, windows.ERROR_ALREADY_EXISTS, windows.ERROR_FILE_EXISTS,
		syscall.ENOTDIR, syscall.EISDIR)
}

// isTooLong tells whether the file system cannot hold a name.
func isTooLong(err error) bool {
	return isAny(err, windows.ERROR_FILENAME_EXCED_RANGE, windows.ERROR_INVALID_NAME)
}

// hasNoAttributes tells whether a file system has no extended attributes.
func hasNoAttributes(error) bool { return true }

// hasNoRoom tells whether an extended attribute is too large.
func hasNoRoom(error) bool { return true }

// cannotLink tells whether there are no hard links here.
func cannotLink(err error) bool {
	return isAny(err, windows.ERROR_NOT_SUPPORTED, windows.ERROR_INVALID_FUNCTION, windows.ERROR_TOO_MANY_LINKS, windows.ERROR_ACCESS_DENIED)
}

func isAny(err error, errnos ...error) bool {
	for _, errno := range errnos {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

// lockFile has no lock to offer: stale files are known by their age alone.
func lockFile(*os.File, bool) (held bool, err error) { return false, errNoLocks }

// lockAcross keeps other processes from locking the same file until it is closed. The lock is mandatory here, which does no
// harm to a file that nobody reads.
func lockAcross(f *os.File) error {
	return windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK, 0, 1, 0, new(windows.Overlapped))
}

// syncDir has nothing to do: directories cannot be synced, and their entries are journaled.
func syncDir(*os.File) error { return nil }

// direct has nothing to improve: reading a directory gives all that is known of its entries.
func direct(dir *os.File) (*os.File, error) { return dir, nil }
