package filestore

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// Put implements muxcore.Store.
func (s *Store) Put(ctx context.Context, key string, body io.Reader, size int64, opts muxcore.PutOptions) (muxcore.PutResult, error) {
	if err := checkCall(ctx, muxcore.OpPut, key); err != nil {
		return muxcore.PutResult{}, err
	}
	d, err := s.acquireToWrite()
	if err != nil {
		return muxcore.PutResult{}, fault(muxcore.OpPut, key, err)
	}
	defer s.release(d)
	res, err := s.put(ctx, d, key, muxcore.CheckBody(body, size, opts.Digests), &opts)
	if err != nil {
		return muxcore.PutResult{}, fault(muxcore.OpPut, key, err)
	}
	return res, nil
}

func (s *Store) put(ctx context.Context, d *rootDir, key string, body *muxcore.CheckedBody, opts *muxcore.PutOptions) (muxcore.PutResult, error) {
	// What cannot be committed is refused before the body is read. It is decided for good with the commit.
	if _, _, err := d.checkWrite(key, &opts.Conditions); err != nil {
		return muxcore.PutResult{}, err
	}
	t, err := s.newTemp(d, key)
	if err != nil {
		return muxcore.PutResult{}, err
	}
	defer t.discard()
	if err := s.fill(ctx, t, body); err != nil {
		return muxcore.PutResult{}, err
	}
	info, err := t.finish(key, opts, body.Digests())
	if err != nil {
		return muxcore.PutResult{}, err
	}
	if err := ctx.Err(); err != nil {
		return muxcore.PutResult{}, err
	}
	existed, err := s.commit(t, key, &opts.Conditions)
	if err == nil {
		err = d.sync(append(t.made, path.Dir(key))...)
	}
	return muxcore.PutResult{Info: info, Existed: existed}, err
}

// writeOutSize is how much of a body is written before the system is told to bring it to the disk.
const writeOutSize = 8 << 20

// fill writes the body to the temporary file.
func (s *Store) fill(ctx context.Context, t *temp, body *muxcore.CheckedBody) error {
	buffer := s.buffer()
	defer s.buffers.Put(buffer)
	var written, out int64
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := body.Read(*buffer)
		if n > 0 {
			if _, werr := t.f.Write((*buffer)[:n]); werr != nil {
				return werr
			}
		}
		if written += int64(n); written-out >= writeOutSize && !t.d.noSync {
			writeOut(t.f, out, written-out)
			out = written
		}
		if errors.Is(err, io.EOF) && body.Complete() {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// finish gives the written file its mode, time and metadata, and brings it to the disk.
func (t *temp) finish(key string, opts *muxcore.PutOptions, found muxcore.Digests) (muxcore.Info, error) {
	info := muxcore.Info{Key: key, ETag: opts.ETag, ETagStored: opts.ETag != "", Digests: opts.Digests.Or(found), Attributes: opts.Attributes}
	if info.ETag == "" {
		info.ETag = newETag()
	}
	err := t.f.Chmod(t.mode)
	if err == nil && !opts.ModTime.IsZero() {
		err = t.d.Chtimes(t.name, opts.ModTime, opts.ModTime)
	}
	if err != nil {
		return info, err
	}
	fi, err := t.f.Stat()
	if err != nil {
		return info, err
	}
	info.Size = fi.Size()
	if info.ModTime = opts.ModTime.Round(0); opts.ModTime.IsZero() {
		info.ModTime = fi.ModTime()
	}
	t.is = fingerprintOf(t.f, fi)
	if err := t.d.storeMeta(t, key, formatMeta(t.is, &info)); err != nil {
		return info, err
	}
	if info.ContentType == "" {
		info.ContentType = typeOf(key)
	}
	if t.d.noSync {
		return info, nil
	}
	return info, t.f.Sync()
}

// newETag makes a strong identity. Time and size would not do: two uploads can share both.
func newETag() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return `"` + base64.RawURLEncoding.EncodeToString(b[:]) + `"`
}

// checkWrite decides the conditions of a write over what is there now, and whether an object can be there at all.
func (d *rootDir) checkWrite(key string, cond *muxcore.Conditions) (existed, side bool, err error) {
	if !isPrivate(key) && d.leadsToPrivate(folderOf(key)) {
		return false, false, conflict(key, errNotRegular)
	}
	fi, err := d.Lstat(key)
	if err == nil && fi.IsDir() {
		if !d.removeEmpty(key) {
			return false, false, conflict(key, errFolder)
		}
		err = fs.ErrNotExist
	}
	info := &muxcore.Info{}
	if err == nil {
		var f *os.File
		if f, _, side, err = d.open(key, info); err == nil {
			_ = f.Close()
			return true, side, cond.CheckWrite(key, info)
		}
	}
	if errors.Is(err, fs.ErrNotExist) { // also a link that leads nowhere
		return false, false, cond.CheckWrite(key, nil)
	}
	return false, false, d.writeFault(key, err)
}

// writeFault says what it means that a write cannot go where it wants to.
func (d *rootDir) writeFault(key string, err error) error {
	switch {
	case isTooLong(err):
		return &muxcore.Error{Code: muxcore.CodeInvalidKey, Key: key, Err: err}
	case isInTheWay(err), isNoFile(err), errors.Is(err, errNotRegular), d.escapes != nil && errors.Is(err, d.escapes):
		return conflict(key, err)
	}
	return err
}

var errFolder = errors.New("there are keys below it")

// removeEmpty removes an empty folder, which is no object and holds none.
func (d *rootDir) removeEmpty(dir string) bool {
	err := d.Remove(dir)
	return err == nil || errors.Is(err, fs.ErrNotExist)
}

// commit makes t the object at key.
func (s *Store) commit(t *temp, key string, cond *muxcore.Conditions) (existed bool, err error) {
	defer s.lock(key).Unlock()
	if !cond.Empty() {
		unlock, err := t.d.lockOthers(key)
		if err != nil {
			return false, err
		}
		defer unlock()
	}
	existed, side, err := t.d.checkWrite(key, cond)
	if err != nil {
		return false, err
	}
	if err := s.current(t.d); err != nil {
		return false, err
	}
	old := ""
	if side {
		old = t.d.sideOf(key)
	}
	if err := t.rename(key, !existed && cond.IfNoneMatch == "*"); err != nil {
		return false, err
	}
	if fi, err := t.f.Stat(); err == nil {
		t.d.doubts.place(t.is.inode, placing{written: t.is.ctime, ctime: changeTime(fi)})
	}
	if old != "" && old != t.side {
		_ = t.d.Remove(old)
	}
	return existed, nil
}

// sideOf names the side file of what is at key now.
func (d *rootDir) sideOf(key string) string {
	f, err := d.Open(key)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	fi, err := f.Stat()
	if err != nil {
		return ""
	}
	return sideName(key, inode(f, fi))
}

// sync makes the names in these directories last.
func (d *rootDir) sync(dirs ...string) error {
	if d.noSync {
		return nil
	}
	for _, dir := range dirs {
		f, err := d.Open(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted since, with all that was in it
		}
		if err != nil {
			return err
		}
		err = syncDir(f)
		_ = f.Close()
		if err != nil {
			return err
		}
	}
	return nil
}
