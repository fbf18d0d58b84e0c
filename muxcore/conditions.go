package muxcore

import (
	"bytes"
	"net/textproto"
	"strings"
	"time"
)

// Conditions are the preconditions of RFC 9110, section 13. The zero value is none.
type Conditions struct {
	// IfMatch and IfNoneMatch are lists of entity tags as in the HTTP fields, or "*".
	IfMatch     string
	IfNoneMatch string

	// The dates count in whole seconds; zero is none.
	IfModifiedSince   time.Time
	IfUnmodifiedSince time.Time
}

// Empty tells whether there is no condition.
func (c *Conditions) Empty() bool {
	return c.IfMatch == "" && c.IfNoneMatch == "" && c.IfModifiedSince.IsZero() && c.IfUnmodifiedSince.IsZero()
}

// CheckRead decides the conditions of a read of the object that info describes, in the order of RFC 9110, section
// 13.2.2: nil, or an [*Error] with CodePreconditionFailed or CodeNotModified and Info.
func (c *Conditions) CheckRead(info *Info) error {
	if c.Empty() {
		return nil
	}
	if c.contradicted(info) {
		return answered(CodePreconditionFailed, info)
	}
	known := !c.IfModifiedSince.IsZero() && !info.ModTime.IsZero() && !info.ModTime.Truncate(time.Second).After(c.IfModifiedSince)
	if c.IfNoneMatch != "" {
		known = listHas(c.IfNoneMatch, info.ETag, EqualWeak)
	}
	if known {
		return answered(CodeNotModified, info)
	}
	return nil
}

// answered copies info, so that the caller's need not live on the heap for an error that is rare.
func answered(code Code, info *Info) error {
	known := *info
	return &Error{Code: code, Key: info.Key, Info: &known}
}

// CheckWrite decides the conditions of a write over the object that info describes, nil for none there: nil, or an
// [*Error] with CodePreconditionFailed.
func (c *Conditions) CheckWrite(key string, info *Info) error {
	if c.Empty() {
		return nil
	}
	var failed bool
	if info == nil {
		failed = c.IfMatch != "" || !c.IfUnmodifiedSince.IsZero()
	} else {
		failed = c.contradicted(info) || c.IfNoneMatch != "" && listHas(c.IfNoneMatch, info.ETag, EqualWeak)
	}
	switch {
	case failed && info == nil:
		return &Error{Code: CodePreconditionFailed, Key: key}
	case failed:
		return answered(CodePreconditionFailed, info)
	}
	return nil
}

// contradicted tells whether If-Match, or without it If-Unmodified-Since, rules out the object.
func (c *Conditions) contradicted(info *Info) bool {
	if c.IfMatch != "" {
		return !listHas(c.IfMatch, info.ETag, EqualStrong)
	}
	return !c.IfUnmodifiedSince.IsZero() && !info.ModTime.IsZero() && info.ModTime.Truncate(time.Second).After(c.IfUnmodifiedSince)
}

// RangeApplies decides If-Range (RFC 9110, section 13.1.5): whether the range of opts applies to the object.
func (opts *GetOptions) RangeApplies(info *Info) bool {
	if opts.IfRange == "" {
		return true
	}
	if tag, rest, ok := CutETag(opts.IfRange); ok {
		return textproto.TrimString(rest) == "" && EqualStrong(tag, info.ETag)
	}
	at, ok := httpDate(opts.IfRange)
	return ok && !info.ModTime.IsZero() && info.ModTime.Truncate(time.Second).Equal(at)
}

// Resolve turns the range of opts into the part of the object that Get opens: the conditions' answer, an [*Error]
// with CodeRangeNotSatisfiable and Info, or offset and length. info.Size must be known.
func (opts *GetOptions) Resolve(info *Info) (offset, length int64, err error) {
	if err := opts.Conditions.CheckRead(info); err != nil {
		return 0, 0, err
	}
	if opts.Range == (Range{}) || !opts.RangeApplies(info) {
		return 0, info.Size, nil
	}
	offset, length = opts.Range.Offset, opts.Range.Length
	if offset < 0 {
		offset = max(0, info.Size+offset)
	}
	if offset >= info.Size {
		return 0, 0, answered(CodeRangeNotSatisfiable, info)
	}
	if rest := info.Size - offset; length <= 0 || length > rest {
		length = rest
	}
	return offset, length, nil
}

