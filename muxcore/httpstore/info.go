package httpstore

import (
	"crypto/md5" // Content-MD5 is what the origin declares, not what anything is secured by
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"net/http"
	"net/textproto"
	"strings"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/internal/wire"
)

const metaPrefix = "X-Meta-"

// infoOf describes an object by an answer's header.
func infoOf(key string, resp *http.Response, size int64) muxcore.Info {
	h := resp.Header
	info := muxcore.Info{Key: key, Size: size, ETag: wire.ETag(h["Etag"]), ModTime: wire.Time(wire.First(h, "Last-Modified"))}
	info.ContentType = wire.First(h, "Content-Type")
	info.CacheControl = wire.Joined(h, "Cache-Control")
	info.ContentDisposition = wire.First(h, "Content-Disposition")
	info.ContentEncoding = wire.Joined(h, "Content-Encoding")
	info.ContentLanguage = wire.Joined(h, "Content-Language")
	info.Expires = wire.First(h, "Expires")
	for name, values := range h {
		if user, ok := strings.CutPrefix(name, metaPrefix); ok && wire.IsToken(user) {
			if info.Metadata == nil {
				info.Metadata = make(map[string]string)
			}
			info.Metadata[strings.ToLower(user)] = strings.Join(values, ", ")
		}
	}
	for _, v := range h["Repr-Digest"] {
		readReprDigest(&info.Digests, v)
	}
	return info
}

// validatorsOf describes an object by an answer about it whose other fields describe an error page.
func validatorsOf(key string, resp *http.Response) muxcore.Info {
	return muxcore.Info{Key: key, Size: -1, ETag: wire.ETag(resp.Header["Etag"]), ModTime: wire.Time(wire.First(resp.Header, "Last-Modified"))}
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
	if v := wire.First(h, "Content-Md5"); v != "" {
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
