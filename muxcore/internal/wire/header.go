package wire

import (
	"maps"
	"net/http"
	"net/textproto"
	"strings"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// UserAgent is how we name ourselves.
const UserAgent = "caddy-storage-mux"

// IsToken tells whether s can be the name of a field (RFC 9110, section 5.6.2).
func IsToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0:
		default:
			return false
		}
	}
	return s != ""
}

// IsFieldValue tells whether s can be the value of a field.
func IsFieldValue(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\t' || c == 0x7F {
			return false
		}
	}
	return true
}

// Fields takes out of a what no header field can hold, such as an end of the line that a service kept in a code of its own:
// nobody could hand it on.
func Fields(a *muxcore.Attributes) {
	for _, v := range []*string{&a.ContentType, &a.CacheControl, &a.ContentDisposition, &a.ContentEncoding, &a.ContentLanguage, &a.Expires} {
		if !IsFieldValue(*v) {
			*v = ""
		}
	}
	maps.DeleteFunc(a.Metadata, func(name, v string) bool {
		return !IsToken(name) || name != strings.ToLower(name) || !IsFieldValue(v)
	})
}

// Clip makes text of others fit for a message.
func Clip(text string, most int) string {
	text = strings.ToValidUTF8(strings.Join(strings.Fields(text[:min(len(text), 4*most)]), " "), "")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "")
	}
	return text
}

// First is the value of a field by its canonical name.
func First(h http.Header, name string) string {
	if v := h[name]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// Joined is the value of a field that is a list.
func Joined(h http.Header, name string) string {
	v := h[name]
	if len(v) <= 1 {
		return First(h, name)
	}
	return strings.Join(v, ", ")
}

// ETag is the entity tag in a field, with quotes where the origin left them out; "" if it is none.
func ETag(values []string) string {
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

// Time is an HTTP date, or zero.
func Time(v string) time.Time {
	if v == "" {
		return time.Time{}
	}
	t, err := http.ParseTime(v)
	if err != nil {
		return time.Time{}
	}
	return t
}
