package httpstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// maxSkip is how much of a body is read and thrown away to get at a part that the origin did not cut out.
const maxSkip = 4 << 20

var (
	errEndless  = errors.New("nothing marks the end of the body: a cut one could not be told from a whole one")
	errNoRanges = errors.New("the origin ignores ranges")
)

// opened is an object with its body, so that a Get allocates once for both.
type opened struct {
	object muxcore.Object
	body   body
}

// open hands out the body of resp, of which take bytes are the object's, or all if that is negative.
func open(ctx context.Context, info *muxcore.Info, resp *http.Response, offset, take int64) *opened {
	o := &opened{object: muxcore.Object{Info: *info, Offset: offset, Length: take}}
	o.body = body{ctx: ctx, src: resp.Body, key: info.Key, left: take, exact: take >= 0, wire: resp.ContentLength}
	o.object.Body = &o.body
	return o
}

// openPart opens a 206. It must be exactly the part that was asked for.
func openPart(ctx context.Context, a *ask, resp *http.Response) (*muxcore.Object, error) {
	v := first(resp.Header, "Content-Range")
	r, ok := parseContentRange(v)
	want := a.opts.Range
	if ok && !r.has && r.size == 0 {
		resp.ContentLength = 0
		return openWhole(ctx, a, resp)
	}
	if !ok || !r.has || !r.answers(want) || resp.ContentLength >= 0 && resp.ContentLength != r.length() {
		drain(resp)
		return nil, lied(a.op, a.key, resp, "Content-Range %q of %d bytes for %q", v, resp.ContentLength, rangeField(want))
	}
	info := infoOf(a.key, resp, r.sizeFor(want))
	if err := a.opts.Conditions.CheckRead(&info); err != nil {
		drain(resp)
		return nil, at(a.op, a.key, err)
	}
	take := r.length()
	if want.Offset < 0 && want.Length > 0 {
		take = min(take, want.Length)
	}
	o := open(ctx, &info, resp, r.first, take)
	if info.Size < 0 {
		o.object.Length = -1
	}
	return &o.object, nil
}

// sizeFor is the size of the object that the part belongs to, -1 unknown. A part that ends before the asked one, or that
// was asked to go to the end, ends where the object does.
func (r *contentRange) sizeFor(want muxcore.Range) int64 {
	if r.size < 0 && (want.Offset < 0 || r.last < lastOf(want)) {
		return r.last + 1
	}
	return r.size
}

// answers tells whether the part is the one that was asked for.
func (r *contentRange) answers(want muxcore.Range) bool {
	size := r.sizeFor(want)
	if want.Offset < 0 {
		return r.first == max(0, size+want.Offset) && r.last == size-1
	}
	last := lastOf(want)
	if size >= 0 {
		last = min(last, size-1)
	}
	return r.first == want.Offset && r.last == last
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
		drain(resp)
		return nil, at(a.op, a.key, err)
	}
	o := open(ctx, &info, resp, offset, length)
	o.body.wire -= offset
	return &o.object, nil
}

// openUnsized opens a 200 of unknown length.
func openUnsized(ctx context.Context, a *ask, resp *http.Response, info *muxcore.Info) (*muxcore.Object, error) {
	err := a.opts.Conditions.CheckRead(info)
	if err == nil && resp.ProtoMajor == 1 && len(resp.TransferEncoding) == 0 && resp.TLS == nil {
		err = &muxcore.Error{Code: muxcore.CodeUnavailable, Err: errEndless}
	}
	if err != nil {
		_ = resp.Body.Close()
		return nil, at(a.op, a.key, err)
	}
	want := a.opts.Range
	if want == (muxcore.Range{}) || !a.opts.RangeApplies(info) {
		return &open(ctx, info, resp, 0, -1).object, nil
	}
	begin, err := findPart(ctx, a, resp, info)
	if err != nil {
		_ = resp.Body.Close()
		return nil, at(a.op, a.key, err)
	}
	o := open(ctx, info, resp, want.Offset, -1)
	o.body.head = begin
	if want.Length > 0 {
		o.body.left = want.Length
	}
	return &o.object, nil
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
			return nil, broke(ctx, a.op, a.key, err)
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
		err = broke(ctx, a.op, a.key, err)
	}
	return skipped, err
}
