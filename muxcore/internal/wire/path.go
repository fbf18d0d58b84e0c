package wire

import "strings"

const upperHex = "0123456789ABCDEF"

// EscapePath percent-encodes path exactly once, all but the unreserved characters of RFC 3986 and slashes: what servers
// disagree about goes out encoded.
func EscapePath(path string) string {
	var b strings.Builder
	b.Grow(len(path) + 16)
	for i := range len(path) {
		c := path[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '/', c == '-', c == '.', c == '_', c == '~':
			b.WriteByte(c)
		default:
			b.WriteByte('%')
			b.WriteByte(upperHex[c>>4])
			b.WriteByte(upperHex[c&15])
		}
	}
	return b.String()
}
