package filestore

import (
	"errors"
	"strings"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// maxSegment is the longest name that file systems hold.
const maxSegment = 255

var (
	errSegmentLong   = errors.New("segment longer than 255 bytes")
	errSegmentEnd    = errors.New("segment ends in a dot or a space")
	errSegmentStream = errors.New("segment names a drive or a data stream of Windows")
	errSegmentDevice = errors.New("segment names a device of Windows")
	errSegmentShort  = errors.New("segment has the form of a short name of Windows")
	errSegmentChar   = errors.New("segment has a character that the file system cannot hold")
)

// CheckKey implements muxcore.KeyChecker. Besides what no store holds it refuses, on every system, so that a tree can
// move: segments of more than 255 bytes, and those that on Windows would be another name for a file (a dot or a space
// at the end, x::$DATA, C:x, CON, PROGRA~1).
func (s *Store) CheckKey(key string) error { return checkKey(key) }

func checkKey(key string) error {
	if err := muxcore.CheckStoreKey(key); err != nil {
		return err
	}
	for segment := range strings.SplitSeq(key, "/") {
		if reason := segmentFault(segment); reason != nil {
			return &muxcore.Error{Code: muxcore.CodeInvalidKey, Key: key, Err: reason}
		}
	}
	return nil
}

func segmentFault(segment string) error {
	if len(segment) > maxSegment {
		return errSegmentLong
	}
	if last := segment[len(segment)-1]; last == '.' || last == ' ' {
		return errSegmentEnd
	}
	if strings.Contains(segment, ":$") || len(segment) > 1 && segment[1] == ':' && isLetter(segment[0]) {
		return errSegmentStream
	}
	if forbiddenChars != "" && strings.ContainsAny(segment, forbiddenChars) {
		return errSegmentChar
	}
	base, ext, _ := strings.Cut(segment, ".")
	if isDevice(strings.TrimRight(base, " ")) {
		return errSegmentDevice
	}
	if isShortName(base, ext) {
		return errSegmentShort
	}
	return nil
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

// isDevice tells whether Windows takes a name for a device, whatever its extension.
func isDevice(base string) bool {
	base, _, _ = strings.Cut(base, ":")
	if len(base) < 3 || len(base) > 7 {
		return false
	}
	switch upper := strings.ToUpper(base); upper {
	case "CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$":
		return true
	default:
		number, ok := strings.CutPrefix(upper, "COM")
		if !ok {
			number, ok = strings.CutPrefix(upper, "LPT")
		}
		return ok && (len(number) == 1 && number[0] >= '0' && number[0] <= '9' || number == "¹" || number == "²" || number == "³")
	}
}

// isShortName tells whether a name has the form that Windows gives to its 8.3 names: at most six characters, a tilde
// and a number, at most eight in all, and an extension of at most three.
func isShortName(base, ext string) bool {
	at := strings.LastIndexByte(base, '~')
	if at < 1 || at > 6 || len(base) > 8 || len(ext) > 3 || at == len(base)-1 {
		return false
	}
	return strings.Trim(base[at+1:], "0123456789") == ""
}
