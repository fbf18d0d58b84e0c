package s3store

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/internal/wire"
)

// seenFor is how long a bucket that was seen is taken to be there still, in seconds.
const seenFor = 60

const maxTries = 4 // of a read whose object changes meanwhile

var errChanging = errors.New("the object changes faster than it can be read")

// head asks for an object. op and key are those of the call that it is part of.
func (s *Store) head(ctx context.Context, op muxcore.Op, key string) (found, error) {
	resp, err := s.do(ctx, &call{op: op, key: key, method: http.MethodHead}) //nolint:bodyclose // drained below
	if err == nil {
		wire.Drain(resp)
		return foundIn(key, resp.Header, resp.ContentLength), nil
	}
	if errors.Is(err, muxcore.ErrKeyNotFound) && codeOf(err) == "" {
		if gone := s.bucketGone(ctx, op, key); gone != nil {
			return found{}, gone
		}
	}
	return found{}, err
}

// bucketGone tells whether a 404 without a word means that the bucket is missing, and not the key.
func (s *Store) bucketGone(ctx context.Context, op muxcore.Op, key string) error {
	if age := s.now().Unix() - s.seen.Load(); age >= 0 && age < seenFor {
		return nil
	}
	_, err := s.finish(ctx, &call{op: op, method: http.MethodHead})
	if err == nil || muxcore.CodeOf(err) == muxcore.CodeDenied { // it may not be looked at, so it is there
		return nil
	}
	return muxcore.At(op, key, err)
}

// Stat implements muxcore.Store.
func (s *Store) Stat(ctx context.Context, key string, cond muxcore.Conditions) (muxcore.Info, error) {
	if err := s.prefix.Begin(ctx, muxcore.OpStat, key); err != nil {
		return muxcore.Info{}, err
	}
	f, err := s.head(ctx, muxcore.OpStat, key)
	if err == nil {
		err = cond.CheckRead(&f.info)
	}
	if err != nil {
		return muxcore.Info{}, muxcore.At(muxcore.OpStat, key, err)
	}
	return f.info, nil
}

// Get implements muxcore.Store. The identity that conditions are about may be one that S3 does not know, so they are decided
// here: those that are mostly met by nothing new (If-None-Match, If-Modified-Since) on a HEAD, the others on the answer.
func (s *Store) Get(ctx context.Context, key string, opts muxcore.GetOptions) (*muxcore.Object, error) {
	if err := s.prefix.Begin(ctx, muxcore.OpGet, key); err != nil {
		return nil, err
	}
	if cond := &opts.Conditions; cond.IfNoneMatch != "" || !cond.IfModifiedSince.IsZero() {
		f, err := s.head(ctx, muxcore.OpGet, key)
		if err == nil {
			err = cond.CheckRead(&f.info)
		}
		if err != nil {
			return nil, muxcore.At(muxcore.OpGet, key, err)
		}
	}
	ranged := opts.Range != muxcore.Range{} && wire.MayApply(opts.IfRange)
	for range maxTries {
		c := call{op: muxcore.OpGet, key: key, method: http.MethodGet}
		if ranged {
			c.header = http.Header{"Range": {wire.RangeField(opts.Range)}}
		}
		resp, err := s.do(ctx, &c) //nolint:bodyclose // drained, or taken over
		var o *muxcore.Object
		switch {
		case err == nil && resp.StatusCode == http.StatusPartialContent:
			o, ranged, err = openPart(ctx, key, &opts, resp)
		case err == nil:
			o, err = openWhole(ctx, key, &opts, resp)
		default:
			ranged, err = s.unsatisfiable(ctx, key, &opts, ranged, err)
		}
		if o != nil || err != nil {
			return o, err
		}
	}
	return nil, &muxcore.Error{Code: muxcore.CodeUnavailable, Op: muxcore.OpGet, Key: key, Err: errChanging}
}

// unsatisfiable decides what a 416 means by a look at the object: the range lies past its end, does not apply, or does by now.
func (s *Store) unsatisfiable(ctx context.Context, key string, opts *muxcore.GetOptions, ranged bool, err error) (bool, error) {
	if e, ok := errors.AsType[*muxcore.Error](err); !ok || e.Status != http.StatusRequestedRangeNotSatisfiable || !ranged {
		if errors.Is(err, muxcore.ErrKeyNotFound) && codeOf(err) == "" {
			if gone := s.bucketGone(ctx, muxcore.OpGet, key); gone != nil {
				return ranged, gone
			}
		}
		return ranged, err
	}
	f, err := s.head(ctx, muxcore.OpGet, key)
	if err != nil {
		return ranged, err
	}
	if _, _, err := opts.Resolve(&f.info); err != nil {
		return ranged, muxcore.At(muxcore.OpGet, key, err)
	}
	return opts.RangeApplies(&f.info), nil
}

// openPart opens a 206, which must be exactly the part that was asked for. No object and no error: the range does not apply.
func openPart(ctx context.Context, key string, opts *muxcore.GetOptions, resp *http.Response) (*muxcore.Object, bool, error) {
	v := wire.First(resp.Header, "Content-Range")
	r, ok := wire.ParseContentRange(v)
	want := opts.Range
	if !ok || !r.Has || !r.Answers(want) || r.SizeFor(want) < 0 || resp.ContentLength >= 0 && resp.ContentLength != r.Length() {
		wire.Drain(resp)
		why := fmt.Sprintf("Content-Range %q of %d bytes for %q", wire.Clip(v, 100), resp.ContentLength, wire.RangeField(want))
		return nil, true, wrongAnswer(muxcore.OpGet, key, why)
	}
	f := foundIn(key, resp.Header, r.SizeFor(want))
	if err := opts.Conditions.CheckRead(&f.info); err != nil {
		wire.Drain(resp)
		return nil, true, muxcore.At(muxcore.OpGet, key, err)
	}
	if !opts.RangeApplies(&f.info) {
		wire.Drain(resp)
		return nil, false, nil
	}
	take := r.Length()
	if want.Offset < 0 && want.Length > 0 {
		take = min(take, want.Length)
	}
	return &wire.Open(ctx, &f.info, resp, r.First, take).Object, true, nil
}

// openWhole opens a 200.
func openWhole(ctx context.Context, key string, opts *muxcore.GetOptions, resp *http.Response) (*muxcore.Object, error) {
	f := foundIn(key, resp.Header, resp.ContentLength)
	err := error(nil)
	switch {
	case resp.StatusCode != http.StatusOK:
		err = wrongAnswer(muxcore.OpGet, key, fmt.Sprintf("a GET does not have %d", resp.StatusCode))
	case f.info.Size < 0:
		err = wrongAnswer(muxcore.OpGet, key, "it does not say how long the object is")
	}
	var offset, length int64
	if err == nil {
		offset, length, err = opts.Resolve(&f.info)
	}
	if err == nil && offset > 0 {
		err = wrongAnswer(muxcore.OpGet, key, "it is the whole object for a range")
	}
	if err != nil {
		wire.Drain(resp)
		return nil, muxcore.At(muxcore.OpGet, key, err)
	}
	return &wire.Open(ctx, &f.info, resp, 0, length).Object, nil
}
