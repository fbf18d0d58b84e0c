package httpstore

import (
	"context"
	"fmt"
	"net/http"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/internal/wire"
)

// Get implements muxcore.Store.
func (s *Store) Get(ctx context.Context, key string, opts muxcore.GetOptions) (*muxcore.Object, error) {
	if err := wire.Begin(ctx, muxcore.OpGet, key); err != nil {
		return nil, err
	}
	a := ask{op: muxcore.OpGet, key: key, opts: opts, ranged: opts.Range != muxcore.Range{} && wire.MayApply(opts.IfRange), conditional: !opts.Conditions.Empty()}
	resp, err := s.answer(ctx, &a) //nolint:bodyclose // the object takes it over
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusPartialContent {
		return openPart(ctx, &a, resp)
	}
	return openWhole(ctx, &a, resp)
}

// Stat implements muxcore.Store.
func (s *Store) Stat(ctx context.Context, key string, cond muxcore.Conditions) (muxcore.Info, error) {
	if err := wire.Begin(ctx, muxcore.OpStat, key); err != nil {
		return muxcore.Info{}, err
	}
	a := ask{op: muxcore.OpStat, key: key, conditional: !cond.Empty()}
	a.opts.Conditions = cond
	resp, err := s.answer(ctx, &a) //nolint:bodyclose // drained, or taken over
	if err != nil {
		return muxcore.Info{}, err
	}
	wire.Drain(resp)
	info := infoOf(key, resp, resp.ContentLength)
	if err := cond.CheckRead(&info); err != nil {
		return muxcore.Info{}, muxcore.At(a.op, key, err)
	}
	return info, nil
}

// answer asks until there is an answer with an object: once, or once more if the origin contradicted itself.
func (s *Store) answer(ctx context.Context, a *ask) (*http.Response, error) {
	for {
		resp, err := s.read(ctx, a)
		if err != nil {
			return nil, err
		}
		plainer, err := s.judge(ctx, a, resp)
		switch {
		case err != nil:
			wire.Drain(resp)
			return nil, err
		case plainer && !a.again:
			wire.Drain(resp)
			a.again = true
			if resp.StatusCode == http.StatusPreconditionFailed {
				a.conditional = false
			} else {
				a.ranged = false
			}
		case plainer:
			wire.Drain(resp)
			return nil, lied(a.op, a.key, resp, "it contradicts its own validators")
		default:
			return resp, nil
		}
	}
}

// judge decides by status whether resp is an answer with an object, an error, or a contradiction to be asked about more
// plainly.
func (s *Store) judge(ctx context.Context, a *ask, resp *http.Response) (plainer bool, err error) {
	switch resp.StatusCode {
	case http.StatusOK, http.StatusNonAuthoritativeInfo:
		return false, nil
	case http.StatusPartialContent:
		if !a.ranged {
			return false, lied(a.op, a.key, resp, "no range was asked for")
		}
		info := infoOf(a.key, resp, -1)
		return !a.opts.RangeApplies(&info), nil
	case http.StatusNotModified:
		return false, a.notModified(resp)
	case http.StatusPreconditionFailed:
		return a.preconditionFailed(s, resp)
	case http.StatusRequestedRangeNotSatisfiable:
		return a.notSatisfiable(s, resp)
	case http.StatusMethodNotAllowed:
		if dav, err := s.isDAV(ctx, a.op, a.key); err == nil && dav {
			return false, &muxcore.Error{Code: muxcore.CodeKeyNotFound, Op: a.op, Key: a.key, Status: resp.StatusCode, Err: errCollection}
		}
	}
	if resp.StatusCode < 400 {
		return false, lied(a.op, a.key, resp, "that is no answer to a read")
	}
	return false, s.refused(a.op, a.key, resp)
}

