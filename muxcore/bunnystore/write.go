package bunnystore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"mime"
	"net/http"
	"path"
	"strings"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/internal/wire"
)

var (
	errConditions = errors.New("a storage zone cannot write conditionally")
	errCoded      = errors.New("a storage zone does not keep the Content-Encoding, without which the body cannot be read")
)

// Put implements muxcore.Store. A read of body that is under way when the answer has come, or when ctx has ended, is
// waited for during a moment; then Put returns, and what that one read still yields is dropped.
func (s *Store) Put(ctx context.Context, key string, src io.Reader, size int64, opts muxcore.PutOptions) (muxcore.PutResult, error) {
	if err := s.beginWrite(ctx, muxcore.OpPut, key, &opts.Conditions); err != nil {
		return muxcore.PutResult{}, err
	}
	q := s.ask(muxcore.OpPut, http.MethodPut, key)
	q.header = http.Header{"Content-Type": {octets}}
	if opts.ContentType != "" {
		if !wire.IsFieldValue(opts.ContentType) {
			return muxcore.PutResult{}, &muxcore.Error{Code: muxcore.CodeUnsupported, Op: muxcore.OpPut, Key: key, Err: errors.New("the content type has a character that no header field may have")}
		}
		q.header["Override-Content-Type"] = []string{opts.ContentType}
	} else if mime.TypeByExtension(path.Ext(key)) == "" {
		q.header["Override-Content-Type"] = []string{untyped}
	}
	if opts.ContentEncoding != "" {
		return muxcore.PutResult{}, &muxcore.Error{Code: muxcore.CodeUnsupported, Op: muxcore.OpPut, Key: key, Err: errCoded}
	}
	existed, err := s.mayPut(ctx, key)
	if err != nil {
		return muxcore.PutResult{}, err
	}
	summed, err := s.load(ctx, q, src, size, &opts)
	if err != nil {
		return muxcore.PutResult{}, err
	}
	resp, err := s.send(ctx, q) //nolint:bodyclose // drained below
	whole, err := q.body.Over(ctx, key, resp, err)
	switch {
	case err != nil:
		return muxcore.PutResult{}, err
	case resp.StatusCode != http.StatusCreated && resp.StatusCode != http.StatusOK:
		return muxcore.PutResult{}, s.putRefused(ctx, q, resp)
	case !whole:
		return muxcore.PutResult{}, wire.TooEarly(key)
	}
	info := muxcore.Info{Key: key, Size: q.body.Len(), Digests: opts.Digests}
	info.ContentType = opts.ContentType
	if opts.Digests.SHA256 == nil {
		info.Digests.SHA256 = summed.Sum(nil)
	}
	info.ETag = tagOf(info.Digests.SHA256)
	if s.set.VerifyWrites {
		if err := s.verify(ctx, &info); err != nil {
			return muxcore.PutResult{}, err
		}
	}
	s.purgeAfter(ctx, key)
	return muxcore.PutResult{Info: info, Existed: existed}, nil
}

// beginWrite is what every write begins with.
func (s *Store) beginWrite(ctx context.Context, op muxcore.Op, key string, cond *muxcore.Conditions) error {
	if err := s.prefix.Begin(ctx, op, key); err != nil {
		return err
	}
	if !cond.Empty() {
		return &muxcore.Error{Code: muxcore.CodeUnsupported, Op: op, Key: key, Err: errConditions}
	}
	return nil
}

// mayPut tells whether there is an object already. A folder is in the way of one.
func (s *Store) mayPut(ctx context.Context, key string) (existed bool, err error) {
	d, err := s.look(ctx, muxcore.OpPut, key)
	switch {
	case errors.Is(err, muxcore.ErrKeyNotFound):
		return false, nil
	case err != nil:
		return false, err
	case d.Directory:
		return false, s.makeWay(ctx, key)
	}
	return true, nil
}

// makeWay takes a folder away that is in the way of an object, if no object is below it.
func (s *Store) makeWay(ctx context.Context, key string) error {
	held, err := s.holds(ctx, key+"/")
	switch {
	case err != nil:
		return err
	case held:
		return &muxcore.Error{Code: muxcore.CodeKeyConflict, Op: muxcore.OpPut, Key: key, Err: errFolder}
	}
	q := s.ask(muxcore.OpPut, http.MethodDelete, key)
	q.path += "/"
	resp, err := s.send(ctx, q) //nolint:bodyclose // drained below
	if err != nil {
		return err
	}
	wire.Drain(resp)
	if resp.StatusCode >= 300 && resp.StatusCode != http.StatusNotFound {
		return s.refused(muxcore.OpPut, key, resp)
	}
	return nil
}

