package caddymux

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

const (
	metaPrefix = "X-Meta-"

	// maxMeta is the most that names and values of user metadata may take together.
	maxMeta = 2 << 10
)

// writeKey is the key that a PUT or DELETE is for.
func (x *exchange) writeKey() (string, error) {
	prefix, err := x.prefix()
	if err != nil {
		return "", err
	}
	key, err := keyOf(x.r.URL)
	if err != nil {
		return "", err
	}
	if key == "" { // never the prefix itself
		return "", muxcore.CheckKey(key)
	}
	return prefix + key, muxcore.CheckKey(prefix + key)
}

// put answers PUT. All that can be refused without the body is refused before it is asked for, as the first read of it
// makes the server send 100 (Continue).
func (x *exchange) put() error {
	key, err := x.writeKey()
	if err != nil {
		return x.fail(err)
	}
	if x.hides(key) {
		return x.missing(key)
	}
	h := x.r.Header
	if framedForAWS(h) {
		return x.refuse(http.StatusNotImplemented, "aws-chunked framing is not understood, and would end up in the object")
	}
	if len(h["Content-Range"]) > 0 {
		return x.refuse(http.StatusBadRequest, "Content-Range: only whole objects can be put")
	}
	if err := checkConditions(h); err != nil {
		return x.refuse(http.StatusBadRequest, "%w", err)
	}
	opts := muxcore.PutOptions{Conditions: writeConditions(h)}
	if opts.Digests, err = declaredDigests(h); err != nil {
		return x.refuse(http.StatusBadRequest, "%w", err)
	}
	if opts.Attributes, err = attributesOf(h); err != nil {
		return x.refuse(http.StatusBadRequest, "%w", err)
	}
	body := &uploadBody{src: x.r.Body, max: x.h.MaxSize}
	if body.max > 0 && x.r.ContentLength > body.max {
		return x.fail(body.tooLarge())
	}
	if x.r.ContentLength == 0 {
		body.src = http.NoBody
	}
	if !opts.Conditions.Empty() && strings.EqualFold(h.Get("Expect"), "100-continue") {
		if err := x.t.store.CheckPut(x.r.Context(), key, opts); err != nil {
			return x.fail(err)
		}
	}
	res, err := x.t.store.Put(x.r.Context(), key, body, x.r.ContentLength, opts)
	if err != nil {
		return x.putError(err, body)
	}
	x.stored(&res)
	return nil
}

// stored answers a PUT that was one.
func (x *exchange) stored(res *muxcore.PutResult) {
	x.answered(res.Via)
	h := x.w.Header()
	x.set(h, "Etag", res.ETag)
	if usefulModTime(res.ModTime) {
		h.Set("Last-Modified", res.ModTime.UTC().Format(http.TimeFormat))
	}
	x.partial(res.Missed)
	if res.Existed {
		x.w.WriteHeader(http.StatusNoContent)
		return
	}
	h.Set("Content-Length", "0")
	x.w.WriteHeader(http.StatusCreated)
}

// putError tells the uploader's faults from those of the stores. A body that broke off is one, although the uploader may
// be gone by then.
func (x *exchange) putError(err error, body *uploadBody) error {
	if body.err == nil {
		return x.fail(err)
	}
	x.erred(body.err)
	x.result.class = muxcore.ClassSemantic
	return x.failed(body.err)
}

// del answers DELETE.
func (x *exchange) del() error {
	key, err := x.writeKey()
	if err != nil {
		return x.fail(err)
	}
	if x.hides(key) {
		return x.missing(key)
	}
	if err := checkConditions(x.r.Header); err != nil {
		return x.refuse(http.StatusBadRequest, "%w", err)
	}
	res, err := x.t.store.Delete(x.r.Context(), key, muxcore.DeleteOptions{Conditions: writeConditions(x.r.Header)})
	if err != nil {
		return x.fail(err)
	}
	x.answered(res.Via)
	x.partial(res.Missed)
	x.w.WriteHeader(http.StatusNoContent)
	return nil
}

// partial names the backends that missed a write.
func (x *exchange) partial(missed []string) {
	if len(missed) > 0 {
		x.w.Header().Set("Storage-Mux-Partial", strings.Join(missed, ", "))
	}
}

// framedForAWS tells whether the body is in the chunk framing of S3 clients, which is no content coding that may be stored.
func framedForAWS(h http.Header) bool {
	if strings.HasPrefix(h.Get("X-Amz-Content-Sha256"), "STREAMING-") {
		return true
	}
	for _, line := range h["Content-Encoding"] {
		for coding := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.TrimSpace(coding), "aws-chunked") {
				return true
			}
		}
	}
	return false
}

// attributesOf reads what the uploader says about the object.
func attributesOf(h http.Header) (muxcore.Attributes, error) {
	a := muxcore.Attributes{
		ContentType:        h.Get("Content-Type"),
		CacheControl:       listField(h, "Cache-Control"),
		ContentDisposition: h.Get("Content-Disposition"),
		ContentEncoding:    listField(h, "Content-Encoding"),
		ContentLanguage:    listField(h, "Content-Language"),
		Expires:            h.Get("Expires"),
	}
	total := 0
	for field, values := range h {
		if !strings.HasPrefix(field, metaPrefix) {
			continue
		}
		name, value := strings.ToLower(field[len(metaPrefix):]), strings.Join(values, ", ")
		total += len(name) + len(value)
		switch {
		case name == "":
			return a, errors.New(metaPrefix + ": name is missing")
		case !printable(name), !printable(value):
			return a, fieldError{metaPrefix + url.PathEscape(name), errors.New("only ASCII can be stored")}
		case total > maxMeta:
			return a, fieldError{metaPrefix + "*", errors.New("more than 2 KiB of metadata")}
		}
		if a.Metadata == nil {
			a.Metadata = make(map[string]string)
		}
		a.Metadata[name] = value
	}
	return a, nil
}

// printable tells whether s is ASCII without control characters.
func printable(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// uploadBody is the body of a PUT. It remembers with what error the uploader ended it.
type uploadBody struct {
	src io.Reader
	max int64 // 0: no limit
	n   int64
	err error
}

// Read implements io.Reader.
func (b *uploadBody) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	n, err := b.src.Read(p)
	b.n += int64(n)
	switch {
	case b.max > 0 && b.n > b.max:
		b.err = b.tooLarge()
		return 0, b.err
	case err != nil && !errors.Is(err, io.EOF):
		b.err = uploadError(err)
		return n, b.err
	}
	return n, err
}

func (b *uploadBody) tooLarge() error {
	return &muxcore.Error{Code: muxcore.CodeTooLarge, Err: errors.New("larger than max_size")}
}

// uploadError says what a failed read of the request's body means. Whatever it is, no backend is to blame.
func uploadError(err error) error {
	if _, ok := errors.AsType[caddyhttp.HandlerError](err); ok {
		return err
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return &muxcore.Error{Code: muxcore.CodeTooLarge, Err: err}
	}
	if nerr, ok := errors.AsType[net.Error](err); ok && nerr.Timeout() {
		return caddyhttp.Error(http.StatusRequestTimeout, err)
	}
	return &muxcore.Error{Code: muxcore.CodeBodyMismatch, Err: err}
}
