package httpstore

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/textproto"
	"net/url"
	"strings"

	"go.opentelemetry.io/otel/trace"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/internal/wire"
)

// own are the fields that the store or the connection sets.
var own = map[string]bool{
	"Connection": true, "Content-Length": true, "Content-Range": true, "Depth": true, "Expect": true, "If-Match": true, "If-Modified-Since": true,
	"If-None-Match": true, "If-Range": true, "If-Unmodified-Since": true, "Keep-Alive": true, "Proxy-Connection": true, "Range": true,
	"Te": true, "Trailer": true, "Transfer-Encoding": true, "Upgrade": true,
}

// originHeader makes the header of every request to the origin from what was configured. No error quotes a value.
func originHeader(configured http.Header, user *url.Userinfo) (header http.Header, host string, err error) {
	header = make(http.Header, len(configured)+3)
	for name, values := range configured {
		canonical := textproto.CanonicalMIMEHeaderKey(name)
		switch {
		case !wire.IsToken(name):
			return nil, "", fmt.Errorf("header: %q is not the name of a field", name)
		case own[canonical]:
			return nil, "", fmt.Errorf("header: %s cannot be set, the store does", canonical)
		}
		for _, v := range values {
			if !wire.IsFieldValue(v) {
				return nil, "", fmt.Errorf("header: the value of %s has a character that no field may have", canonical)
			}
			if canonical == "Host" {
				host = v
				continue
			}
			header[canonical] = append(header[canonical], v)
		}
	}
	if user != nil {
		if header["Authorization"] != nil {
			return nil, "", errors.New("header: Authorization cannot be set beside the credentials in base_url")
		}
		password, _ := user.Password()
		header["Authorization"] = []string{"Basic " + base64.StdEncoding.EncodeToString([]byte(user.Username()+":"+password))}
	}
	if header["Accept-Encoding"] == nil {
		header["Accept-Encoding"] = []string{"identity"}
	}
	if header["User-Agent"] == nil {
		header["User-Agent"] = []string{wire.UserAgent}
	}
	return header, host, nil
}

// dropHopByHop drops the fields that an answer says are for this connection alone (RFC 9110, section 7.6.1).
func dropHopByHop(h http.Header) {
	for _, v := range h["Connection"] {
		for name := range strings.SplitSeq(v, ",") {
			delete(h, textproto.CanonicalMIMEHeaderKey(textproto.TrimString(name)))
		}
	}
}

// traced is header, with the caller's trace context if there is one. What it returns may be shared.
func (s *Store) traced(ctx context.Context, header http.Header) http.Header {
	sc := trace.SpanContextFromContext(ctx)
	if !sc.IsValid() {
		return header
	}
	h := maps.Clone(header)
	addTrace(h, sc)
	return h
}

// addTrace adds the fields of W3C Trace Context.
func addTrace(h http.Header, sc trace.SpanContext) {
	flags := sc.TraceFlags() & trace.FlagsSampled
	h["Traceparent"] = []string{"00-" + sc.TraceID().String() + "-" + sc.SpanID().String() + "-" + flags.String()}
	if state := sc.TraceState(); state.Len() > 0 {
		h["Tracestate"] = []string{state.String()}
	}
}

// addConditions adds the fields of cond, but for a date that an entity tag overrides: not every origin knows that. What
// cannot be sent is left out: reads are checked again on what comes back.
func addConditions(h http.Header, cond *muxcore.Conditions) {
	if cond.IfMatch != "" && wire.IsFieldValue(cond.IfMatch) {
		h["If-Match"] = []string{cond.IfMatch}
	}
	if cond.IfNoneMatch != "" && wire.IsFieldValue(cond.IfNoneMatch) {
		h["If-None-Match"] = []string{cond.IfNoneMatch}
	}
	if !cond.IfModifiedSince.IsZero() && cond.IfNoneMatch == "" {
		h["If-Modified-Since"] = []string{cond.IfModifiedSince.UTC().Format(http.TimeFormat)}
	}
	if !cond.IfUnmodifiedSince.IsZero() && cond.IfMatch == "" {
		h["If-Unmodified-Since"] = []string{cond.IfUnmodifiedSince.UTC().Format(http.TimeFormat)}
	}
}

// addAttributes adds what an uploader says about an object.
func addAttributes(h http.Header, opts *muxcore.PutOptions) error {
	a := &opts.Attributes
	for _, f := range [...]struct{ name, value string }{
		{"Content-Type", a.ContentType},
		{"Cache-Control", a.CacheControl},
		{"Content-Disposition", a.ContentDisposition},
		{"Content-Encoding", a.ContentEncoding},
		{"Content-Language", a.ContentLanguage},
		{"Expires", a.Expires},
	} {
		if !wire.IsFieldValue(f.value) {
			return fmt.Errorf("%s has a character that no header field may have", f.name)
		}
		if f.value != "" {
			h[f.name] = []string{f.value}
		}
	}
	for name, value := range a.Metadata {
		if !wire.IsToken(name) || !wire.IsFieldValue(value) {
			return fmt.Errorf("metadata %q cannot be sent in a header field", name)
		}
		h[textproto.CanonicalMIMEHeaderKey(metaPrefix+name)] = []string{value}
	}
	addDigests(h, &opts.Digests)
	return nil
}

// addDigests lets an origin that knows how verify the body as well.
func addDigests(h http.Header, d *muxcore.Digests) {
	if d.MD5 != nil {
		h["Content-Md5"] = []string{base64.StdEncoding.EncodeToString(d.MD5)}
	}
	var repr []string
	if d.SHA256 != nil {
		repr = append(repr, "sha-256=:"+base64.StdEncoding.EncodeToString(d.SHA256)+":")
	}
	if d.SHA512 != nil {
		repr = append(repr, "sha-512=:"+base64.StdEncoding.EncodeToString(d.SHA512)+":")
	}
	if repr != nil {
		h["Repr-Digest"] = []string{strings.Join(repr, ", ")}
	}
}
