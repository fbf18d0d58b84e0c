package gocdk

import (
	"fmt"
	"net/url"
	"strings"
	"unicode"
)

// escapeKey makes a key of ours of one of theirs. What is escaped depends on what stands before it only, but for what no key may
// end in, so that a prefix of a key stays one.
func escapeKey(key string) string {
	escaped := escapePrefix(key)
	if end := len(escaped) - 1; end >= 0 && strings.ContainsRune("/. ", rune(escaped[end])) {
		return fmt.Sprintf("%s%%%02X", escaped[:end], escaped[end])
	}
	return escaped
}

// escapePrefix is escapeKey for the beginning of a key, which may end in anything.
func escapePrefix(prefix string) string {
	var b strings.Builder
	before := '/' // nothing before the first segment, as between two slashes
	for _, r := range prefix {
		switch {
		case r == '%', r == '\\', unicode.IsControl(r), r == '/' && strings.ContainsRune("/. ", before):
			escapeRune(&b, r)
		default:
			b.WriteRune(r)
		}
		before = r
	}
	return b.String()
}

func escapeRune(b *strings.Builder, r rune) {
	for _, c := range []byte(string(r)) {
		fmt.Fprintf(b, "%%%02X", c)
	}
}

// unescape undoes all of these. What others have put under a name that is no escaped one is left as it is.
func unescape(key string) string {
	if raw, err := url.PathUnescape(key); err == nil {
		return raw
	}
	return key
}

// escapeName makes a name of metadata, which is in lower case, one that a field of HTTP can have.
func escapeName(name string) string {
	var b strings.Builder
	for _, c := range []byte(name) {
		if 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '_' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02x", c)
		}
	}
	return b.String()
}

// escapeValue makes a value of metadata one that a field of HTTP can have.
func escapeValue(value string) string {
	var b strings.Builder
	for _, r := range value {
		if r == '%' || unicode.IsControl(r) {
			escapeRune(&b, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// mapped is a map of one's own with other names and values.
func mapped(metadata map[string]string, name, value func(string) string) map[string]string {
	if len(metadata) == 0 {
		return nil
	}
	own := make(map[string]string, len(metadata))
	for k, v := range metadata {
		own[name(k)] = value(v)
	}
	return own
}
