package storefs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"path"
	"strings"
	"sync"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// file is an object that is open. It is for one goroutine at a time, but Close may be called from any.
type file struct {
	*node
	offset int64 // of the next byte to read
	at     int64 // of the next byte of body

	mu     sync.Mutex
	body   io.ReadCloser // nil before the first Read, and after a Seek elsewhere
	closed bool
}

// Read implements fs.File.
func (f *file) Read(p []byte) (int, error) {
	body, err := f.open()
	if err != nil || body == nil {
		return 0, err
	}
	if f.offset >= f.info.size {
		return 0, io.EOF
	}
	if len(p) == 0 {
		return 0, nil
	}
	read, err := body.Read(p)
	f.offset += int64(read)
	f.at = f.offset
	switch {
	case err == nil:
	case errors.Is(err, io.EOF) && f.offset < f.info.size:
		err = f.failure("read", io.ErrUnexpectedEOF)
	case !errors.Is(err, io.EOF):
		err = f.failure("read", err)
	}
	return read, err
}

// open gives the body, at the offset at which reading goes on.
func (f *file) open() (io.Reader, error) {
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return nil, fs.ErrClosed
	}
	old := f.body
	if old != nil && f.at == f.offset {
		f.mu.Unlock()
		return old, nil
	}
	f.body = nil
	f.mu.Unlock()
	if old != nil {
		_ = old.Close()
	}
	if f.offset >= f.info.size {
		return nil, io.EOF
	}
	obj, err := f.store.Get(f.ctx, f.name, muxcore.GetOptions{Range: muxcore.Range{Offset: f.offset}})
	if err != nil {
		return nil, f.failure("read", err)
	}
	if obj.Offset != f.offset || !f.info.same(&obj.Info) {
		_ = obj.Body.Close()
		return nil, fmt.Errorf("read %s: %w", f.name, errChanged)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		_ = obj.Body.Close()
		return nil, fs.ErrClosed
	}
	f.body, f.at = obj.Body, f.offset
	return f.body, nil
}

// Seek implements io.Seeker. It asks nobody.
func (f *file) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekStart:
	case io.SeekCurrent:
		offset += f.offset
	case io.SeekEnd:
		offset += f.info.size
	default:
		return 0, &fs.PathError{Op: "seek", Path: f.name, Err: fs.ErrInvalid}
	}
	if offset < 0 {
		return 0, &fs.PathError{Op: "seek", Path: f.name, Err: fs.ErrInvalid}
	}
	f.offset = offset
	return offset, nil
}

// Close implements fs.File. It ends a Read that is under way.
func (f *file) Close() error {
	f.mu.Lock()
	body, closed := f.body, f.closed
	f.body, f.closed = nil, true
	f.mu.Unlock()
	if closed {
		return fs.ErrClosed
	}
	if body != nil {
		_ = body.Close()
	}
	f.end()
	return nil
}

// folder is a folder that is open. It can be read and sought like a file, which fails, since callers such as
// file_server take what was a file a moment ago for one.
type folder struct {
	*node
	next func() (muxcore.Entry, error, bool) // nil before the first ReadDir
	stop func()

	once sync.Once
}

// Read implements fs.File.
func (d *folder) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: d.name, Err: errIsFolder}
}

// Seek implements io.Seeker.
func (d *folder) Seek(int64, int) (int64, error) {
	return 0, &fs.PathError{Op: "seek", Path: d.name, Err: errIsFolder}
}

// ReadDir implements fs.ReadDirFile. Entries come in the order of keys, as the store lists them.
func (d *folder) ReadDir(n int) ([]fs.DirEntry, error) {
	if d.next == nil {
		d.next, d.stop = iter.Pull2(d.store.List(d.ctx, muxcore.ListOptions{Prefix: d.prefix(), Delimiter: "/"}))
	}
	entries := []fs.DirEntry{}
	seen := make(map[string]bool)
	for n <= 0 || len(entries) < n {
		e, err, ok := d.next()
		if !ok {
			break
		}
		if err != nil {
			return entries, d.failure("readdir", err)
		}
		name := strings.TrimSuffix(strings.TrimPrefix(e.Key, d.prefix()), "/")
		if !fs.ValidPath(name) || strings.Contains(name, "/") || seen[name] || e.IsPrefix && d.shadowed(name) {
			continue
		}
		seen[name] = true
		entries = append(entries, &entry{node: d.node, found: e, name: name})
	}
	if n > 0 && len(entries) == 0 {
		return nil, io.EOF
	}
	return entries, nil
}

// shadowed tells whether an object has the name of a folder.
func (d *folder) shadowed(name string) bool {
	_, err := d.store.Stat(d.ctx, d.prefix()+name, muxcore.Conditions{})
	return err == nil
}

// Close implements fs.File.
func (d *folder) Close() error {
	err := fs.ErrClosed
	d.once.Do(func() {
		if d.stop != nil {
			d.stop()
		}
		d.end()
		err = nil
	})
	return err
}

// entry is one of a folder. What the list did not tell of it is asked for when somebody wants to know.
type entry struct {
	*node // the folder
	found muxcore.Entry
	name  string
}

// Name implements fs.DirEntry.
func (e *entry) Name() string { return e.name }

// IsDir implements fs.DirEntry.
func (e *entry) IsDir() bool { return e.found.IsPrefix }

// Type implements fs.DirEntry.
func (e *entry) Type() fs.FileMode { return info{dir: e.found.IsPrefix}.Mode().Type() }

// String is as fs.FormatDirEntry has it.
func (e *entry) String() string { return fs.FormatDirEntry(e) }

// Info implements fs.DirEntry.
func (e *entry) Info() (fs.FileInfo, error) {
	if e.found.IsPrefix {
		return folderInfo(e.name), nil
	}
	f, err := e.fs.Open(path.Join(e.node.name, e.name))
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return f.Stat()
}
