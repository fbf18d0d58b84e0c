package filestore

import (
	"slices"

	"golang.org/x/sys/unix"
)

// localTypes are file systems of this machine, whose calls about what is in memory do not wait for anybody.
var localTypes = []int64{
	unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC, unix.TMPFS_MAGIC, unix.OVERLAYFS_SUPER_MAGIC,
	0x2fc12fc1, // ZFS
}

// isLocal tells whether a directory is in one of them.
func isLocal(path string) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && slices.Contains(localTypes, int64(st.Type)) //nolint:unconvert // not int64 on every system
}
