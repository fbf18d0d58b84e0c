// Package safekey makes keys that every store can hold of names that others choose.
//
// Letters, digits and the signs - _ @ . stay as they are, so that what certificates are called can be read in a folder.
// Anything else becomes %xx; so does a letter or a dot where a file system would take it amiss (a leading or trailing dot,
// the names of devices on Windows). A segment of more than 200 bytes is parted by "%/": a percent sign that no digit follows.
package safekey

import (
	"errors"
	"strings"
)

// maxSegment leaves room below the 255 bytes of file systems.
const maxSegment = 200

// More ends a segment that goes on in the next one.
const More = "%/"

const hexDigits = "0123456789abcdef"

var errForeign = errors.New("no key of this encoding")

// Segment makes one segment of name, or several where it is long. Different names give different segments.
func Segment(name string) string {
	var b strings.Builder
	start := 0
	for i := 0; i < len(name); i++ {
		if b.Len()-start >= maxSegment {
			b.WriteString(More)
			start = b.Len()
		}
		c := name[i]
		odd := c == '.' && (i == 0 || i == len(name)-1) || i == 0 && isDevice(name)
		if plain(c) && !odd {
			b.WriteByte(c)
		} else {
			b.WriteByte('%')
			b.WriteByte(hexDigits[c>>4])
			b.WriteByte(hexDigits[c&15])
		}
	}
	return b.String()
}

func plain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_' || c == '@' || c == '.'
}

// isDevice tells whether Windows takes a name for a device, whatever its extension.
func isDevice(name string) bool {
	base, _, _ := strings.Cut(strings.ToLower(name), ".")
	switch base {
	case "con", "prn", "aux", "nul":
		return true
	}
	return len(base) == 4 && (strings.HasPrefix(base, "com") || strings.HasPrefix(base, "lpt")) && '0' <= base[3] && base[3] <= '9'
}

// Encode makes a key of a path, segment by segment. Empty segments are left out.
func Encode(path string) string {
	var segments []string
	for segment := range strings.SplitSeq(path, "/") {
		if segment != "" {
			segments = append(segments, Segment(segment))
		}
	}
	return strings.Join(segments, "/")
}

// Decode is the inverse of Encode. A key that Encode does not make is an error.
func Decode(key string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(key); i++ {
		if key[i] != '%' {
			b.WriteByte(key[i])
			continue
		}
		if strings.HasPrefix(key[i:], More) {
			i++
			continue
		}
		if i+2 >= len(key) {
			return "", errForeign
		}
		high, low := strings.IndexByte(hexDigits, key[i+1]), strings.IndexByte(hexDigits, key[i+2])
		if high < 0 || low < 0 {
			return "", errForeign
		}
		b.WriteByte(byte(high<<4 | low))
		i += 2
	}
	if Encode(b.String()) != key {
		return "", errForeign
	}
	return b.String(), nil
}