// SameIdentity tells whether two copies are the same bytes, so that one may continue the other: equal strong ETags and
// length; where the ETag is not one that we stored, equal SHA-256, or else equal modification times if both are known.
func SameIdentity(a, b *Info) bool {
	if a.Size != b.Size || a.Size < 0 || !EqualStrong(a.ETag, b.ETag) {
		return false
	}
	if a.ETagStored && b.ETagStored || a.ModTime.IsZero() || b.ModTime.IsZero() {
		return true
	}
	if a.Digests.SHA256 != nil && bytes.Equal(a.Digests.SHA256, b.Digests.SHA256) {
		return true
	}
	return a.ModTime.Truncate(time.Second).Equal(b.ModTime.Truncate(time.Second))
}

// identity is what of an Info tells its object from another: all that a body which may have to go on elsewhere keeps of it.
type identity struct {
	size    int64
	etag    string
	stored  bool
	modTime time.Time
	sha256  []byte
}

func identityOf(i *Info) identity {
	return identity{size: i.Size, etag: i.ETag, stored: i.ETagStored, modTime: i.ModTime, sha256: i.Digests.SHA256}
}

// info is an Info of that identity.
func (i *identity) info(key string) *Info {
	return &Info{Key: key, Size: i.size, ETag: i.etag, ETagStored: i.stored, ModTime: i.modTime, Digests: Digests{SHA256: i.sha256}}
}

// httpDate reads a date in one of the three forms of RFC 9110, section 5.6.7. [net/http.ParseTime] does the same, but
// would bring its whole HTTP and TLS stack into every program that only wants a mux.
func httpDate(text string) (at time.Time, ok bool) {
	for _, form := range []string{"Mon, 02 Jan 2006 15:04:05 GMT", time.RFC850, time.ANSIC} {
		if at, err := time.Parse(form, text); err == nil {
			return at, true
		}
	}
	return time.Time{}, false
}

// CutETag cuts the entity tag from the beginning of a list, as http.ServeContent reads it.
func CutETag(list string) (tag, rest string, ok bool) {
	list = textproto.TrimString(list)
	start := 0
	if strings.HasPrefix(list, "W/") {
		start = 2
	}
	if len(list[start:]) < 2 || list[start] != '"' {
		return "", "", false
	}
	for i := start + 1; i < len(list); i++ {
		switch c := list[i]; {
		case c == 0x21 || c >= 0x23 && c <= 0x7E || c >= 0x80: // etagc of RFC 9110, section 8.8.3
		case c == '"':
			return list[:i+1], list[i+1:], true
		default:
			return "", "", false
		}
	}
	return "", "", false
}

// IsStrong tells whether tag is a well-formed strong entity tag.
func IsStrong(tag string) bool {
	whole, _, ok := CutETag(tag)
	return ok && whole == tag && tag[0] == '"'
}

// EqualStrong is the strong comparison of RFC 9110, section 8.8.3.2.
func EqualStrong(a, b string) bool { return a == b && a != "" && a[0] == '"' }

// EqualWeak is the weak comparison.
func EqualWeak(a, b string) bool {
	return a != "" && strings.TrimPrefix(a, "W/") == strings.TrimPrefix(b, "W/")
}

func listHas(list, tag string, equal func(a, b string) bool) bool {
	for {
		list = strings.TrimLeft(list, " \t,")
		if list == "" {
			return false
		}
		if list[0] == '*' {
			return true
		}
		one, rest, ok := CutETag(list)
		if !ok {
			return false
		}
		if equal(one, tag) {
			return true
		}
		list = rest
	}
}
