package swiftstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/internal/wire"
)

// maxSkip is the most that is read and thrown away of an object of which Swift gives no part: a manifest of more segments
// than it looks at beforehand.
const maxSkip = 4 << 20

// Get implements muxcore.Store.
func (s *Store) Get(ctx context.Context, key string, opts muxcore.GetOptions) (*muxcore.Object, error) {
	if err := s.prefix.Begin(ctx, muxcore.OpGet, key); err != nil {
		return nil, err
	}
	if c := &opts.Conditions; c.IfNoneMatch != "" || !c.IfModifiedSince.IsZero() {
		// Whoever asks this mostly has it: a HEAD tells, where the answer to a GET would have to be broken off.
		if _, err := s.stat(ctx, muxcore.OpGet, key, opts.Conditions); err != nil {
			return nil, err
		}
	}
	ranged := opts.Range != muxcore.Range{} && wire.MayApply(opts.IfRange)
	for {
		object, plainer, err := s.open(ctx, key, &opts, ranged)
		if !plainer {
			return object, err
		}
		ranged = false
	}
}

// Stat implements muxcore.Store.
func (s *Store) Stat(ctx context.Context, key string, cond muxcore.Conditions) (muxcore.Info, error) {
	if err := s.prefix.Begin(ctx, muxcore.OpStat, key); err != nil {
		return muxcore.Info{}, err
	}
	return s.stat(ctx, muxcore.OpStat, key, cond)
}

func (s *Store) stat(ctx context.Context, op muxcore.Op, key string, cond muxcore.Conditions) (muxcore.Info, error) {
	q := s.ask(op, http.MethodHead, key)
	resp, err := s.send(ctx, q) //nolint:bodyclose // drained, or taken over
	if err != nil {
		return muxcore.Info{}, err
	}
	wire.Drain(resp)
	switch resp.StatusCode {
	case http.StatusOK, http.StatusNoContent:
	case http.StatusNotFound:
		return muxcore.Info{}, s.missing(ctx, q, resp)
	default:
		return muxcore.Info{}, s.refused(q, resp)
	}
	info := infoOf(key, resp.Header, resp.ContentLength)
	if err := cond.CheckRead(&info); err != nil {
		return muxcore.Info{}, muxcore.At(op, key, err)
	}
	return info, nil
}

// open asks once. plainer says to ask again, for the whole: the range does not apply to what is there.
func (s *Store) open(ctx context.Context, key string, opts *muxcore.GetOptions, ranged bool) (o *muxcore.Object, plainer bool, err error) {
	q := s.ask(muxcore.OpGet, http.MethodGet, key)
	if ranged {
		q.header = http.Header{"Range": {wire.RangeField(opts.Range)}}
	}
	resp, err := s.send(ctx, q) //nolint:bodyclose // drained, or taken over
	if err != nil {
		return nil, false, err
	}
	switch {
	case resp.StatusCode == http.StatusOK:
		o, err = openWhole(ctx, key, opts, resp)
		return o, false, err
	case resp.StatusCode == http.StatusPartialContent && ranged:
		return openPart(ctx, key, opts, resp)
	}
	wire.Drain(resp)
	switch {
	case resp.StatusCode == http.StatusRequestedRangeNotSatisfiable && ranged:
		return s.unsatisfied(ctx, key, opts)
	case resp.StatusCode == http.StatusNotFound:
		return nil, false, s.missing(ctx, q, resp)
	}
	return nil, false, s.refused(q, resp)
}

// unsatisfied says why there is no such part: a condition that comes first, or the object is shorter.
func (s *Store) unsatisfied(ctx context.Context, key string, opts *muxcore.GetOptions) (o *muxcore.Object, plainer bool, err error) {
	info, err := s.stat(ctx, muxcore.OpGet, key, opts.Conditions)
	if err != nil {
		return nil, false, err
	}
	if info.Size >= 0 {
		if _, _, err := opts.Resolve(&info); err != nil {
			return nil, false, muxcore.At(muxcore.OpGet, key, err)
		}
	}
	return nil, true, nil
}

