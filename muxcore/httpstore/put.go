package httpstore

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/internal/wire"
)

var errConditions = errors.New("the origin is not known to honour conditions on writes (conditional_write)")

// Put implements muxcore.Store. A read of body that is under way when the answer has come, or when ctx has ended, is
// waited for during a moment; then Put returns, and what that one read still yields is dropped.
func (s *Store) Put(ctx context.Context, key string, src io.Reader, size int64, opts muxcore.PutOptions) (muxcore.PutResult, error) {
	if err := s.beginWrite(ctx, muxcore.OpPut, key, &opts.Conditions); err != nil {
		return muxcore.PutResult{}, err
	}
	header := maps.Clone(s.traced(ctx, s.header))
	addConditions(header, &opts.Conditions)
	if err := addAttributes(header, &opts); err != nil {
		return muxcore.PutResult{}, &muxcore.Error{Code: muxcore.CodeUnsupported, Op: muxcore.OpPut, Key: key, Err: err}
	}
	if err := s.ensureParents(ctx, key); err != nil {
		return muxcore.PutResult{}, err
	}
	unseen, err := s.checkCoding(ctx, key, &opts)
	if err != nil {
		return muxcore.PutResult{}, err
	}
	up := wire.NewUpload(ctx, muxcore.CheckBody(src, size, opts.Digests), size)
	resp, err := up.Send(ctx, key, s.home, s.request(ctx, http.MethodPut, s.base.of(key), header)) //nolint:bodyclose // drained, or taken over
	if err == nil && s.makeRoom(ctx, key, resp.StatusCode) {
		wire.Drain(resp)
		if !up.Replays() {
			_, _ = up.Settle(ctx)
			return muxcore.PutResult{}, &muxcore.Error{Code: muxcore.CodeUnavailable, Op: muxcore.OpPut, Key: key, Err: errMadeRoom}
		}
		resp, err = up.Send(ctx, key, s.home, s.request(ctx, http.MethodPut, s.base.of(key), header)) //nolint:bodyclose // drained below
	}
	whole, err := up.Over(ctx, key, resp, err)
	if err != nil {
		return muxcore.PutResult{}, err
	}
	r, err := s.stored(ctx, key, up, whole, resp, &opts)
	if err == nil && unseen {
		err = s.kept(ctx, key, &opts)
	}
	return r, err
}

// stored decides what the answer to a PUT means.
func (s *Store) stored(ctx context.Context, key string, up *wire.Upload, whole bool, resp *http.Response, opts *muxcore.PutOptions) (muxcore.PutResult, error) {
	switch resp.StatusCode {
	case http.StatusOK, http.StatusCreated, http.StatusNoContent:
	default:
		return muxcore.PutResult{}, s.writeRefused(ctx, muxcore.OpPut, key, resp, &opts.Conditions)
	}
	if !whole {
		return muxcore.PutResult{}, wire.TooEarly(key)
	}
	info := muxcore.Info{
		Key: key, Size: up.Len(), ETag: wire.ETag(resp.Header["Etag"]), ModTime: wire.Time(wire.First(resp.Header, "Last-Modified")),
		Digests: opts.Digests.Or(up.Digests()), Attributes: opts.Attributes,
	}
	return muxcore.PutResult{Info: info, Existed: resp.StatusCode != http.StatusCreated}, nil
}

// beginWrite is what every write begins with.
func (s *Store) beginWrite(ctx context.Context, op muxcore.Op, key string, cond *muxcore.Conditions) error {
	if err := wire.Begin(ctx, op, key); err != nil {
		return err
	}
	if cond.Empty() {
		return nil
	}
	if !s.write {
		return &muxcore.Error{Code: muxcore.CodeUnsupported, Op: op, Key: key, Err: errConditions}
	}
	for _, list := range []string{cond.IfMatch, cond.IfNoneMatch} {
		if !wire.IsFieldValue(list) {
			return &muxcore.Error{Code: muxcore.CodeUnsupported, Op: op, Key: key, Err: errors.New("condition cannot be sent in a header field")}
		}
	}
	return nil
}

// Delete implements muxcore.Store.
func (s *Store) Delete(ctx context.Context, key string, opts muxcore.DeleteOptions) (muxcore.DeleteResult, error) {
	if err := s.beginWrite(ctx, muxcore.OpDelete, key, &opts.Conditions); err != nil {
		return muxcore.DeleteResult{}, err
	}
	if err := s.mayDelete(ctx, key); err != nil {
		return muxcore.DeleteResult{}, err
	}
	header := s.traced(ctx, s.header)
	if !opts.Conditions.Empty() {
		header = maps.Clone(header)
		addConditions(header, &opts.Conditions)
	}
	resp, err := s.exchange(ctx, muxcore.OpDelete, key, s.request(ctx, http.MethodDelete, s.base.of(key), header)) //nolint:bodyclose // drained, or taken over
	if err != nil {
		return muxcore.DeleteResult{}, err
	}
	wire.Drain(resp)
	switch resp.StatusCode {
	case http.StatusOK, http.StatusAccepted, http.StatusNoContent:
		return muxcore.DeleteResult{}, nil
	case http.StatusConflict: // what some say of a collection, and of a key below an object
		if _, err := s.Stat(ctx, key, muxcore.Conditions{}); errors.Is(err, muxcore.ErrKeyNotFound) {
			return muxcore.DeleteResult{}, muxcore.At(muxcore.OpDelete, key, err)
		}
	}
	return muxcore.DeleteResult{}, s.writeRefused(ctx, muxcore.OpDelete, key, resp, &opts.Conditions)
}

// writeRefused is the error of a write that the origin did not do.
func (s *Store) writeRefused(ctx context.Context, op muxcore.Op, key string, resp *http.Response, cond *muxcore.Conditions) error {
	switch status := resp.StatusCode; {
	case status == http.StatusPreconditionFailed && !cond.Empty():
		e := &muxcore.Error{Code: muxcore.CodePreconditionFailed, Op: op, Key: key, Status: status}
		if resp.Header["Etag"] != nil {
			info := validatorsOf(key, resp)
			e.Info = &info
		}
		return e
	case status >= 300 && status < 400:
		return &muxcore.Error{Code: muxcore.CodeUnsupported, Op: op, Key: key, Status: status, Err: sentElsewhere(resp)}
	case status < 300:
		return lied(op, key, resp, "that is no answer to a write")
	case op == muxcore.OpPut && s.lacksBase(ctx, key, status):
		return baseless(op, key)
	case op == muxcore.OpPut && status != http.StatusConflict && s.conflicts(ctx, key, status):
		return &muxcore.Error{Code: muxcore.CodeKeyConflict, Op: op, Key: key, Status: status}
	}
	return s.refused(op, key, resp)
}

// sentElsewhere names the redirect that a write got.
func sentElsewhere(resp *http.Response) error {
	to := "elsewhere"
	if u, err := resp.Location(); err == nil && u.Host != "" {
		to = "to " + u.Host
	}
	return errors.New("the origin redirects the write " + to + ", which is not followed")
}
