package swiftstore

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

const (
	recordField = "X-Object-Meta-Storage-Mux-"
	chunkSize   = 256  // Swift's longest value of a field of metadata
	recordLimit = 3800 // of the 4096 bytes that Swift keeps of all metadata, names included
)

// record is what Swift has no field of its own for.
type record struct {
	ETag    string            `json:"etag,omitempty"`
	ModTime *time.Time        `json:"mtime,omitempty"`
	Untyped bool              `json:"untyped,omitempty"` // the type is Swift's, not the uploader's
	SHA256  string            `json:"sha256,omitempty"`
	SHA512  string            `json:"sha512,omitempty"`
	Meta    map[string]string `json:"meta,omitempty"`
}

// recordOf is the record of a Put.
func recordOf(opts *muxcore.PutOptions) *record {
	r := &record{
		ETag: opts.ETag, Untyped: opts.ContentType == "", Meta: opts.Metadata,
		SHA256: hex.EncodeToString(opts.Digests.SHA256), SHA512: hex.EncodeToString(opts.Digests.SHA512),
	}
	if !opts.ModTime.IsZero() {
		at := opts.ModTime.UTC()
		r.ModTime = &at
	}
	return r
}

var errRecord = errors.New("metadata: more than Swift keeps with an object")

// fields adds the record to h: printable ASCII without spaces, which some proxies trim at the ends of fields, in pieces.
func (r *record) fields(h http.Header) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	value := plain(text)
	if len(value) > recordLimit {
		return errRecord
	}
	for i := 0; value != ""; i++ {
		n := min(len(value), chunkSize)
		h[recordField+strconv.Itoa(i)] = []string{value[:n]}
		value = value[n:]
	}
	return nil
}

// plain escapes what JSON leaves as it is and a field does not.
func plain(text []byte) string {
	var b strings.Builder
	for _, r := range string(text) {
		switch {
		case r > ' ' && r < 0x7F:
			b.WriteByte(byte(r))
		case r > 0xFFFF:
			r -= 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xD800+r>>10, 0xDC00+r&0x3FF)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// readRecord reads the record of an object, nil where it has none that can be read.
func readRecord(h http.Header) *record {
	var b strings.Builder
	for i := 0; ; i++ {
		v := h[recordField+strconv.Itoa(i)]
		if len(v) != 1 {
			break
		}
		b.WriteString(v[0])
	}
	if b.Len() == 0 {
		return nil
	}
	r := new(record)
	if err := json.Unmarshal([]byte(b.String()), r); err != nil {
		return nil
	}
	return r
}

// into adds what the record says to info.
func (r *record) into(info *muxcore.Info) {
	if muxcore.IsStrong(r.ETag) {
		info.ETag, info.ETagStored = r.ETag, true
	}
	if r.ModTime != nil {
		info.ModTime = *r.ModTime
	}
	if r.Untyped {
		info.ContentType = ""
	}
	info.Digests.SHA256, info.Digests.SHA512 = digest(r.SHA256, 32), digest(r.SHA512, 64)
	if len(r.Meta) > 0 {
		info.Metadata = r.Meta
	}
}

// digest reads a digest of size bytes in hex; nil if it is none.
func digest(text string, size int) []byte {
	sum, err := hex.DecodeString(text)
	if err != nil || len(sum) != size {
		return nil
	}
	return sum
}
