package caddymux

import (
	"path"
	"strings"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/safekey"
)

// certKey is the key in the tree of a key of certmagic: below the reserved prefix, and in characters that every store can
// hold. As in certmagic's own storage, slashes too many do not matter, and nothing leads above the root. The root is "".
func certKey(key string) string {
	encoded := safekey.Encode(strings.TrimPrefix(path.Clean("/"+key), "/"))
	if first, rest, _ := strings.Cut(encoded, "/"); first == locksFolder { // our own locks live there
		encoded = strings.TrimSuffix(locksEscaped+"/"+rest, "/")
	}
	return muxcore.InternalPrefix + encoded
}

// certName is the inverse of certKey. It is false for what is no key of certmagic: locks, and what others have put there.
func certName(key string) (string, bool) {
	encoded, ok := strings.CutPrefix(key, muxcore.InternalPrefix)
	first, rest, _ := strings.Cut(encoded, "/")
	switch {
	case !ok || first == locksFolder:
		return "", false
	case first == locksEscaped:
		encoded = strings.TrimSuffix(locksFolder+"/"+rest, "/")
	}
	name, err := safekey.Decode(encoded)
	return name, err == nil && name != ""
}

const (
	locksFolder  = "locks"
	locksEscaped = "%6cocks"

	// longName ends a segment that is only a part of a name.
	longName = safekey.More
)

// below is the prefix of the keys below a key of certmagic.
func below(key string) string { return strings.TrimSuffix(certKey(key), "/") + "/" }
