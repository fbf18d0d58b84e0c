package s3store

import (
	"crypto/md5" // what most services' ETags are, not what anything is secured by
	"encoding/hex"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/suaveplan/caddy-storage-mux/muxcore/internal/wire"
)

// Some programs write new bytes and keep our metadata, with the identity of the old ones. Most services' ETag of what was put in
// one request is its MD5, which is known before: where that was seen, it is stored, and no identity counts beside another ETag.

// The kinds of ETags.
const (
	tagsUnknown int32 = iota
	tagsMD5
	tagsOther // once seen, for good: with some kinds of encryption, say
)

// tags is what is known of a service's own ETags. It is safe for concurrent use.
type tags struct{ kind atomic.Int32 }

// mark adds to the header of an object what its ETag will be, where that is known. It gives what it would be as an MD5.
func (t *tags) mark(header http.Header, body []byte) string {
	sum := md5.Sum(body)
	tag := hex.EncodeToString(sum[:])
	if t.kind.Load() == tagsMD5 {
		header[own("native")] = []string{tag}
	}
	return tag
}

// learn sees what the service made of what might be tag.
func (t *tags) learn(answer http.Header, tag string) {
	if bare(wire.ETag(answer["Etag"])) != tag {
		t.kind.Store(tagsOther)
		return
	}
	t.kind.CompareAndSwap(tagsUnknown, tagsMD5)
}

// bare is an ETag without what is around it. What stands in between may have made it a weak one.
func bare(tag string) string { return strings.Trim(strings.TrimPrefix(tag, "W/"), `"`) }
