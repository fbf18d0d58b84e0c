package httpstore

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/internal/wire"
)

// maxSkip is how much of a body is read and thrown away to get at a part that the origin did not cut out.
const maxSkip = 4 << 20

var (
	errEndless  = errors.New("nothing marks the end of the body: a cut one could not be told from a whole one")
	errNoRanges = errors.New("the origin ignores ranges")
)

// openPart opens a 206. It must be exactly the part that was asked for.
func openPart(ctx context.Context, a *ask, resp *http.Response) (*muxcore.Object, error) {
	v := wire.First(resp.Header, "Content-Range")
	r, ok := wire.ParseContentRange(v)
	want := a.opts.Range
	if ok && !r.Has && r.Size == 0 {
		resp.ContentLength = 0
		return openWhole(ctx, a, resp)
	}
	if !ok || !r.Has || !r.Answers(want) || resp.ContentLength >= 0 && resp.ContentLength != r.Length() {
		wire.Drain(resp)
		return nil, lied(a.op, a.key, resp, "Content-Range %q of %d bytes for %q", v, resp.ContentLength, wire.RangeField(want))
	}
	info := infoOf(a.key, resp, r.SizeFor(want))
	if err := a.opts.Conditions.CheckRead(&info); err != nil {
		wire.Drain(resp)
		return nil, muxcore.At(a.op, a.key, err)
	}
	take := r.Length()
	if want.Offset < 0 && want.Length > 0 {
		take = min(take, want.Length)
	}
	o := wire.Open(ctx, &info, resp, r.First, take)
	if info.Size < 0 {
		o.Object.Length = -1
	}
	return &o.Object, nil
}

// openWhole opens a 200, and cuts the part out of it that was asked for.
func openWhole(ctx context.Context, a *ask, resp *http.Response) (*muxcore.Object, error) {
	info := infoOf(a.key, resp, resp.ContentLength)
	info.Digests.MD5 = contentMD5(resp.Header)
	if info.Size < 0 {
		return openUnsized(ctx, a, resp, &info)
	}
	offset, length, err := a.opts.Resolve(&info)
	if err == nil && offset > 0 {
		if _, err = skip(ctx, a, resp, offset); errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
	}
	if err != nil {
		wire.Drain(resp)
		return nil, muxcore.At(a.op, a.key, err)
	}
	o := wire.Open(ctx, &info, resp, offset, length)
	o.Body.Skipped(offset)
	return &o.Object, nil
}

// openUnsized opens a 200 of unknown length.
func openUnsized(ctx context.Context, a *ask, resp *http.Response, info *muxcore.Info) (*muxcore.Object, error) {
	err := a.opts.Conditions.CheckRead(info)
	if err == nil && resp.ProtoMajor == 1 && len(resp.TransferEncoding) == 0 && resp.TLS == nil {
		err = &muxcore.Error{Code: muxcore.CodeUnavailable, Err: errEndless}
	}
	if err != nil {
		_ = resp.Body.Close()
		return nil, muxcore.At(a.op, a.key, err)
	}
	want := a.opts.Range
	if want == (muxcore.Range{}) || !a.opts.RangeApplies(info) {
		return &wire.Open(ctx, info, resp, 0, -1).Object, nil
	}
	begin, err := findPart(ctx, a, resp, info)
	if err != nil {
		_ = resp.Body.Close()
		return nil, muxcore.At(a.op, a.key, err)
	}
	o := wire.Open(ctx, info, resp, want.Offset, -1)
	o.Body.Ahead(begin, cmp.Or(want.Length, -1))
	return &o.Object, nil
}

// findPart reads up to the part and one byte of it: only then it is known that there is something.
func findPart(ctx context.Context, a *ask, resp *http.Response, info *muxcore.Info) (begin []byte, err error) {
	offset := a.opts.Range.Offset
	if offset < 0 {
		return nil, &muxcore.Error{Code: muxcore.CodeUnsupported, Err: fmt.Errorf("%w, and does not say how long the object is", errNoRanges)}
	}
	size, err := skip(ctx, a, resp, offset)
	if err == nil {
		var one [1]byte
		n, err := io.ReadFull(resp.Body, one[:])
		if n == 1 {
			return bytes.Clone(one[:]), nil
		}
		if !errors.Is(err, io.EOF) {
			return nil, wire.Broke(ctx, a.op, a.key, err)
		}
	} else if !errors.Is(err, io.EOF) {
		return nil, err
	}
	known := *info
	known.Size = size
	return nil, &muxcore.Error{Code: muxcore.CodeRangeNotSatisfiable, Info: &known}
}

// skip reads n bytes of resp's body and throws them away. It returns io.EOF if there are fewer.
func skip(ctx context.Context, a *ask, resp *http.Response, n int64) (skipped int64, err error) {
	if n > maxSkip {
		return 0, &muxcore.Error{
			Code: muxcore.CodeUnsupported, Status: resp.StatusCode,
			Err: fmt.Errorf("%w, and %d bytes before the part are too many to skip", errNoRanges, n),
		}
	}
	skipped, err = io.CopyN(io.Discard, resp.Body, n)
	if err != nil && !errors.Is(err, io.EOF) {
		err = wire.Broke(ctx, a.op, a.key, err)
	}
	return skipped, err
}
