package bunnystore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/internal/wire"
)

// maxSkip is the most that is read and thrown away where Bunny does not give a part.
const maxSkip = 4 << 20

// maxTries is how often an object is opened that is overwritten meanwhile.
const maxTries = 5

var errChanged = errors.New("what was read is not what was described: the object is being overwritten, or damaged")

// Stat implements muxcore.Store.
func (s *Store) Stat(ctx context.Context, key string, cond muxcore.Conditions) (muxcore.Info, error) {
	if err := s.prefix.Begin(ctx, muxcore.OpStat, key); err != nil {
		return muxcore.Info{}, err
	}
	d, err := s.describe(ctx, muxcore.OpStat, key)
	if err != nil {
		return muxcore.Info{}, err
	}
	info := d.info(key)
	if err := cond.CheckRead(&info); err != nil {
		return muxcore.Info{}, muxcore.At(muxcore.OpStat, key, err)
	}
	return info, nil
}

// Get implements muxcore.Store.
func (s *Store) Get(ctx context.Context, key string, opts muxcore.GetOptions) (*muxcore.Object, error) {
	if err := s.prefix.Begin(ctx, muxcore.OpGet, key); err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		o, err := s.open(ctx, key, &opts, try == maxTries)
		if !errors.Is(err, errChanged) || try == maxTries {
			return o, err
		}
	}
}

// open describes the object and opens it. The last try reads even what is asked for in part whole, if it is not too large: then
// it does not matter what is written meanwhile.
func (s *Store) open(ctx context.Context, key string, opts *muxcore.GetOptions, last bool) (*muxcore.Object, error) {
	d, err := s.describe(ctx, muxcore.OpGet, key)
	if err != nil {
		return nil, err
	}
	info := d.info(key)
	offset, length, err := opts.Resolve(&info)
	if err != nil {
		return nil, muxcore.At(muxcore.OpGet, key, err)
	}
	part, room := length < info.Size, int64(wire.SpoolSize)
	if last {
		part, room = part && info.Size > maxSkip, maxSkip
	}
	q := s.ask(muxcore.OpGet, http.MethodGet, key)
	if part {
		q.header = http.Header{"Range": {wire.RangeField(muxcore.Range{Offset: offset, Length: length})}}
	}
	resp, err := s.send(ctx, q)
	if err != nil {
		return nil, err
	}
	if !part && resp.StatusCode == http.StatusOK && resp.ContentLength >= 0 && resp.ContentLength <= room {
		return s.small(ctx, d, &info, resp, opts)
	}
	skipped, err := s.place(ctx, key, resp, &info, offset, length)
	if err == nil {
		err = s.unchanged(ctx, key, d)
	}
	if err != nil {
		wire.Drain(resp)
		return nil, err
	}
	if !part && d.sum() != nil {
		resp.Body = &verified{ReadCloser: resp.Body, left: info.Size, sum: sha256.New(), want: d.sum()}
	}
	opened := wire.Open(ctx, &info, resp, offset, length)
	opened.Body.Skipped(skipped)
	return &opened.Object, nil
}

// small reads a small object whole. If it is not the one that was described, and another one is by now, its bytes say what it is. If
// none is, they are not what was put.
func (s *Store) small(ctx context.Context, d *description, described *muxcore.Info, resp *http.Response, opts *muxcore.GetOptions) (*muxcore.Object, error) {
	info := *described
	body := make([]byte, resp.ContentLength)
	_, err := io.ReadFull(resp.Body, body)
	_ = resp.Body.Close()
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, wire.Broke(ctx, muxcore.OpGet, info.Key, err)
	}
	if sum := sha256.Sum256(body); info.Size != int64(len(body)) || info.Digests.SHA256 != nil && !bytes.Equal(info.Digests.SHA256, sum[:]) {
		switch err := s.unchanged(ctx, info.Key, d); {
		case err == nil:
			return nil, changed(info.Key)
		case !errors.Is(err, errChanged):
			return nil, err
		}
		info = muxcore.Info{Key: info.Key, Size: int64(len(body)), ETag: tagOf(sum[:]), Digests: muxcore.Digests{SHA256: sum[:]}}
		info.ContentType, info.ModTime = typeOf(wire.First(resp.Header, "Content-Type")), wire.Time(wire.First(resp.Header, "Last-Modified"))
	}
	offset, length, err := opts.Resolve(&info)
	if err != nil {
		return nil, muxcore.At(muxcore.OpGet, info.Key, err)
	}
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body[offset:offset+length])), length
	return &wire.Open(ctx, &info, resp, offset, length).Object, nil
}

// place makes resp's body begin at offset of the object that info describes, and tells what it skipped.
func (s *Store) place(ctx context.Context, key string, resp *http.Response, info *muxcore.Info, offset, length int64) (skipped int64, err error) {
	switch resp.StatusCode {
	case http.StatusPartialContent:
		v := wire.First(resp.Header, "Content-Range")
		r, ok := wire.ParseContentRange(v)
		switch {
		case !ok || !r.Has || r.First != offset || r.Length() != length:
			return 0, &muxcore.Error{
				Code: muxcore.CodeUnavailable, Op: muxcore.OpGet, Key: key,
				Err: fmt.Errorf("answer 206 is wrong: Content-Range %q for %d bytes from %d", wire.Clip(v, 100), length, offset),
			}
		case r.Size >= 0 && r.Size != info.Size:
			return 0, changed(key)
		}
		return 0, nil
	case http.StatusOK:
	case http.StatusRequestedRangeNotSatisfiable:
		return 0, changed(key)
	default:
		return 0, s.refused(muxcore.OpGet, key, resp)
	}
	switch {
	case resp.ContentLength >= 0 && resp.ContentLength != info.Size:
		return 0, changed(key)
	case offset > maxSkip:
		return 0, &muxcore.Error{
			Code: muxcore.CodeUnsupported, Op: muxcore.OpGet, Key: key,
			Err: fmt.Errorf("no part was given, and %d bytes before it are too many to skip", offset),
		}
	}
	if _, err := io.CopyN(io.Discard, resp.Body, offset); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return 0, wire.Broke(ctx, muxcore.OpGet, key, err)
	}
	return offset, nil
}

// unchanged makes sure that the object is still the one that was described before it was opened.
func (s *Store) unchanged(ctx context.Context, key string, before *description) error {
	after, err := s.describe(ctx, muxcore.OpGet, key)
	switch {
	case errors.Is(err, muxcore.ErrKeyNotFound):
		return changed(key)
	case err != nil:
		return err
	case !after.same(before):
		return changed(key)
	}
	return nil
}

// changed is the error of an object that does not hold still: nobody's failure.
func changed(key string) error {
	return &muxcore.Error{Code: muxcore.CodeUnavailable, Op: muxcore.OpGet, Key: key, Unsure: true, Err: errChanged}
}

// verified is a whole body that must have a digest: its last bytes come only when it has.
type verified struct {
	io.ReadCloser
	left int64
	sum  hash.Hash
	want []byte
	err  error
}

// Read implements io.Reader.
func (v *verified) Read(p []byte) (int, error) {
	if v.err != nil {
		return 0, v.err
	}
	n, err := v.ReadCloser.Read(p)
	v.sum.Write(p[:n])
	if v.left -= int64(n); v.left > 0 {
		return n, err
	}
	if !bytes.Equal(v.sum.Sum(nil), v.want) {
		v.err = errChanged
		return 0, v.err
	}
	return n, err
}
