package muxcore

import (
	"errors"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// MaxKeyLength is the longest key, in bytes.
	MaxKeyLength = 1024

	// ReservedPrefix begins every path segment that belongs to the storage itself: temp and side files,
	// and the space below [InternalPrefix]. No key from outside has such a segment.
	ReservedPrefix = ".storage_mux"

	// InternalPrefix is the one reserved place in which stores keep objects: what Caddy itself puts there
	// (certificates, locks). Doors refuse it by [CheckKey]; stores and muxes admit it by [CheckStoreKey].
	InternalPrefix = ReservedPrefix + "/storage/"

	// LockPrefix begins the keys of Caddy's locks. Each lives on one backend only, so they are never compared or copied.
	LockPrefix = InternalPrefix + "locks/"
)

// The reasons for which a key is refused.
var (
	errKeyEmpty     = errors.New("empty key")
	errKeyLong      = errors.New("longer than 1024 bytes")
	errKeyUTF8      = errors.New("not UTF-8")
	errKeyControl   = errors.New("control character")
	errKeyBackslash = errors.New("backslash")
	errKeySegment   = errors.New("empty segment")
	errKeyDot       = errors.New(`"." or ".." segment`)
	errKeyReserved  = errors.New("segment begins with " + ReservedPrefix)
)

// CheckKey tells whether key may come from outside: UTF-8, 1 to 1024 bytes, no control character, no backslash, no
// empty, "." or ".." segment, and none that begins with [ReservedPrefix], in any spelling of it. Keys are bytes: nothing is normalised, and
// two keys are one object only if they are equal byte for byte. The error is an [*Error] with [CodeInvalidKey].
func CheckKey(key string) error {
	if reason := keyFault(key, false); reason != nil {
		return &Error{Code: CodeInvalidKey, Key: key, Err: reason}
	}
	return nil
}

// CheckStoreKey is the rule of stores and muxes: that of [CheckKey], and besides it keys below [InternalPrefix].
func CheckStoreKey(key string) error {
	internal := strings.TrimPrefix(key, InternalPrefix)
	if len(internal) == len(key) || len(key) > MaxKeyLength {
		return CheckKey(key)
	}
	if reason := keyFault(internal, false); reason != nil {
		return &Error{Code: CodeInvalidKey, Key: key, Err: reason}
	}
	return nil
}

// CheckPrefix tells whether prefix can begin a store key. Empty is fine, and so is a slash at its end.
func CheckPrefix(prefix string) error {
	rest := strings.TrimPrefix(prefix, InternalPrefix)
	if rest == "" || prefix == ReservedPrefix+"/" {
		return nil
	}
	rest, whole := strings.CutSuffix(rest, "/")
	if reason := keyFault(rest, !whole); reason != nil {
		return &Error{Code: CodeInvalidKey, Key: prefix, Err: reason}
	}
	return nil
}

// HiddenFrom tells whether a list of prefix leaves key out: reserved keys show only in lists of reserved prefixes.
func HiddenFrom(prefix, key string) bool {
	if strings.HasPrefix(prefix, ReservedPrefix) {
		return !strings.HasPrefix(key, InternalPrefix)
	}
	for segment := range strings.SplitSeq(key, "/") {
		if reserved(segment) {
			return true
		}
	}
	return false
}

// keyFault finds what is wrong with key. partial admits a last segment that is only the beginning of one. Nearly all keys are ASCII,
// and a read looks at its key more than once: so there is one pass, and another only for what is not ASCII.
func keyFault(key string, partial bool) error {
	switch {
	case key == "":
		return errKeyEmpty
	case len(key) > MaxKeyLength:
		return errKeyLong
	}
	begin, ascii := 0, true // of the segment
	for i := range len(key) {
		switch c := key[i]; {
		case c == '/':
			if err := segmentFault(key[begin:i], false); err != nil {
				return err
			}
			begin = i + 1
		case c == '\\':
			return errKeyBackslash
		case c < ' ', c == 0x7f:
			return errKeyControl
		case c >= utf8.RuneSelf:
			ascii = false
		}
	}
	if !ascii {
		if err := wideFault(key); err != nil {
			return err
		}
	}
	return segmentFault(key[begin:], partial)
}

// wideFault finds what only a key that is not ASCII can have.
func wideFault(key string) error {
	if !utf8.ValidString(key) {
		return errKeyUTF8
	}
	for _, r := range key {
		if unicode.IsControl(r) {
			return errKeyControl
		}
	}
	return nil
}

func segmentFault(segment string, partial bool) error {
	switch {
	case segment == "":
		return errKeySegment
	case segment[0] != '.' && segment[0] < utf8.RuneSelf:
		return nil
	case reserved(segment):
		return errKeyReserved
	case (segment == "." || segment == "..") && !partial:
		return errKeyDot
	}
	return nil
}

// reserved tells whether a segment begins with [ReservedPrefix], or with what a folder may take for it: on macOS, on Windows, and where a
// file system of Linux is made so, names are one whose letters differ in case, a ligature counts as its letters, and characters that
// do not show are left out. A store whose folder is such a one must not yield private keys to a door that spells them otherwise.
func reserved(segment string) bool {
	if segment == "" || segment[0] != '.' && segment[0] < utf8.RuneSelf {
		return false
	}
	left := ReservedPrefix
	for _, r := range segment {
		switch {
		case left == "":
			return true
		case unicode.In(r, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector):
		case (r == 'ﬅ' || r == 'ﬆ') && strings.HasPrefix(left, "st"):
			left = left[len("st"):]
		case strings.EqualFold(string(r), left[:1]):
			left = left[1:]
		default:
			return false
		}
	}
	return left == ""
}
