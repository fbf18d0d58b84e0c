package caddymux

import (
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"net/textproto"
	"path"
	"slices"
	"strconv"
	"time"

	"go.uber.org/zap"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// part is what of an object an answer carries.
type part struct {
	offset, length int64 // length -1: unknown
	partial        bool  // a range: 206
}

// describe sets the fields that describe an object, the same for 200, 206 and 304, for GET and HEAD. What the uploader
// said counts more than what handlers before this one have set, and that more than what is guessed.
func (x *exchange) describe(info *muxcore.Info) {
	h := x.w.Header()
	// Caches in front must know that encode may be in between, also where this answer is not encoded; as file_server.
	if vary := h["Vary"]; len(vary) == 0 {
		x.set(h, "Vary", "Accept-Encoding")
	} else if !slices.Contains(vary, "Accept-Encoding") {
		h["Vary"] = append(vary, "Accept-Encoding")
	}
	x.validators(h, info)
	x.set(h, "Cache-Control", info.CacheControl)
	x.set(h, "Content-Disposition", info.ContentDisposition)
	x.set(h, "Content-Encoding", info.ContentEncoding)
	x.set(h, "Content-Language", info.ContentLanguage)
	x.set(h, "Expires", info.Expires)
	for name, value := range info.Metadata {
		h[metaPrefix+textproto.CanonicalMIMEHeaderKey(name)] = []string{value}
	}
	ctype := contentType(h, info)
	if ctype == "" {
		h["Content-Type"] = nil // keeps net/http from sniffing, which would make HEAD differ from GET
	}
	x.set(h, "Content-Type", ctype)
}

// validators sets the fields that tell one version of an object from another.
func (x *exchange) validators(h http.Header, info *muxcore.Info) {
	if usefulModTime(info.ModTime) {
		x.set(h, "Last-Modified", info.ModTime.UTC().Format(http.TimeFormat))
	}
	x.set(h, "Etag", info.ETag)
}

// set sets a field in canonical form, if there is a value. The values of one answer share one array, which a request has
// anyway, instead of an allocation each. No two answers share any: handlers such as header write into what they find.
func (x *exchange) set(h http.Header, name, value string) {
	switch n := x.fields; {
	case value == "":
	case n < len(x.values):
		x.values[n] = value
		h[name] = x.values[n : n+1 : n+1]
		x.fields++
	default:
		h[name] = []string{value}
	}
}

// contentType is the type of an object: as stored, else as a handler before this one has set it, else by the extension of
// the key. Bytes are never looked at.
func contentType(h http.Header, info *muxcore.Info) string {
	if info.ContentType != "" {
		return info.ContentType
	}
	if before := h["Content-Type"]; len(before) > 0 {
		return before[0]
	}
	return mime.TypeByExtension(path.Ext(info.Key))
}

// usefulModTime tells whether a time says anything; build systems set the first seconds of the epoch.
func usefulModTime(at time.Time) bool {
	return !at.IsZero() && at.Unix() != 0 && at.Unix() != 1
}

// start writes the head of an answer.
func (x *exchange) start(info *muxcore.Info, p part) {
	x.describe(info)
	h := x.w.Header()
	status := x.status
	if info.Size >= 0 && !x.plain {
		x.set(h, "Accept-Ranges", "bytes")
	}
	if p.length >= 0 {
		x.set(h, "Content-Length", strconv.FormatInt(p.length, 10))
	}
	if p.partial {
		x.set(h, "Content-Range", contentRange(p, info.Size))
		status = http.StatusPartialContent
	}
	if x.erring && status/100 == 2 {
		delete(h, "Retry-After") // of the error that is answered instead
	}
	x.w.WriteHeader(status)
	x.sink.begun = true
}

func contentRange(p part, size int64) string {
	b := make([]byte, 0, 64)
	b = append(b, "bytes "...)
	b = strconv.AppendInt(b, p.offset, 10)
	b = append(b, '-')
	b = strconv.AppendInt(b, p.offset+p.length-1, 10)
	b = append(b, '/')
	b = strconv.AppendInt(b, size, 10)
	return string(b)
}

// notModified answers 304 with the fields of a 200, but for those that http.ServeContent leaves out.
func (x *exchange) notModified(info *muxcore.Info) {
	x.describe(info)
	h := x.w.Header()
	delete(h, "Content-Type")
	delete(h, "Content-Length")
	delete(h, "Content-Encoding")
	if len(h["Etag"]) > 0 {
		delete(h, "Last-Modified")
	}
	x.w.WriteHeader(http.StatusNotModified)
}

// send writes head and body. Up to the first byte of the body an error is an answer; after it, the connection is broken
// off, as a returned error would end a chunked body cleanly.
func (x *exchange) send(info *muxcore.Info, p part, body io.Reader) error {
	x.sink = sink{x: x, info: info, part: p}
	_, err := io.Copy(&x.sink, body)
	if err == nil && p.length >= 0 && x.sink.sent != p.length {
		err = errShort
	}
	switch {
	case err == nil:
		x.sink.start()
		return nil
	case !x.sink.begun:
		return x.fail(err)
	}
	x.abort(err)
	return nil
}

// abort breaks the connection off.
func (x *exchange) abort(err error) {
	x.erred(err)
	level := zap.WarnLevel
	if x.r.Context().Err() != nil || x.sink.gone {
		level = zap.DebugLevel // the client went away, which is nobody's fault
	}
	if c := x.h.logger.Check(level, "aborting with incomplete response"); c != nil {
		c.Write(zap.String("tree", x.t.name), zap.String("backend", x.result.via.Backend),
			zap.Int64("sent", x.sink.sent), zap.Error(withoutKey(err)))
	}
	x.reset()
	panic(http.ErrAbortHandler)
}

// reset resets the connection where its orderly end would be the end of the body: that of HTTP/1.0 without a length.
func (x *exchange) reset() {
	if x.r.ProtoMajor != 1 || x.r.ProtoMinor != 0 || x.w.Header().Get("Content-Length") != "" {
		return
	}
	conn, _, err := http.NewResponseController(x.w).Hijack()
	if err != nil {
		return
	}
	raw := conn
	if secured, ok := conn.(interface{ NetConn() net.Conn }); ok {
		raw = secured.NetConn() // closed without a word, which TLS tells from an end
	}
	if c, ok := raw.(interface{ SetLinger(seconds int) error }); ok {
		_ = c.SetLinger(0)
	}
	_ = raw.Close()
}

// sink writes the head of the answer before the first byte of the body.
type sink struct {
	x     *exchange
	info  *muxcore.Info
	part  part
	begun bool
	gone  bool // writing failed
	sent  int64
}

func (s *sink) start() {
	if !s.begun {
		s.x.start(s.info, s.part)
	}
}

// Write implements io.Writer.
func (s *sink) Write(p []byte) (int, error) {
	s.start()
	n, err := s.x.w.Write(p)
	s.wrote(int64(n), err)
	return n, err
}

func (s *sink) wrote(n int64, err error) {
	s.sent += n
	s.gone = s.gone || err != nil
}

// errShort is a body that ended before its time.
var errShort = errors.New("body ended early")
