package filestore

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"mime"
	"os"
	"path"
	"strconv"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

var errNotRegular = errors.New("not a regular file")

// Get implements muxcore.Store.
func (s *Store) Get(ctx context.Context, key string, opts muxcore.GetOptions) (*muxcore.Object, error) {
	open := &opened{}
	f, fi, err := s.find(ctx, muxcore.OpGet, key, &open.object.Info)
	if err != nil {
		return nil, err
	}
	open.object.Offset, open.object.Length, err = opts.Resolve(&open.object.Info)
	if err == nil && open.object.Offset > 0 {
		_, err = f.Seek(open.object.Offset, io.SeekStart)
	}
	if err != nil {
		_ = f.Close()
		return nil, fault(muxcore.OpGet, key, err)
	}
	open.body = body{store: s, key: key, f: f, is: stateOf(fi), start: open.object.Offset, length: open.object.Length}
	info := &open.object.Info
	if open.body.length == info.Size && info.Record == nil && s.cache.wants(place{s, key}, info.Size+int64(info.AttributeBytes())) {
		open.body.kept = &cached{place: place{s, key}, file: fi, info: *info}
	}
	open.object.Body = &open.body
	return &open.object, nil
}

// opened is an object with its body, so that they are allocated at once.
type opened struct {
	object muxcore.Object
	body   body
}

// Stat implements muxcore.Store.
func (s *Store) Stat(ctx context.Context, key string, cond muxcore.Conditions) (muxcore.Info, error) {
	var info muxcore.Info
	f, _, err := s.find(ctx, muxcore.OpStat, key, &info)
	if err != nil {
		return muxcore.Info{}, err
	}
	_ = f.Close()
	if err := cond.CheckRead(&info); err != nil {
		return muxcore.Info{}, fault(muxcore.OpStat, key, err)
	}
	return info, nil
}

// find opens the object and fills in info. That there is none is only said of a root that is still the root.
func (s *Store) find(ctx context.Context, op muxcore.Op, key string, info *muxcore.Info) (*os.File, fs.FileInfo, error) {
	if err := checkCall(ctx, op, key); err != nil {
		return nil, nil, err
	}
	for retried := false; ; retried = true {
		d, err := s.acquire()
		if err != nil {
			return nil, nil, fault(op, key, err)
		}
		f, fi, _, err := d.open(key, info)
		if err == nil {
			s.release(d)
			return f, fi, nil
		}
		if !d.noObject(err) && !errors.Is(err, errNotRegular) {
			s.release(d)
			return nil, nil, fault(op, key, err)
		}
		rootErr := s.current(d)
		s.release(d)
		if rootErr == nil {
			return nil, nil, absent(op, key, err)
		}
		if retried || !errors.Is(rootErr, errRootChanged) {
			return nil, nil, fault(op, key, rootErr)
		}
	}
}

// checkCall is what every call with a key begins with.
func checkCall(ctx context.Context, op muxcore.Op, key string) error {
	if err := checkKey(key); err != nil {
		return fault(op, key, err)
	}
	if err := ctx.Err(); err != nil {
		return fault(op, key, err)
	}
	return nil
}

// open opens the object at key and describes it: one open, one fstat, one fgetxattr. side tells whether its metadata
// lies in a side file.
func (d *rootDir) open(key string, info *muxcore.Info) (f *os.File, fi fs.FileInfo, side bool, err error) {
	f, err = d.OpenFile(key, os.O_RDONLY|openFlags, 0)
	if err != nil {
		return nil, nil, false, err
	}
	fi, err = f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: key, Err: errNotRegular}
	}
	if err == nil {
		side, err = d.describe(key, f, fi, info)
	}
	if err != nil {
		_ = f.Close()
		return nil, nil, false, err
	}
	return f, fi, side, nil
}

// describe fills in info: what a Put stored of exactly this file, else what can be seen of it.
func (d *rootDir) describe(key string, f *os.File, fi fs.FileInfo, info *muxcore.Info) (side bool, err error) {
	is := fingerprintOf(f, fi)
	text, side, err := d.loadMeta(key, f, is)
	if err != nil {
		return false, err
	}
	meta := string(text)
	if !d.gives(key, fi, meta) {
		return false, &fs.PathError{Op: "open", Path: key, Err: errNotRegular}
	}
	*info = muxcore.Info{Key: key, Size: fi.Size()}
	was, ok := readMeta(meta, info)
	ours := ok && was == is.String()
	var record *muxcore.Record
	switch {
	case ok && !ours:
		record = recordOf(key, was, info, true)
	case ours && d.doubtful(is, meta):
		switch d.judge(key, f, is, meta, side, info) {
		case unknown: // it keeps what it says of itself, but is nobody's copy
			record = recordOf(key, was, info, false)
			info.ETag, info.ETagStored, info.Digests = is.etag(), false, muxcore.Digests{}
		case other:
			record = recordOf(key, was, info, false)
			ours = false
		case same:
		}
	}
	if !ours {
		*info = muxcore.Info{Key: key, Size: fi.Size()}
		// As Caddy's file server: the first seconds of 1970 are what packers write who do not want to say.
		if at := fi.ModTime(); at.Unix() != 0 && at.Unix() != 1 {
			info.ModTime = at
			info.ETag = `"` + strconv.FormatInt(at.UnixNano(), 36) + "-" + strconv.FormatInt(fi.Size(), 36) + `"`
		}
	}
	if info.Record = record; info.ContentType == "" {
		info.ContentType = typeOf(key)
	}
	return side, nil
}

// etag is an identity of a file whose bytes nobody vouches for.
func (p fingerprint) etag() string {
	return `"` + strconv.FormatInt(p.mtime, 36) + "-" + strconv.FormatInt(p.size, 36) + "-" + strconv.FormatInt(p.ctime, 36) + `"`
}

// typeOf is the type that the extension of a key says.
func typeOf(key string) string { return mime.TypeByExtension(path.Ext(key)) }
