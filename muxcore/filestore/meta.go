package filestore

import (
	"encoding/hex"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// metaHeader begins the metadata of an object: a few lines of text, so that getfattr and cat show them.
const metaHeader = "storage_mux 1"

// fingerprint tells whether a file is still the one that metadata was written for.
type fingerprint struct {
	size  int64
	mtime int64 // nanoseconds
	inode uint64
	ctime int64 // nanoseconds; 0 unknown. It is no part of what must be equal: see doubtful
}

func fingerprintOf(f *os.File, fi fs.FileInfo) fingerprint {
	return fingerprint{size: fi.Size(), mtime: fi.ModTime().UnixNano(), inode: inode(f, fi), ctime: changeTime(fi)}
}

func (p fingerprint) String() string {
	return strconv.FormatInt(p.size, 10) + " " + strconv.FormatInt(p.mtime, 10) + " " + strconv.FormatUint(p.inode, 10)
}

// formatMeta writes what info has to be kept besides the bytes.
func formatMeta(is fingerprint, info *muxcore.Info) string {
	var b strings.Builder
	b.WriteString(metaHeader)
	line := func(name, value string) {
		if value == "" {
			return
		}
		b.WriteByte('\n')
		b.WriteString(name)
		b.WriteByte(':')
		b.WriteString(escaper.Replace(value))
	}
	line("is", is.String())
	if is.ctime != 0 {
		line("changed", strconv.FormatInt(is.ctime, 10))
	}
	if isPrivate(info.Key) {
		b.WriteString(privateLine)
	}
	if info.ETagStored {
		line("etag", info.ETag)
	} else {
		line("own-etag", info.ETag)
	}
	line("modified", strconv.FormatInt(info.ModTime.Unix(), 10)+" "+strconv.Itoa(info.ModTime.Nanosecond()))
	line("md5", hex.EncodeToString(info.Digests.MD5))
	line("sha256", hex.EncodeToString(info.Digests.SHA256))
	line("sha512", hex.EncodeToString(info.Digests.SHA512))
	line("type", info.ContentType)
	line("cache-control", info.CacheControl)
	line("disposition", info.ContentDisposition)
	line("encoding", info.ContentEncoding)
	line("language", info.ContentLanguage)
	line("expires", info.Expires)
	for _, name := range slices.Sorted(maps.Keys(info.Metadata)) {
		b.WriteString("\nmeta:")
		b.WriteString(escaper.Replace(name))
		b.WriteByte(':')
		b.WriteString(escaper.Replace(info.Metadata[name]))
	}
	return b.String()
}

// Values stand on one line each; in the name of user metadata the colon must not end it.
var (
	escaper   = strings.NewReplacer(`\`, `\\`, "\n", `\n`, ":", `\:`)
	unescaper = strings.NewReplacer(`\\`, `\`, `\n`, "\n", `\:`, ":")
)

func unescape(s string) string {
	if strings.IndexByte(s, '\\') < 0 {
		return s
	}
	return unescaper.Replace(s)
}

// parseMeta fills in info from text if it is metadata of the file that is, and nothing is wrong with it.
func parseMeta(text string, is fingerprint, info *muxcore.Info) bool {
	was, ok := readMeta(text, info)
	return ok && was == is.String()
}

// readMeta fills in info from text, and gives the fingerprint of the file that it is metadata of.
func readMeta(text string, info *muxcore.Info) (was string, ok bool) {
	header, text, _ := strings.Cut(text, "\n")
	if header != metaHeader {
		return "", false
	}
	for more := text != ""; more; {
		var line string
		line, text, more = strings.Cut(text, "\n")
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			return "", false
		}
		if name == "is" {
			was = value
			continue
		}
		if !parseField(name, value, info) {
			return "", false
		}
	}
	return was, was != ""
}

// recordOf is what metadata says of a file that may have other bytes by now. nil: nothing by which that could be found out.
func recordOf(key, was string, meta *muxcore.Info, noticed bool) *muxcore.Record {
	r := &muxcore.Record{Info: *meta, Noticed: noticed}
	size, _, _ := strings.Cut(was, " ")
	n, err := strconv.ParseInt(size, 10, 64)
	if r.Key, r.Size = key, n; err != nil || n == meta.Size && r.Digests.Empty() {
		return nil
	}
	return r
}

// parseField fills in one field. Names that it does not know are from a later version, and do no harm.
func parseField(name, value string, info *muxcore.Info) bool {
	ok := true
	switch name {
	case "etag":
		info.ETag, info.ETagStored = unescape(value), true
		ok = muxcore.IsStrong(info.ETag)
	case "own-etag":
		info.ETag = unescape(value)
		tag, rest, valid := muxcore.CutETag(info.ETag)
		ok = info.ETag == "" || valid && rest == "" && tag == info.ETag
	case "modified":
		info.ModTime, ok = parseTime(value)
	case "md5":
		info.Digests.MD5, ok = parseDigest(value, 16)
	case "sha256":
		info.Digests.SHA256, ok = parseDigest(value, 32)
	case "sha512":
		info.Digests.SHA512, ok = parseDigest(value, 64)
	case "type":
		info.ContentType = unescape(value)
	case "cache-control":
		info.CacheControl = unescape(value)
	case "disposition":
		info.ContentDisposition = unescape(value)
	case "encoding":
		info.ContentEncoding = unescape(value)
	case "language":
		info.ContentLanguage = unescape(value)
	case "expires":
		info.Expires = unescape(value)
	case "meta":
		at := nameEnd(value)
		if at < 0 {
			return false
		}
		if info.Metadata == nil {
			info.Metadata = make(map[string]string)
		}
		info.Metadata[unescape(value[:at])] = unescape(value[at+1:])
	}
	return ok
}

// nameEnd finds the first colon that is not escaped.
func nameEnd(s string) int {
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case ':':
			return i
		}
	}
	return -1
}

func parseTime(s string) (time.Time, bool) {
	seconds, nanos, _ := strings.Cut(s, " ")
	sec, err := strconv.ParseInt(seconds, 10, 64)
	nsec, nerr := strconv.ParseInt(nanos, 10, 64)
	if err != nil || nerr != nil || nsec < 0 || nsec >= 1e9 {
		return time.Time{}, false
	}
	at := time.Unix(sec, nsec)
	year := at.UTC().Year() // beyond these, no header field and no JSON can hold it
	return at, year >= 0 && year <= 9999
}

func parseDigest(s string, size int) ([]byte, bool) {
	d, err := hex.DecodeString(s)
	return d, err == nil && len(d) == size
}
