//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package filestore

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// openFlags keep opening a FIFO from waiting for a writer.
const openFlags = syscall.O_NONBLOCK

// forbiddenChars are those that no name can have.
const forbiddenChars = ""

// inode tells files of one directory apart, also after one has taken the name of the other.
func inode(_ *os.File, fi fs.FileInfo) uint64 {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Ino) //nolint:unconvert // not uint64 on every system
	}
	return 0
}

// sameDevice tells whether two files are in one file system.
func sameDevice(a, b fs.FileInfo) bool {
	x, ok := a.Sys().(*syscall.Stat_t)
	y, too := b.Sys().(*syscall.Stat_t)
	return ok && too && x.Dev == y.Dev
}

// links is how many names a file has.
func links(fi fs.FileInfo) uint64 {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Nlink) //nolint:unconvert // not uint64 on every system
	}
	return 1
}

// isNoFile tells whether opening failed because of what stands at the path, or on the way to it.
func isNoFile(err error) bool {
	return isAny(err, unix.ENOTDIR, unix.ELOOP, unix.ENXIO, unix.ENODEV, unix.ENAMETOOLONG, unix.EOPNOTSUPP)
}

// isInTheWay tells whether a write failed because an object or keys are where it wanted to go.
func isInTheWay(err error) bool {
	return isAny(err, unix.ENOTDIR, unix.EISDIR, unix.ENOTEMPTY, unix.EEXIST, unix.ELOOP)
}

// isTooLong tells whether the file system cannot hold a name.
func isTooLong(err error) bool { return isAny(err, unix.ENAMETOOLONG, unix.EILSEQ) }

// hasNoAttributes tells whether a file system has no extended attributes, or none for us.
func hasNoAttributes(err error) bool {
	return isAny(err, unix.ENOTSUP, unix.EOPNOTSUPP, unix.ENOSYS, unix.EPERM, unix.EACCES)
}

// hasNoRoom tells whether an extended attribute is too large.
func hasNoRoom(err error) bool {
	return isAny(err, unix.E2BIG, unix.ENOSPC, unix.ERANGE, unix.EDQUOT, unix.EINVAL)
}

// cannotLink tells whether there are no hard links here.
func cannotLink(err error) bool {
	return isAny(err, unix.ENOTSUP, unix.EOPNOTSUPP, unix.ENOSYS, unix.EPERM, unix.EMLINK, unix.EXDEV)
}

func isAny(err error, errnos ...error) bool {
	for _, errno := range errnos {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

// lockFile takes the lock on a file that its closing gives back, or that of its process dying. held is false when
// somebody else has it, err when there are no locks here.
func lockFile(f *os.File, wait bool) (held bool, err error) {
	how := unix.LOCK_EX
	if !wait {
		how |= unix.LOCK_NB
	}
	for {
		err := unix.Flock(int(f.Fd()), how)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EWOULDBLOCK):
			return false, nil
		default:
			return false, err
		}
	}
}

// lockAcross keeps other processes from locking the same file until it is closed.
func lockAcross(f *os.File) error {
	_, err := lockFile(f, true)
	return err
}

// syncDir makes the names in a directory last.
func syncDir(f *os.File) error {
	if err := f.Sync(); err != nil && !isAny(err, unix.EINVAL, unix.ENOTSUP, unix.EROFS) {
		return err
	}
	return nil
}

// direct opens the same directory once more, as one that was not opened in an os.Root. Those look at every entry with a
// call to the system when they are read, of which a list needs only the type, which is there already.
func direct(dir *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(dir.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), dir.Name()), nil
}