// notModified checks a 304: we must have asked, and the validators in it, where there are any, must not deny it.
func (a *ask) notModified(resp *http.Response) error {
	cond := &a.opts.Conditions
	if !a.conditional || cond.IfNoneMatch == "" && cond.IfModifiedSince.IsZero() {
		return lied(a.op, a.key, resp, "no condition allows it")
	}
	info := infoOf(a.key, resp, -1)
	judged := muxcore.Conditions{IfNoneMatch: cond.IfNoneMatch, IfModifiedSince: cond.IfModifiedSince}
	known := info.ETag != ""
	if cond.IfNoneMatch == "" {
		known = !info.ModTime.IsZero()
	}
	if known && judged.CheckRead(&info) == nil {
		return lied(a.op, a.key, resp, "its validators are not those that were asked about")
	}
	return &muxcore.Error{Code: muxcore.CodeNotModified, Op: a.op, Key: a.key, Status: resp.StatusCode, Info: &info}
}

// preconditionFailed takes a 412 that comes with validators which bear it out. Some origins leave them out, and those that
// send their ETag without quotes do not know it again.
func (a *ask) preconditionFailed(s *Store, resp *http.Response) (plainer bool, err error) {
	cond := &a.opts.Conditions
	if !a.conditional || cond.IfMatch == "" && cond.IfUnmodifiedSince.IsZero() {
		return false, s.unasked(a, resp)
	}
	info := validatorsOf(a.key, resp)
	judged := muxcore.Conditions{IfMatch: cond.IfMatch, IfUnmodifiedSince: cond.IfUnmodifiedSince}
	if err := judged.CheckRead(&info); err == nil || info.ETag == "" && info.ModTime.IsZero() {
		return true, nil
	}
	return false, &muxcore.Error{Code: muxcore.CodePreconditionFailed, Op: a.op, Key: a.key, Status: resp.StatusCode, Info: &info}
}

// unasked is the error of a 412 without a condition, or a 416 without a range: it says nothing of the object, so that others
// are asked, nor of the origin's health.
func (s *Store) unasked(a *ask, resp *http.Response) error {
	err := s.refused(a.op, a.key, resp)
	err.Unsure, err.Err = true, fmt.Errorf("answer %d is wrong: nothing was asked that it could be the answer to", resp.StatusCode)
	return err
}

// notSatisfiable takes a 416 if the length in it bears it out, and if the range applies at all. Without a length in it, the
// whole object is asked for, to see.
func (a *ask) notSatisfiable(s *Store, resp *http.Response) (plainer bool, err error) {
	if !a.ranged && (!a.again || a.opts.Range == muxcore.Range{}) {
		return false, s.unasked(a, resp)
	}
	info := validatorsOf(a.key, resp)
	if v := wire.First(resp.Header, "Content-Range"); v != "" {
		r, ok := wire.ParseContentRange(v)
		if !ok || r.Has || r.Size < 0 {
			return false, lied(a.op, a.key, resp, "Content-Range %q", v)
		}
		info.Size = r.Size
	}
	validated := info.ETag != "" || !info.ModTime.IsZero()
	if validated && !a.opts.RangeApplies(&info) {
		return true, nil
	}
	if info.Size < 0 && !a.again {
		return true, nil // nothing bears it out: some say so of ranges that they do not understand
	}
	if !validated && !a.again && !a.opts.Conditions.Empty() {
		return true, nil // or whoever has it already would get it again
	}
	if offset := a.opts.Range.Offset; info.Size > 0 && offset < info.Size {
		return false, lied(a.op, a.key, resp, "the range from %d is within the size, %d", offset, info.Size)
	}
	if info.ETag != "" {
		if err := a.opts.Conditions.CheckRead(&info); err != nil {
			return false, muxcore.At(a.op, a.key, err)
		}
	} else if a.again && !a.conditional && !a.opts.Conditions.Empty() { // it said 412 before, and nothing speaks against it
		return false, &muxcore.Error{Code: muxcore.CodePreconditionFailed, Op: a.op, Key: a.key, Status: http.StatusPreconditionFailed, Info: &info}
	}
	return false, &muxcore.Error{Code: muxcore.CodeRangeNotSatisfiable, Op: a.op, Key: a.key, Status: resp.StatusCode, Info: &info}
}