// openPart opens a 206. It must be exactly the part that was asked for.
func openPart(ctx context.Context, key string, opts *muxcore.GetOptions, resp *http.Response) (o *muxcore.Object, plainer bool, err error) {
	v := wire.First(resp.Header, "Content-Range")
	r, ok := wire.ParseContentRange(v)
	want := opts.Range
	if ok && !r.Has && r.Size == 0 { // what some say of any part of nothing
		resp.ContentLength = 0
		o, err = openWhole(ctx, key, opts, resp)
		return o, false, err
	}
	if !ok || !r.Has || !r.Answers(want) || resp.ContentLength >= 0 && resp.ContentLength != r.Length() {
		wire.Drain(resp)
		return nil, false, &muxcore.Error{
			Code: muxcore.CodeUnavailable, Op: muxcore.OpGet, Key: key,
			Err: fmt.Errorf("answer 206 is wrong: Content-Range %q of %d bytes for %q", wire.Clip(v, 100), resp.ContentLength, wire.RangeField(want)),
		}
	}
	info := infoOf(key, resp.Header, r.SizeFor(want))
	if err := opts.Conditions.CheckRead(&info); err != nil {
		wire.Drain(resp)
		return nil, false, muxcore.At(muxcore.OpGet, key, err)
	}
	if !opts.RangeApplies(&info) {
		wire.Drain(resp)
		return nil, true, nil
	}
	take := r.Length()
	if want.Offset < 0 && want.Length > 0 {
		take = min(take, want.Length)
	}
	opened := wire.Open(ctx, &info, resp, r.First, take)
	if info.Size < 0 {
		opened.Object.Length = -1
	}
	return &opened.Object, false, nil
}

// openWhole opens a 200, and cuts the part out of it that was asked for.
func openWhole(ctx context.Context, key string, opts *muxcore.GetOptions, resp *http.Response) (*muxcore.Object, error) {
	info := infoOf(key, resp.Header, resp.ContentLength)
	if info.Size < 0 {
		return openUnsized(ctx, opts, &info, resp)
	}
	offset, length, err := opts.Resolve(&info)
	if err == nil && offset > 0 {
		err = skip(ctx, key, resp, offset)
	}
	if err != nil {
		wire.Drain(resp)
		return nil, muxcore.At(muxcore.OpGet, key, err)
	}
	opened := wire.Open(ctx, &info, resp, offset, length)
	opened.Body.Skipped(offset)
	return &opened.Object, nil
}

// openUnsized opens a 200 of unknown length: only the whole.
func openUnsized(ctx context.Context, opts *muxcore.GetOptions, info *muxcore.Info, resp *http.Response) (*muxcore.Object, error) {
	err := opts.Conditions.CheckRead(info)
	if err == nil && (opts.Range != muxcore.Range{}) && opts.RangeApplies(info) {
		err = &muxcore.Error{Code: muxcore.CodeUnsupported, Err: errors.New("a part of an object whose length Swift does not know")}
	}
	if err != nil {
		_ = resp.Body.Close()
		return nil, muxcore.At(muxcore.OpGet, info.Key, err)
	}
	return &wire.Open(ctx, info, resp, 0, -1).Object, nil
}

// skip reads n bytes of resp's body and throws them away.
func skip(ctx context.Context, key string, resp *http.Response, n int64) error {
	if n > maxSkip {
		return &muxcore.Error{
			Code: muxcore.CodeUnsupported, Status: resp.StatusCode,
			Err: fmt.Errorf("the cluster gave no part, and %d bytes before it are too many to skip", n),
		}
	}
	if _, err := io.CopyN(io.Discard, resp.Body, n); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return wire.Broke(ctx, muxcore.OpGet, key, err)
	}
	return nil
}
