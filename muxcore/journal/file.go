package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// outgrowth is how large the file may become, at least, before what is out of date in it is dropped.
const outgrowth = 1 << 20

// file is the journal on disk. It is guarded by Journal.io.
type file struct {
	path string
	lock string

	held    *os.File // the lock
	f       *os.File // open for appending, while held
	lines   uint64
	size    int64
	compact int64       // size when it was last written anew
	seen    fs.FileInfo // when it was last read
	rewrite bool        // nothing may be appended: its end is not known to be well
	closed  bool

	sync func(*os.File) error // nil: (*os.File).Sync
}

// exists tells whether there is a journal.
func (f *file) exists() (bool, error) {
	if f.closed {
		return false, errClosed
	}
	_, err := os.Stat(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// create makes the directory, the lock and an empty journal, as far as they are not there.
func (f *file) create() error {
	if f.closed {
		return errClosed
	}
	if err := os.MkdirAll(filepath.Dir(f.path), 0o700); err != nil {
		return err
	}
	if err := f.own(); err != nil {
		return err
	}
	if there, err := f.exists(); there || err != nil {
		return err
	}
	return f.replace([]record{{Version: version}})
}

// own takes the lock.
func (f *file) own() error {
	if f.held != nil {
		return nil
	}
	held, err := lockFile(f.lock)
	if err != nil {
		return err
	}
	f.held = held
	return nil
}

// disown gives the lock back, and closes the file.
func (f *file) disown() {
	if f.f != nil {
		_ = f.f.Close()
		f.f = nil
	}
	if f.held != nil {
		_ = f.held.Close()
		f.held = nil
	}
}

// read reads all that is there.
func (f *file) read() (*content, error) {
	in, err := os.Open(f.path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = in.Close() }()
	info, err := in.Stat() // before it is read: what comes later is a change
	if err != nil {
		return nil, err
	}
	c, err := parse(in)
	if err != nil {
		return nil, err
	}
	f.size, f.seen = info.Size(), info
	return c, nil
}

// changed tells whether there is something else than what was read last.
func (f *file) changed() bool {
	now, err := os.Stat(f.path)
	return err != nil || f.seen == nil || !os.SameFile(now, f.seen) || now.Size() != f.seen.Size() || !now.ModTime().Equal(f.seen.ModTime())
}

// disturbed tells whether somebody has removed, replaced or cut what was written: then all of it is to be written anew, or
// what follows would be in a file that nobody reads again.
func (f *file) disturbed() bool {
	now, err := os.Stat(f.path)
	if err != nil || now.Size() != f.size {
		return true
	}
	if f.f == nil {
		return false
	}
	open, err := f.f.Stat()
	return err != nil || !os.SameFile(now, open)
}

// ownAgain makes the directory and the lock anew if they are gone.
func (f *file) ownAgain() error {
	if err := os.MkdirAll(filepath.Dir(f.path), 0o700); err != nil {
		return err
	}
	if f.held != nil {
		mine, err := f.held.Stat()
		there, thereErr := os.Stat(f.lock)
		if err == nil && thereErr == nil && os.SameFile(mine, there) {
			return nil
		}
		_ = f.held.Close()
		f.held = nil
	}
	return f.own()
}

// outgrown tells whether most of the file is out of date.
func (f *file) outgrown() bool { return f.size > outgrowth && f.size > 4*f.compact }

// append writes lines at the end. After an error nobody knows what is there: it is written anew next time.
func (f *file) append(records []record, sync bool) error {
	if f.f == nil {
		opened, err := os.OpenFile(f.path, os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			f.rewrite = true
			return err
		}
		f.f = opened
	}
	var buf []byte
	for i := range records {
		records[i].Number = f.lines + uint64(i) + 1
		buf = records[i].appendTo(buf)
	}
	n, err := f.f.Write(buf)
	if err == nil && sync {
		err = f.fsync(f.f)
	}
	f.size += int64(n)
	f.lines += uint64(len(records))
	f.rewrite = err != nil
	return err
}

// replace writes the file anew, whole or not at all.
func (f *file) replace(records []record) error {
	f.rewrite = true
	if f.f != nil {
		_ = f.f.Close()
		f.f = nil
	}
	if err := f.ownAgain(); err != nil {
		return err
	}
	temp := f.path + ".new"
	out, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	size, err := f.writeAll(out, records)
	if closeErr := out.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(temp, f.path)
	}
	if err == nil {
		err = f.syncDir()
	}
	if err != nil {
		return fmt.Errorf("writing it anew: %w", err)
	}
	f.lines, f.size, f.compact, f.rewrite = uint64(len(records)), size, size, false
	return nil
}

func (f *file) writeAll(out *os.File, records []record) (size int64, err error) {
	var buf []byte
	for i := range records {
		records[i].Number = uint64(i) + 1
		buf = records[i].appendTo(buf)
		if len(buf) < 64<<10 && i < len(records)-1 {
			continue
		}
		n, err := out.Write(buf)
		size += int64(n)
		if err != nil {
			return size, err
		}
		buf = buf[:0]
	}
	return size, f.fsync(out)
}

func (f *file) fsync(of *os.File) error {
	if f.sync != nil {
		return f.sync(of)
	}
	return of.Sync()
}

// syncDir makes the names in the directory durable, where a directory can be opened at all.
func (f *file) syncDir() error {
	dir, err := os.Open(filepath.Dir(f.path))
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	return ignoreNoDirSync(f.fsync(dir))
}

// keepDamaged keeps a copy of a damaged file for those who want to know.
func (f *file) keepDamaged() {
	kept := f.path + ".damaged"
	_ = os.Remove(kept)
	_ = os.Link(f.path, kept)
}
