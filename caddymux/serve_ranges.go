package caddymux

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"strconv"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// getRanges answers GET with several ranges. Each part is opened by itself, from any backend that has the very object that
// the answer began with; an object without a strong entity tag is served whole.
func (x *exchange) getRanges(key string, opts muxcore.GetOptions, ranges []muxcore.Range) error {
	info, err := x.t.store.Stat(x.r.Context(), key, opts.Conditions)
	if err != nil {
		return x.readError(err)
	}
	x.answered(info.Via)
	if info.Size <= 0 || !muxcore.IsStrong(info.ETag) || !opts.RangeApplies(&info) {
		return x.getPart(key, opts, false)
	}
	parts, ok := satisfiable(ranges, info.Size)
	switch {
	case !ok:
		return x.fail(&muxcore.Error{Code: muxcore.CodeRangeNotSatisfiable, Key: key, Info: &info})
	case len(parts) == 0:
		return x.getPart(key, opts, false)
	case len(parts) == 1:
		opts.Range = muxcore.Range{Offset: parts[0].offset, Length: parts[0].length}
		return x.getPart(key, opts, true)
	}
	known := info
	first, err := x.openPart(key, &known, parts[0])
	if err != nil {
		// Replaced between the two calls, or whoever told of the object is gone: another may have another version, whole.
		return x.getPart(key, opts, false)
	}
	body := &multipartBody{x: x, key: key, of: &known, parts: parts, open: first}
	defer body.close()
	status := x.status
	size := body.describe(&info)
	if size > smallMultipart {
		return x.send(&info, part{length: size}, body)
	}
	whole := bytes.NewBuffer(make([]byte, 0, size))
	if _, err := body.WriteTo(whole); err != nil {
		x.status = status
		return x.getPart(key, opts, false) // the same happened between two parts, of which none has gone out
	}
	return x.send(&info, part{length: size}, whole)
}

// smallMultipart is the longest multipart answer that is put together before it begins: as long as a body that the core
// reads ahead whole.
const smallMultipart = 32 << 10

// headRanges answers HEAD with several ranges.
func (x *exchange) headRanges(info *muxcore.Info, ranges []muxcore.Range) error {
	parts, ok := satisfiable(ranges, info.Size)
	switch {
	case !muxcore.IsStrong(info.ETag), ok && len(parts) == 0:
		x.start(info, part{length: info.Size})
	case !ok:
		return x.fail(&muxcore.Error{Code: muxcore.CodeRangeNotSatisfiable, Key: info.Key, Info: info})
	case len(parts) == 1:
		x.start(info, parts[0])
	default:
		body := &multipartBody{x: x, parts: parts}
		x.start(info, part{length: body.describe(info)})
	}
	return nil
}

// satisfiable fits ranges to an object of that size, which is not empty. ok is false if none of them is in it. No parts
// and ok: together they are more than the object, so that it is better sent whole.
func satisfiable(ranges []muxcore.Range, size int64) (parts []part, ok bool) {
	sum := int64(0)
	for _, r := range ranges {
		if r == nothing {
			continue
		}
		opts := muxcore.GetOptions{Range: r}
		offset, length, err := opts.Resolve(&muxcore.Info{Size: size})
		if err != nil {
			continue
		}
		parts = append(parts, part{offset, length, true})
		sum += length
	}
	if sum > size {
		return nil, true
	}
	return parts, len(parts) > 0
}

// openPart opens one part of that very object.
func (x *exchange) openPart(key string, of *muxcore.Info, p part) (*muxcore.Object, error) {
	obj, err := x.t.store.Get(x.r.Context(), key, muxcore.GetOptions{
		Range:      muxcore.Range{Offset: p.offset, Length: p.length},
		Conditions: muxcore.Conditions{IfMatch: of.ETag},
		Same:       of,
	})
	if err != nil {
		return nil, err
	}
	if obj.Offset != p.offset || obj.Length != p.length || !muxcore.SameIdentity(of, &obj.Info) {
		_ = obj.Body.Close()
		return nil, &muxcore.Error{Code: muxcore.CodeUnavailable, Key: key, Err: errors.New("backend opened something else")}
	}
	return obj, nil
}

// multipartBody is the body of a multipart/byteranges answer. It holds one part open at a time.
type multipartBody struct {
	x        *exchange
	key      string
	of       *muxcore.Info
	parts    []part
	open     *muxcore.Object // the first part, opened before the answer began
	boundary string
	ctype    string
	size     int64 // of the object
}

// describe makes the answer one of several parts and computes its length.
func (m *multipartBody) describe(info *muxcore.Info) int64 {
	var token [30]byte
	_, _ = rand.Read(token[:]) // never fails
	m.boundary, m.size = hex.EncodeToString(token[:]), info.Size
	m.ctype = contentType(m.x.w.Header(), info)
	info.ContentType = "multipart/byteranges; boundary=" + m.boundary
	m.x.status = http.StatusPartialContent
	length := int64(len(m.tail()))
	for i, p := range m.parts {
		length += int64(len(m.partHead(i))) + p.length
	}
	return length
}

// partHead is what stands before the bytes of a part, in the form that mime/multipart gives it.
func (m *multipartBody) partHead(i int) string {
	s := "--" + m.boundary + "\r\nContent-Range: " + contentRange(m.parts[i], m.size) + "\r\n"
	if m.ctype != "" {
		s += "Content-Type: " + m.ctype + "\r\n"
	}
	if i > 0 {
		s = "\r\n" + s
	}
	return s + "\r\n"
}

func (m *multipartBody) tail() string { return "\r\n--" + m.boundary + "--\r\n" }

// WriteTo implements io.WriterTo.
func (m *multipartBody) WriteTo(w io.Writer) (int64, error) {
	var written int64
	for i, p := range m.parts {
		n, err := m.writePart(w, i, p)
		written += n
		if err != nil {
			return written, err
		}
	}
	n, err := io.WriteString(w, m.tail())
	return written + int64(n), err
}

func (m *multipartBody) writePart(w io.Writer, i int, p part) (int64, error) {
	if m.open == nil {
		obj, err := m.x.openPart(m.key, m.of, p)
		if err != nil {
			return 0, err
		}
		m.open = obj
	}
	n, err := io.WriteString(w, m.partHead(i))
	if err != nil {
		return int64(n), err
	}
	sent, err := io.Copy(w, m.open.Body)
	m.close()
	if err == nil && sent != p.length {
		err = errShort
	}
	return int64(n) + sent, err
}

// Read implements io.Reader; io.Copy goes by WriteTo.
func (m *multipartBody) Read([]byte) (int, error) {
	return 0, errors.New("multipart body: only WriteTo, part " + strconv.Itoa(len(m.parts)))
}

func (m *multipartBody) close() {
	if m.open != nil {
		_ = m.open.Body.Close()
		m.open = nil
	}
}
