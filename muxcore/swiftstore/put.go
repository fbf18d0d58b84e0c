package swiftstore

import (
	"context"
	"encoding/hex"
	"errors"
	"io"
	"net/http"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/internal/wire"
)

var (
	errConditions = errors.New("a Swift cluster cannot write conditionally in one step")
	errCorrupted  = errors.New("what arrived is not what was sent (status 422)")
	errOvertaken  = errors.New("somebody put a newer version meanwhile (status 202)")
)

const putTries = 3 // of a Put that others overtake

// Put implements muxcore.Store. A read of body that is under way when the answer has come, or when ctx has ended, is
// waited for during a moment; then Put returns, and what that one read still yields is dropped.
func (s *Store) Put(ctx context.Context, key string, src io.Reader, size int64, opts muxcore.PutOptions) (muxcore.PutResult, error) {
	if err := s.prefix.Begin(ctx, muxcore.OpPut, key); err != nil {
		return muxcore.PutResult{}, err
	}
	if !opts.Conditions.Empty() {
		return muxcore.PutResult{}, &muxcore.Error{Code: muxcore.CodeUnsupported, Op: muxcore.OpPut, Key: key, Err: errConditions}
	}
	q := s.ask(muxcore.OpPut, http.MethodPut, key)
	q.header = make(http.Header)
	if err := attributeFields(q.header, &opts); err != nil {
		return muxcore.PutResult{}, &muxcore.Error{Code: muxcore.CodeUnsupported, Op: muxcore.OpPut, Key: key, Err: err}
	}
	if opts.Digests.MD5 != nil {
		q.header["Etag"] = []string{hex.EncodeToString(opts.Digests.MD5)}
	}
	old, err := s.look(ctx, muxcore.OpPut, key)
	if err != nil {
		return muxcore.PutResult{}, err
	}
	if size < 0 || size > wire.SpoolSize {
		q.header["Expect"] = []string{"100-continue"}
	}
	q.body = wire.NewUpload(ctx, muxcore.CheckBody(src, size, opts.Digests), size)
	resp, err := s.sendPut(ctx, q) //nolint:bodyclose // drained below
	whole, err := q.body.Over(ctx, key, resp, err)
	switch {
	case err != nil:
		return muxcore.PutResult{}, err
	case resp.StatusCode != http.StatusCreated:
		return muxcore.PutResult{}, s.putRefused(q, resp)
	case !whole:
		return muxcore.PutResult{}, wire.TooEarly(key)
	}
	_ = s.sweep(ctx, key, old.segments) // the new object is there: what is left over hurts nobody
	s.purgeAfter(ctx, key)
	return muxcore.PutResult{Info: storedInfo(key, q.body.Len(), resp, &opts), Existed: old.there}, nil
}

// sendPut sends a Put again that another one of the same moment has overtaken, for the cluster says 202 then and keeps the other's: the
// next has a later timestamp.
func (s *Store) sendPut(ctx context.Context, q *question) (*http.Response, error) {
	resp, err := s.send(ctx, q)
	for tries := 1; err == nil && resp.StatusCode == http.StatusAccepted && q.body.Replays() && tries < putTries; tries++ {
		wire.Drain(resp)
		resp, err = s.send(ctx, q)
	}
	return resp, err
}

// putRefused is the error of a Put that the cluster did not do.
func (s *Store) putRefused(q *question, resp *http.Response) error {
	switch resp.StatusCode {
	case http.StatusNotFound:
		s.there.Store(0)
		return s.noContainer(q)
	case http.StatusAccepted: // which is no failure of the cluster
		return &muxcore.Error{Code: muxcore.CodeUnavailable, Op: q.op, Key: q.key, Status: resp.StatusCode, Unsure: true, Err: errOvertaken}
	case http.StatusUnprocessableEntity:
		return &muxcore.Error{Code: muxcore.CodeUnavailable, Op: q.op, Key: q.key, Err: errCorrupted}
	case http.StatusBadRequest: // names and fields beyond the cluster's limits
		return &muxcore.Error{Code: muxcore.CodeUnsupported, Op: q.op, Key: q.key, Status: resp.StatusCode}
	}
	return s.refused(q, resp)
}

// storedInfo describes what was put.
func storedInfo(key string, size int64, resp *http.Response, opts *muxcore.PutOptions) muxcore.Info {
	info := muxcore.Info{
		Key: key, Size: size, ETag: wire.ETag(resp.Header["Etag"]), ModTime: wire.Time(wire.First(resp.Header, "Last-Modified")),
		Digests: opts.Digests, Attributes: opts.Attributes,
	}
	info.Digests.MD5 = md5Of(info.ETag)
	if muxcore.IsStrong(opts.ETag) {
		info.ETag, info.ETagStored = opts.ETag, true
	}
	if !opts.ModTime.IsZero() {
		info.ModTime = opts.ModTime
	}
	return info
}

// Delete implements muxcore.Store.
func (s *Store) Delete(ctx context.Context, key string, opts muxcore.DeleteOptions) (muxcore.DeleteResult, error) {
	if err := s.prefix.Begin(ctx, muxcore.OpDelete, key); err != nil {
		return muxcore.DeleteResult{}, err
	}
	if !opts.Conditions.Empty() {
		return muxcore.DeleteResult{}, &muxcore.Error{Code: muxcore.CodeUnsupported, Op: muxcore.OpDelete, Key: key, Err: errConditions}
	}
	old, err := s.look(ctx, muxcore.OpDelete, key)
	if err != nil {
		return muxcore.DeleteResult{}, err
	}
	q := s.ask(muxcore.OpDelete, http.MethodDelete, key)
	if old.static {
		err = s.deleteStatic(ctx, q)
	} else {
		err = s.deletePlain(ctx, q)
	}
	if err != nil {
		return muxcore.DeleteResult{}, err
	}
	if !old.static {
		err = s.sweep(ctx, key, old.segments)
	}
	s.purgeAfter(ctx, key)
	return muxcore.DeleteResult{}, err
}

func (s *Store) deletePlain(ctx context.Context, q *question) error {
	resp, err := s.send(ctx, q) //nolint:bodyclose // drained, or taken over
	if err != nil {
		return err
	}
	wire.Drain(resp)
	switch resp.StatusCode {
	case http.StatusOK, http.StatusNoContent:
		return nil
	case http.StatusNotFound:
		return s.missing(ctx, q, resp)
	}
	return s.refused(q, resp)
}
