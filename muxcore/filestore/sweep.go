package filestore

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"
)

// staleAfter is the age at which a reserved file is taken for a left-over where no lock can tell.
const staleAfter = 24 * time.Hour

// startSweep removes what dead processes left below d, once, in the background: only who writes leaves anything, and
// only who may write can remove it.
func (s *Store) startSweep(d *rootDir) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.swept || s.closed {
		return
	}
	d.swept = true
	d.refs++
	s.sweeps.Go(func() {
		defer s.release(d)
		s.sweep(d, ".")
	})
}

// sweep goes through dir and all below it. Errors end only the part that they concern: the next process tries again.
func (s *Store) sweep(d *rootDir, dir string) {
	f, err := d.Open(dir)
	if err != nil {
		return
	}
	defer func() { _ = f.Close() }()
	prefix := ""
	if dir != "." {
		prefix = dir + "/"
	}
	for {
		select {
		case <-s.closing:
			return
		default:
		}
		entries, err := f.ReadDir(readChunk)
		for _, e := range entries {
			switch name := e.Name(); {
			case e.IsDir():
				s.sweep(d, prefix+name)
			case strings.HasPrefix(name, tempPrefix):
				s.removeStaleTemp(d, prefix+name)
			case strings.HasPrefix(name, sidePrefix):
				s.removeStaleSide(d, prefix, name)
			}
		}
		if err != nil || len(entries) == 0 {
			return
		}
	}
}

// removeStaleTemp removes a temporary file that no living process holds.
func (s *Store) removeStaleTemp(d *rootDir, name string) {
	f, err := d.OpenFile(name, os.O_RDWR|openFlags, 0)
	if err != nil {
		return
	}
	defer func() { _ = f.Close() }()
	held, err := lockFile(f, false)
	if err == nil && !held {
		return
	}
	fi, serr := f.Stat()
	if serr != nil || err != nil && s.now().Sub(fi.ModTime()) < staleAfter {
		return
	}
	_ = d.Remove(name) // with the lock held, so that nobody can claim it
}

// removeStaleSide removes a side file that belongs to no file of its folder. A young one may lie ready for an upload.
func (s *Store) removeStaleSide(d *rootDir, prefix, name string) {
	fi, err := d.Lstat(prefix + name)
	if err != nil || s.now().Sub(fi.ModTime()) < staleAfter {
		return
	}
	f, err := d.Open("./" + prefix)
	if err != nil {
		return
	}
	defer func() { _ = f.Close() }()
	for {
		entries, err := f.ReadDir(readChunk)
		for _, e := range entries {
			if strings.HasPrefix(name, sidePrefix+nameHash(e.Name())+"-") && d.hasSide(prefix+e.Name(), prefix+name) {
				return
			}
		}
		if errors.Is(err, io.EOF) {
			_ = d.Remove(prefix + name)
			return
		}
		if err != nil {
			return
		}
	}
}

func (d *rootDir) hasSide(key, side string) bool {
	fi, err := d.Lstat(key)
	return err != nil && !errors.Is(err, fs.ErrNotExist) || err == nil && fi.Mode().IsRegular() && d.sideOf(key) == side
}