// load makes the body of q, and its checksum if that is known before it is sent; else it is known from summed when the
// body was read.
func (s *Store) load(ctx context.Context, q *question, src io.Reader, size int64, opts *muxcore.PutOptions) (summed hash.Hash, err error) {
	if src == nil {
		src = bytes.NewReader(nil)
	}
	if opts.Digests.SHA256 == nil {
		summed = sha256.New()
		src = io.TeeReader(src, summed)
	}
	q.body = wire.NewUpload(ctx, muxcore.CheckBody(src, size, opts.Digests), size)
	if size >= 0 && size <= wire.SpoolSize && summed != nil {
		all := make([]byte, size+1)
		n, err := q.body.Fill(ctx, all)
		if _, bodyErr := q.body.Settle(ctx); bodyErr != nil && ctx.Err() == nil {
			return nil, wire.UploaderFault(q.key, bodyErr)
		}
		if !errors.Is(err, io.EOF) {
			return nil, wire.Broke(ctx, muxcore.OpPut, q.key, err)
		}
		opts.Digests.SHA256 = summed.Sum(nil)
		q.body = wire.NewUpload(ctx, muxcore.CheckBody(bytes.NewReader(all[:n]), int64(n), muxcore.Digests{}), int64(n))
	}
	if size < 0 || size > wire.SpoolSize {
		q.header["Expect"] = []string{"100-continue"}
	}
	if opts.Digests.SHA256 != nil {
		q.header["Checksum"] = []string{strings.ToUpper(hex.EncodeToString(opts.Digests.SHA256))}
	}
	return summed, nil
}

// putRefused is the error of a Put that Bunny did not do. A 400 is what it says of a path below an object, and of a body that
// is not what its checksum says; ours was found right here.
func (s *Store) putRefused(ctx context.Context, q *question, resp *http.Response) error {
	switch resp.StatusCode {
	case http.StatusNotFound:
		return &muxcore.Error{Code: muxcore.CodeUnavailable, Op: q.op, Key: q.key, Err: fmt.Errorf("answer 404 to a PUT: there is no zone %q at %s", s.set.Zone, s.base.Host)}
	case http.StatusBadRequest:
		for above := wire.ParentOf(q.key); above != ""; above = wire.ParentOf(strings.TrimSuffix(above, "/")) {
			if d, err := s.look(ctx, q.op, strings.TrimSuffix(above, "/")); err == nil && !d.Directory {
				return &muxcore.Error{Code: muxcore.CodeKeyConflict, Op: q.op, Key: q.key, Status: resp.StatusCode}
			}
		}
		return &muxcore.Error{Code: muxcore.CodeUnavailable, Op: q.op, Key: q.key, Err: errors.New("answer 400: Bunny takes no such path, or what arrived is not what was sent")}
	}
	return s.refused(q.op, q.key, resp)
}

// verify looks whether an object is there as it was sent.
func (s *Store) verify(ctx context.Context, sent *muxcore.Info) error {
	d, err := s.describe(ctx, muxcore.OpPut, sent.Key)
	switch {
	case errors.Is(err, muxcore.ErrKeyNotFound):
		return s.unverified(sent.Key, "it is not there")
	case err != nil:
		return err
	case d.Length != sent.Size:
		return s.unverified(sent.Key, fmt.Sprintf("it has %d bytes, and %d were sent", d.Length, sent.Size))
	case d.sum() != nil && !bytes.Equal(d.sum(), sent.Digests.SHA256):
		return s.unverified(sent.Key, "it has another checksum")
	}
	sent.ModTime = timeOf(d.LastChanged)
	return nil
}

func (s *Store) unverified(key, why string) error {
	return &muxcore.Error{
		Code: muxcore.CodeUnavailable, Op: muxcore.OpPut, Key: key,
		Err: fmt.Errorf("it was said to be stored, and %s: is %s the endpoint of the main region of zone %q?", why, s.base.Host, s.set.Zone),
	}
}

// Delete implements muxcore.Store.
func (s *Store) Delete(ctx context.Context, key string, opts muxcore.DeleteOptions) (muxcore.DeleteResult, error) {
	if err := s.beginWrite(ctx, muxcore.OpDelete, key, &opts.Conditions); err != nil {
		return muxcore.DeleteResult{}, err
	}
	if _, err := s.describe(ctx, muxcore.OpDelete, key); err != nil {
		return muxcore.DeleteResult{}, err
	}
	resp, err := s.send(ctx, s.ask(muxcore.OpDelete, http.MethodDelete, key)) //nolint:bodyclose // drained below
	if err != nil {
		return muxcore.DeleteResult{}, err
	}
	wire.Drain(resp)
	if resp.StatusCode >= 300 {
		return muxcore.DeleteResult{}, s.refused(muxcore.OpDelete, key, resp)
	}
	s.purgeAfter(ctx, key)
	return muxcore.DeleteResult{}, nil
}
