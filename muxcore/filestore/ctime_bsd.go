//go:build darwin || freebsd || netbsd

package filestore

import (
	"io/fs"
	"syscall"
)

// changeTime is when anything of a file was last changed, in nanoseconds.
func changeTime(fi fs.FileInfo) int64 {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return st.Ctimespec.Nano()
	}
	return 0
}
