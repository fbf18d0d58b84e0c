package httpstore

import (
	"crypto/md5" // Content-MD5 is what the origin declares, not what anything is secured by
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"net/http"
	"net/textproto"
	"strings"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

const metaPrefix = "X-Meta-"

// infoOf describes an object by an answer's header.
func infoOf(key string, resp *http.Response, size int64) muxcore.Info {
	h := resp.Header
	info := muxcore.Info{Key: key, Size: size, ETag: etagOf(h["Etag"]), ModTime: timeOf(first(h, "Last-Modified"))}
	info.ContentType = first(h, "Content-Type")
	info.CacheControl = joined(h, "Cache-Control")
	info.ContentDisposition = first(h, "Content-Disposition")
	info.ContentEncoding = joined(h, "Content-Encoding")
	info.ContentLanguage = joined(h, "Content-Language")
	info.Expires = first(h, "Expires")
	for name, values := range h {
		if strings.HasPrefix(name, metaPrefix) && len(name) > len(metaPrefix) {
			if info.Metadata == nil {
				info.Metadata = make(map[string]string)
			}
			info.Metadata[strings.ToLower(name[len(metaPrefix):])] = strings.Join(values, ", ")
		}
	}
	for _, v := range h["Repr-Digest"] {
		readReprDigest(&info.Digests, v)
	}
	return info
}

// validatorsOf describes an object by an answer about it whose other fields describe an error page.
func validatorsOf(key string, resp *http.Response) muxcore.Info {
	return muxcore.Info{Key: key, Size: -1, ETag: etagOf(resp.Header["Etag"]), ModTime: timeOf(first(resp.Header, "Last-Modified"))}
}

// first is the value of a field by its canonical name.
func first(h http.Header, name string) string {
	if v := h[name]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// joined is the value of a field that is a list.
func joined(h http.Header, name string) string {
	v := h[name]
	if len(v) <= 1 {
		return first(h, name)
	}
	return strings.Join(v, ", ")
}

// etagOf is the entity tag in a field, with quotes where the origin left them out; "" if it is none.
func etagOf(values []string) string {
	if len(values) != 1 {
		return ""
	}
	v := textproto.TrimString(values[0])
	if tag, rest, ok := muxcore.CutETag(v); ok {
		if rest == "" {
			return tag
		}
		return ""
	}
	weak, opaque := "", v
	if rest, ok := cutWeak(v); ok {
		weak, opaque = "W/", rest
	}
	if n := len(opaque); n >= 2 && opaque[0] == '"' && opaque[n-1] == '"' { // only the W was wrong
		opaque = opaque[1 : n-1]
	}
	for i := range len(opaque) {
		if c := opaque[i]; c <= ' ' || c == '"' || c == ',' || c == 0x7F {
			return ""
		}
	}
	if opaque == "" {
		return ""
	}
	return weak + `"` + opaque + `"`
}

func cutWeak(v string) (string, bool) {
	if rest, ok := strings.CutPrefix(v, "W/"); ok {
		return rest, true
	}
	return strings.CutPrefix(v, "w/")
}

// timeOf is an HTTP date, or zero.
func timeOf(v string) time.Time {
	if v == "" {
		return time.Time{}
	}
	t, err := http.ParseTime(v)
	if err != nil {
		return time.Time{}
	}
	return t
}

// readReprDigest takes what it knows of a Repr-Digest field (RFC 9530), a dictionary of byte sequences.
func readReprDigest(d *muxcore.Digests, v string) {
	for member := range strings.SplitSeq(v, ",") {
		name, value, _ := strings.Cut(textproto.TrimString(member), "=")
		value, ok := strings.CutPrefix(value, ":")
		if !ok {
			continue
		}
		value, _, ok = strings.Cut(value, ":")
		if !ok {
			continue
		}
		switch name {
		case "sha-256":
			d.SHA256 = digestOf(value, sha256.Size)
		case "sha-512":
			d.SHA512 = digestOf(value, sha512.Size)
		}
	}
}

// contentMD5 is the digest of a whole body.
func contentMD5(h http.Header) []byte {
	if v := first(h, "Content-Md5"); v != "" {
		return digestOf(textproto.TrimString(v), md5.Size)
	}
	return nil
}

func digestOf(text string, size int) []byte {
	sum, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(sum) != size {
		return nil
	}
	return sum
}
