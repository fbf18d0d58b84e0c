package filestore

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

const (
	tempPrefix = muxcore.ReservedPrefix + "-tmp-"
	lockName   = muxcore.ReservedPrefix + "-lock"

	// maxTries is how often a folder is made again that others remove as empty.
	maxTries = 100
)

var (
	errTaken    = errors.New("an object is there by now")
	errUnstable = errors.New("what is made here is removed at once, again and again")
)

// temp is a file that is to become an object. Its lock is held as long as it is open, so that it is known to be in use.
type temp struct {
	d    *rootDir
	f    *os.File
	dir  string // the folder, with a slash at its end, "" for the root
	name string
	mode fs.FileMode
	made []string // folders in which a folder was made

	is   fingerprint // as its metadata says
	side string      // its side file, if it has one
	done bool        // it is the object by now
}

// newTemp makes a temporary file beside key, and the folders on the way.
func (s *Store) newTemp(d *rootDir, key string) (*temp, error) {
	t := &temp{d: d, mode: s.mode}
	t.dir, _ = path.Split(key)
	folder := dirMode(s.mode)
	if isPrivate(key) {
		t.mode, folder = 0o600, 0o700
	}
	var err error
	for range maxTries {
		if t.f, t.name, err = d.createTemp(t.dir); err == nil {
			return t, nil
		}
		if errors.Is(err, fs.ErrNotExist) {
			err = t.makeFolders(folder)
		}
		if err != nil {
			break
		}
	}
	if err == nil {
		err = errUnstable
	}
	return nil, d.writeFault(key, err)
}

// createTemp makes a temporary file in dir and locks it.
func (d *rootDir) createTemp(dir string) (f *os.File, name string, err error) {
	for range maxTries {
		name = dir + tempPrefix + strings.ToLower(rand.Text())
		f, err = d.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return nil, "", err
		}
		if claim(f) {
			return f, name, nil
		}
		_ = f.Close() // a sweep took it for a stale one in the moment before
	}
	return nil, "", errUnstable
}

// claim locks a new file, and tells whether it is still there then. Where there are no locks, sweeps go by age, and it is.
func claim(f *os.File) bool {
	if _, err := lockFile(f, true); err != nil {
		return true
	}
	fi, err := f.Stat()
	return err != nil || links(fi) > 0 // an error will show again, at the next use
}

// makeFolders makes the folders above the file.
func (t *temp) makeFolders(mode fs.FileMode) error {
	dir := strings.TrimSuffix(t.dir, "/")
	for end := 0; end < len(dir); {
		if next := strings.IndexByte(dir[end+1:], '/'); next >= 0 {
			end += 1 + next
		} else {
			end = len(dir)
		}
		err := t.d.Mkdir(dir[:end], mode)
		if err == nil {
			t.made = append(t.made, path.Dir(dir[:end]))
			err = t.d.Chmod(dir[:end], mode) // whatever the umask
		}
		switch {
		case errors.Is(err, fs.ErrExist):
		case errors.Is(err, fs.ErrNotExist):
			return nil // removed meanwhile by a delete: the caller tries again
		case err != nil:
			return err
		}
	}
	return nil
}

// rename gives the file its key. fresh demands that nothing takes that name before, not even by another process.
func (t *temp) rename(key string, fresh bool) error {
	if fresh {
		err := t.d.Link(t.name, key)
		switch {
		case err == nil:
			t.done = true
			_ = t.d.Remove(t.name)
			return nil
		case errors.Is(err, fs.ErrExist):
			return &muxcore.Error{Code: muxcore.CodePreconditionFailed, Key: key, Err: errTaken}
		case !cannotLink(err):
			return err
		}
	}
	if err := t.d.Rename(t.name, key); err != nil {
		return t.d.writeFault(key, err)
	}
	t.done = true
	return nil
}

// discard closes the file, and removes it unless it has become the object.
func (t *temp) discard() {
	if t.done {
		_ = t.f.Close()
		return
	}
	_ = t.d.Remove(t.name)
	_ = t.f.Close()
	if t.side != "" {
		_ = t.d.Remove(t.side)
	}
	if len(t.made) > 0 {
		t.d.prune(t.dir, t.made[0])
	}
}

// prune removes the folders that are empty, from dir up to but not including top, and names the lowest one that stays.
func (d *rootDir) prune(dir, top string) (left string) {
	for dir = strings.TrimSuffix(dir, "/"); dir != "" && dir != top; dir = strings.TrimSuffix(dir, "/") {
		fi, err := d.Lstat(dir)
		if errors.Is(err, fs.ErrNotExist) {
			dir, _ = path.Split(dir)
			continue
		}
		if err != nil || !fi.IsDir() || d.Remove(dir) != nil {
			return dir
		}
		dir, _ = path.Split(dir)
	}
	return top
}

// lockOthers keeps conditional writes of other processes away until the function that it gives is called. Where there
// are no locks, it does nothing; but Caddy's locks cannot do without.
func (d *rootDir) lockOthers(key string) (unlock func(), err error) {
	f, err := d.OpenFile(lockName, os.O_RDWR|os.O_CREATE, 0o600)
	if err == nil {
		err = lockAcross(f)
	}
	if err != nil && strings.HasPrefix(key, muxcore.LockPrefix) {
		if f != nil {
			_ = f.Close()
		}
		return nil, &muxcore.Error{Code: muxcore.CodeUnsupported, Key: key, Err: fmt.Errorf("locking the file %s: %w", lockName, err)}
	}
	return func() {
		if f != nil {
			_ = f.Close()
		}
	}, nil
}
