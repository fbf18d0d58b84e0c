// Package storefs shows a store as a file system for reading: keys are files, what stands before a slash is a folder.
//
// A name is looked up when it is opened; from then on everything waits until it is needed. A body is opened at the first
// Read, from where the last Seek left off, so reading a part never reads the whole.
package storefs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// FS is a store as a file system. It is safe for concurrent use.
type FS struct {
	acquire func() (muxcore.Store, func(), error)
	failure func(error) error
}

// New makes a file system. acquire gives the store for one open file, and what to call when that is closed. failure turns
// the error of a store that could not say into the one that callers see; it must not be an *fs.PathError where these
// must not take it for a bad name. nil: as it is.
func New(acquire func() (muxcore.Store, func(), error), failure func(error) error) *FS {
	if failure == nil {
		failure = func(err error) error { return err }
	}
	return &FS{acquire, failure}
}

var (
	errIsFolder = errors.New("is a directory")
	errChanged  = errors.New("the object has changed since it was opened")
	errNoLength = errors.New("the store does not know the object's length, which a file must have")
)

// Open opens a file or a folder. A name that cannot be a key is fs.ErrInvalid, one that is not there fs.ErrNotExist. If an
// object and a folder have one name, the object is what is opened.
func (f *FS) Open(name string) (fs.File, error) {
	if !fs.ValidPath(name) || name != "." && muxcore.CheckKey(name) != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	store, release, err := f.acquire()
	if err != nil {
		return nil, f.failure(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	n := &node{fs: f, store: store, name: name, ctx: ctx, end: func() { cancel(); release() }}
	if err := n.look(); err != nil {
		n.end()
		return nil, err
	}
	if n.info.dir {
		return &folder{node: n}, nil
	}
	return &file{node: n}, nil
}

// node is what files and folders have in common.
type node struct {
	fs    *FS
	store muxcore.Store
	name  string
	info  info
	ctx   context.Context //nolint:containedctx // a file of package fs has no other way to be cancelled, which Close does
	end   func()
}

// look finds out what has the name.
func (n *node) look() error {
	if n.name != "." {
		found, err := n.store.Stat(n.ctx, n.name, muxcore.Conditions{})
		if err == nil {
			if found.Size < 0 {
				return n.failure("open", &muxcore.Error{Code: muxcore.CodeUnsupported, Key: n.name, Err: errNoLength})
			}
			n.info = info{name: path.Base(n.name), size: found.Size, time: found.ModTime, etag: found.ETag}
			return nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return n.lookBeyond(err)
		}
	}
	n.info = folderInfo(path.Base(n.name))
	return n.lookFolder()
}

// lookBeyond is for a name of which the store could not say that no object has it. What is known to lie below says that it is a folder:
// one backend that is away takes no folder from those that are well.
func (n *node) lookBeyond(unsaid error) error {
	for _, err := range n.store.List(n.ctx, muxcore.ListOptions{Prefix: n.prefix(), Limit: 1}) {
		if err == nil {
			n.info = folderInfo(path.Base(n.name))
			return nil
		}
	}
	return n.failure("open", unsaid)
}

// lookFolder tells whether there is anything in the folder. The root is always there, unless nobody can be asked.
func (n *node) lookFolder() error {
	var missing error
	opts := muxcore.ListOptions{Prefix: n.prefix(), Limit: 1, OnDegraded: func(_ string, err error) { missing = err }}
	for _, err := range n.store.List(n.ctx, opts) {
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, muxcore.ErrUnsupported):
			return n.failure("open", err)
		case n.name == ".":
			// Without lists, only a question about some key tells whether anybody is there.
			if _, err := n.store.Stat(n.ctx, "index.html", muxcore.Conditions{}); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return n.failure("open", err)
			}
			return nil
		default:
			return n.absent("open")
		}
	}
	switch {
	case n.name == ".":
		return nil
	case missing != nil && !errors.Is(missing, muxcore.ErrUnsupported):
		return n.failure("open", missing)
	}
	return n.absent("open")
}

// prefix is that of the keys in the folder.
func (n *node) prefix() string {
	if n.name == "." {
		return ""
	}
	return n.name + "/"
}

func (n *node) absent(op string) error {
	return &fs.PathError{Op: op, Path: n.name, Err: fs.ErrNotExist}
}

// failure is the error of a call to the store.
func (n *node) failure(op string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return n.absent(op)
	}
	return fmt.Errorf("%s %s: %w", op, n.name, n.fs.failure(err))
}

// Stat implements fs.File.
func (n *node) Stat() (fs.FileInfo, error) { return n.info, nil }

// info implements fs.FileInfo.
type info struct {
	name string
	size int64
	time time.Time
	etag string
	dir  bool
}

// folderInfo is what is known of a folder. Nobody keeps the time of its last change, so it has that of the look at it, in whole seconds:
// with none, or that of the newest file in it, a cache would take a list for fresh from which a file is gone.
func folderInfo(name string) info {
	return info{name: name, dir: true, time: time.Now().UTC().Truncate(time.Second)}
}

// Name implements fs.FileInfo.
func (i info) Name() string { return i.name }

// Size implements fs.FileInfo.
func (i info) Size() int64 { return i.size }

// ModTime implements fs.FileInfo.
func (i info) ModTime() time.Time { return i.time }

// IsDir implements fs.FileInfo.
func (i info) IsDir() bool { return i.dir }

// Sys implements fs.FileInfo.
func (i info) Sys() any { return nil }

// Mode implements fs.FileInfo: nothing can be written.
func (i info) Mode() fs.FileMode {
	if i.dir {
		return fs.ModeDir | 0o555
	}
	return 0o444
}

// same tells whether what was opened is what was looked at: by its entity tag, else by its time, besides its length. Where nobody tells
// either, its length has to do.
func (i info) same(o *muxcore.Info) bool {
	switch {
	case o.Size != i.size:
		return false
	case i.etag == o.ETag && (i.etag != "" || i.time.IsZero() || o.ModTime.IsZero()):
		return true
	}
	return !i.time.IsZero() && i.time.Equal(o.ModTime) && !strings.HasPrefix(i.etag, "W/")
}
