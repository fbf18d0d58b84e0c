package swiftstore

import (
	"crypto/md5" // Swift's ETag, not what anything is secured by
	"fmt"
	"net/http"
	"strings"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/internal/wire"
)

// untyped is the type of an object of which no type is known.
const untyped = "application/octet-stream"

// infoOf describes an object by an answer's header.
func infoOf(key string, h http.Header, size int64) muxcore.Info {
	info := muxcore.Info{
		Key: key, Size: size, ETag: wire.ETag(h["Etag"]), ModTime: wire.Time(wire.First(h, "Last-Modified")),
		Attributes: muxcore.Attributes{
			ContentType:        wire.First(h, "Content-Type"),
			CacheControl:       wire.Joined(h, "Cache-Control"),
			ContentDisposition: wire.First(h, "Content-Disposition"),
			ContentEncoding:    wire.Joined(h, "Content-Encoding"),
			ContentLanguage:    wire.Joined(h, "Content-Language"),
			Expires:            wire.First(h, "Expires"),
		},
	}
	if _, large := largeOf(h); !large {
		info.Digests.MD5 = md5Of(info.ETag)
	}
	if r := readRecord(h); r != nil {
		r.into(&info)
	} else {
		info.Metadata = foreignMetadata(h)
	}
	wire.Fields(&info.Attributes)
	return info
}

// md5Of is the digest that Swift's ETag of a plain object is.
func md5Of(tag string) []byte { return digest(strings.Trim(tag, `"`), md5.Size) }

// foreignMetadata is what others have put with an object.
func foreignMetadata(h http.Header) map[string]string {
	const prefix = "X-Object-Meta-"
	var meta map[string]string
	for name, values := range h {
		if len(name) > len(prefix) && strings.HasPrefix(name, prefix) {
			if meta == nil {
				meta = make(map[string]string)
			}
			meta[strings.ToLower(name[len(prefix):])] = strings.Join(values, ", ")
		}
	}
	return meta
}

// attributeFields adds what an uploader says about an object.
func attributeFields(h http.Header, opts *muxcore.PutOptions) error {
	kind := opts.ContentType
	if kind == "" {
		kind = untyped // else Swift goes by the name
	}
	for _, f := range [...]struct{ name, value string }{
		{"Content-Type", kind},
		{"Cache-Control", opts.CacheControl},
		{"Content-Disposition", opts.ContentDisposition},
		{"Content-Encoding", opts.ContentEncoding},
		{"Content-Language", opts.ContentLanguage},
		{"Expires", opts.Expires},
	} {
		if !wire.IsFieldValue(f.value) {
			return fmt.Errorf("%s has a character that no header field may have", f.name)
		}
		if f.value != "" {
			h[f.name] = []string{f.value}
		}
	}
	return recordOf(opts).fields(h)
}
