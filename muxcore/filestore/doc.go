// Package filestore keeps objects as files below a root directory, each at the path that is its key.
//
// # Files of others
//
// Whatever regular file lies below the root is an object, whoever put it there: its type is that of its extension, its
// ETag is made of time and size as Caddy's file server makes it. Symbolic links are followed as long as they stay below
// the root; lists show linked files, but do not enter linked folders. FIFOs, devices and sockets are no objects, nor
// are files whose name no key can have. A file that is changed in place while it is read can yield bytes of both
// versions; replace files by renaming over them, as this store does.
//
// # Writing
//
// Put writes a temporary file beside the object, under a reserved name, and renames it when all of it is on disk; the
// folder is synced before Put returns. What a Put stores besides the bytes (identity, type, headers, digests) goes
// into one extended attribute, where the file system has none into a side file with a reserved name. Both carry a
// fingerprint of the file (size, modification time, inode): when somebody else has changed the file since, it no longer
// fits, and the file is taken as one of others. A side file is named after the inode, so that there is no moment at
// which one file has the metadata of another, also when the power fails.
//
// Where the file system tells when a file was last changed in any way (ctime), that raises a doubt from two minutes after the
// Put on, and the recorded digest ends it: a small file is read at once, a larger one in the background, during which it has
// an ETag of its own. Files whose bytes are the same, but not their owner, mode or links, so keep what was stored.
//
// Of a file that was written to in place, what a Put had recorded stays beside it, and is told as Info.Record: by its digest
// a repair finds out that the file was altered. One that another file has taken the place of has no such record.
//
// Folders are made as needed. Delete removes the folders that it has left empty, up to the root, as in an object store
// that has no folders; a folder that was empty before stays. An empty folder does not stand in the way of an object of
// its name.
//
// Temporary files of a process that died are removed in the background when a store first writes below the root: a
// living writer holds a lock on its own. Where there are no such locks (Windows, some network file systems), they are
// removed after a day.
//
// # Conditions
//
// Within a process, conditional writes are atomic with all other writes. Across processes that share the root they are
// atomic among each other (by a lock on the file .storage_mux-lock), and If-None-Match: * never replaces an object,
// whoever made it (by a hard link); but an unconditional write of another process may slip in between the decision and
// the commit of If-Match. Nobody writes Caddy's locks without a condition; where that file cannot be locked, there are none.
package filestore
