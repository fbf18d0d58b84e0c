package s3store

import (
	"crypto/md5" // what clients declare, not what anything is secured by
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/textproto"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/internal/wire"
)

// What is kept in user metadata: our own under ownPrefix, the user's as it is, except that a name which begins like ours
// gets theirs in between.
const (
	metaPrefix = "X-Amz-Meta-"
	ownPrefix  = "storage-mux-"
	theirs     = ownPrefix + "m-"
)

// systemFields are the attributes that S3 keeps itself.
func systemFields(a *muxcore.Attributes) []systemField {
	return []systemField{
		{"Content-Type", "type", &a.ContentType},
		{"Cache-Control", "cache-control", &a.CacheControl},
		{"Content-Disposition", "disposition", &a.ContentDisposition},
		{"Content-Encoding", "encoding", &a.ContentEncoding},
		{"Content-Language", "language", &a.ContentLanguage},
		{"Expires", "expires", &a.Expires},
	}
}

type systemField struct {
	name  string
	own   string // its name in metadata, where the field itself would not come back as it was
	value *string
}

// header describes what is put, of size bytes, -1 unknown.
func (s *Store) header(key string, opts *muxcore.PutOptions, size int64) (http.Header, error) {
	h := make(http.Header, 16)
	a := opts.Attributes
	untyped := a.ContentType == ""
	if untyped {
		a.ContentType = mime.TypeByExtension(path.Ext(key))
		if a.ContentType == "" {
			a.ContentType = "application/octet-stream"
		}
		h[own("untyped")] = []string{"1"}
	}
	for _, f := range systemFields(&a) {
		switch v := *f.value; {
		case !wire.IsFieldValue(v):
			return nil, fmt.Errorf("%s has a character that no header field may have", f.name)
		case v == "":
		case !plain(v) || f.name == "Expires" && wire.Time(v).IsZero():
			h[own(f.own)] = []string{encode(v)}
		default:
			h[f.name] = []string{v}
		}
	}
	for name, v := range a.Metadata {
		if !wire.IsToken(name) || !wire.IsFieldValue(v) {
			return nil, fmt.Errorf("metadata %q cannot be sent in a header field", name)
		}
		if strings.HasPrefix(name, ownPrefix) {
			name = theirs + name
		}
		h[textproto.CanonicalMIMEHeaderKey(metaPrefix+name)] = []string{encode(v)}
	}
	if opts.ETag != "" {
		if !muxcore.IsStrong(opts.ETag) {
			return nil, errors.New("the ETag to store is not a strong one")
		}
		h[own("etag")] = []string{encode(opts.ETag)}
	}
	if !opts.ModTime.IsZero() {
		h[own("mtime")] = []string{opts.ModTime.UTC().Format(time.RFC3339Nano)}
	}
	if size >= 0 {
		h[own("size")] = []string{strconv.FormatInt(size, 10)}
	}
	for name, sum := range map[string][]byte{"md5": opts.Digests.MD5, "sha256": opts.Digests.SHA256, "sha512": opts.Digests.SHA512} {
		if sum != nil {
			h[own(name)] = []string{hex.EncodeToString(sum)}
		}
	}
	if s.class != "" {
		h["X-Amz-Storage-Class"] = []string{s.class}
	}
	return h, nil
}

func own(name string) string { return textproto.CanonicalMIMEHeaderKey(metaPrefix + ownPrefix + name) }

// plain tells whether v comes back from any server as it was.
func plain(v string) bool {
	for i := range len(v) {
		if v[i] < ' ' || v[i] > '~' {
			return false
		}
	}
	return v != "" && v[0] != ' ' && v[len(v)-1] != ' ' && !strings.Contains(v, "  ") && !strings.Contains(v, "=?")
}

// encode makes v one encoded word of RFC 2047 if it is not plain.
func encode(v string) string {
	if plain(v) {
		return v
	}
	return "=?utf-8?b?" + base64.StdEncoding.EncodeToString([]byte(v)) + "?="
}

func decode(v string) string {
	if text, ok := strings.CutPrefix(v, "=?utf-8?b?"); ok {
		if raw, err := base64.StdEncoding.DecodeString(strings.TrimSuffix(text, "?=")); err == nil {
			return string(raw)
		}
	}
	if strings.Contains(v, "=?") {
		if text, err := new(mime.WordDecoder).DecodeHeader(v); err == nil {
			return text
		}
	}
	return v
}

// found is an object as S3 has it.
type found struct {
	info   muxcore.Info
	native string // the service's own ETag
}

// foundIn describes an object of size bytes by an answer's header.
func foundIn(key string, h http.Header, size int64) found {
	f := found{native: wire.ETag(h["Etag"])}
	f.info = muxcore.Info{Key: key, Size: size, ETag: f.native, ModTime: wire.Time(wire.First(h, "Last-Modified"))}
	for _, field := range systemFields(&f.info.Attributes) {
		*field.value = wire.Joined(h, field.name)
	}
	ours := map[string]string{}
	for name, values := range h {
		if !strings.HasPrefix(name, metaPrefix) || len(name) == len(metaPrefix) {
			continue
		}
		short, v := strings.ToLower(name[len(metaPrefix):]), decode(strings.Join(values, ", "))
		if rest, ok := strings.CutPrefix(short, theirs); ok {
			short = rest
		} else if rest, ok := strings.CutPrefix(short, ownPrefix); ok {
			ours[rest] = v
			continue
		}
		if f.info.Metadata == nil {
			f.info.Metadata = make(map[string]string)
		}
		f.info.Metadata[short] = v
	}
	f.identify(ours)
	wire.Fields(&f.info.Attributes)
	return f
}

// identify takes what we have stored, unless the bytes are no longer those it was stored for.
func (f *found) identify(ours map[string]string) {
	info := &f.info
	for _, field := range systemFields(&info.Attributes) {
		if v, ok := ours[field.own]; ok {
			*field.value = v
		}
	}
	if ours["untyped"] != "" {
		info.ContentType = ""
	}
	if size, ok := ours["size"]; ok && info.Size >= 0 && size != strconv.FormatInt(info.Size, 10) {
		return
	}
	if tag, ok := ours["native"]; ok && f.native != "" && tag != bare(f.native) {
		return
	}
	if tag := ours["etag"]; muxcore.IsStrong(tag) {
		info.ETag, info.ETagStored = tag, true
	}
	if at, err := time.Parse(time.RFC3339Nano, ours["mtime"]); err == nil {
		info.ModTime = at
	}
	d := &info.Digests
	d.MD5, d.SHA256, d.SHA512 = digest(ours["md5"], md5.Size), digest(ours["sha256"], sha256.Size), digest(ours["sha512"], sha512.Size)
}

// digest reads a digest of size bytes; nil if it is none.
func digest(text string, size int) []byte {
	sum, err := hex.DecodeString(text)
	if err != nil || len(sum) != size {
		return nil
	}
	return sum
}
