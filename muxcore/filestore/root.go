package filestore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

var (
	errRootChanged = errors.New("the root's path leads to another directory by now")
	errNoDirectory = errors.New("not a directory")
	errClosed      = errors.New("the store is closed")
)

// acquire gives the root directory to use for one call, to be given back by release. The root is opened at its first
// use, and again when its path leads elsewhere, at which it looks at most once a second.
func (s *Store) acquire() (*rootDir, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, rootError(errClosed)
	}
	if now := s.now(); !s.trusted(now) {
		if err := s.check(); err != nil {
			return nil, err
		}
		s.checked = now
	}
	s.dir.refs++
	return s.dir, nil
}

// trusted tells whether the root's path need not be looked at. It must be called with s.mu held.
func (s *Store) trusted(now time.Time) bool {
	return s.dir != nil && now.Sub(s.checked) < recheckEvery && !now.Before(s.checked)
}

// acquireToWrite is acquire for a call that changes something: it looks where the root's path leads in any case.
func (s *Store) acquireToWrite() (*rootDir, error) {
	for retried := false; ; retried = true {
		d, err := s.acquire()
		if err != nil {
			return nil, err
		}
		if err = s.current(d); err == nil {
			s.startSweep(d)
			return d, nil
		}
		s.release(d)
		if retried {
			return nil, err
		}
	}
}

func (s *Store) release(d *rootDir) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d.refs--
	if d.old && d.refs == 0 {
		_ = d.Close()
	}
}

// check makes s.dir the directory to which the path leads now. It must be called with s.mu held.
func (s *Store) check() error {
	info, err := os.Stat(s.path)
	if errors.Is(err, fs.ErrNotExist) && s.create && !s.seen {
		if info, err = s.makeRoot(); err != nil {
			s.drop()
			return rootError(err)
		}
	}
	if err == nil && !info.IsDir() {
		err = &fs.PathError{Op: "open", Path: s.path, Err: errNoDirectory}
	}
	if err != nil {
		s.drop()
		return rootError(err)
	}
	s.seen = true // should it vanish, it is not made again: a lost mount must not become an empty store
	if s.dir != nil && os.SameFile(s.dir.info, info) {
		return nil
	}
	s.drop()
	d, err := openRoot(s.path)
	if err != nil {
		return rootError(err)
	}
	d.quirks, d.store = s.quirks, s
	d.local = d.local || isLocal(s.path)
	s.dir = d
	return nil
}

func openRoot(path string) (*rootDir, error) {
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	info, err := root.Stat(".")
	if err != nil {
		_ = root.Close()
		return nil, err
	}
	d := &rootDir{Root: root, info: info}
	_, err = root.Lstat("..")
	if perr, ok := errors.AsType[*fs.PathError](err); ok {
		d.escapes = perr.Err
	}
	return d, nil
}

// drop lets go of the root directory, when the last call that uses it has ended. It must be called with s.mu held.
func (s *Store) drop() {
	if s.dir == nil {
		return
	}
	s.dir.old = true
	if s.dir.refs == 0 {
		_ = s.dir.Close()
	}
	s.dir = nil
}

// makeRoot makes the last segment of the root's path.
func (s *Store) makeRoot() (fs.FileInfo, error) {
	err := os.Mkdir(s.path, dirMode(s.mode))
	if err == nil {
		err = os.Chmod(s.path, dirMode(s.mode)) // whatever the umask
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return os.Stat(s.path)
}

// dirMode gives the right to search to whoever may read.
func dirMode(file fs.FileMode) fs.FileMode { return file | file&0o444>>2 }

// current tells whether the root's path still leads to d: before it is believed that something is not there, and
// before something is committed to a directory that nobody may look into any more.
func (s *Store) current(d *rootDir) error {
	info, err := os.Stat(s.path)
	if err == nil && os.SameFile(d.info, info) {
		return nil
	}
	if err == nil {
		err = errRootChanged
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dir == d {
		s.drop()
	}
	return rootError(err)
}

// rootError is never an absence: the cause is kept as text, so that fs.ErrNotExist does not show through.
func rootError(err error) error {
	return &muxcore.Error{Code: muxcore.CodeUnavailable, Err: fmt.Errorf("root: %w", opaque(err))}
}
