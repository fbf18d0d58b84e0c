package httpstore

import (
	"math"
	"strconv"
	"strings"
)

// contentRange is a Content-Range in bytes.
type contentRange struct {
	has         bool // there is a part: not "*/1234"
	first, last int64
	size        int64 // of the whole, -1 unknown
}

// length of the part.
func (r *contentRange) length() int64 { return r.last - r.first + 1 }

// parseContentRange reads "bytes 0-99/1234", "bytes 0-99/*" and "bytes */1234".
func parseContentRange(v string) (r contentRange, ok bool) {
	unit, rest, ok := strings.Cut(v, " ")
	if !ok || !strings.EqualFold(unit, "bytes") {
		return r, false
	}
	part, size, ok := strings.Cut(strings.TrimSpace(rest), "/")
	if !ok {
		return r, false
	}
	if r.size = -1; size != "*" {
		if r.size, ok = parsePosition(size); !ok {
			return r, false
		}
	}
	if part == "*" || part == "0--1" && r.size == 0 { // the latter is what net/http says of the end of an empty object
		return r, r.size >= 0
	}
	from, to, _ := strings.Cut(part, "-")
	var okFrom, okTo bool
	r.has = true
	r.first, okFrom = parsePosition(from)
	r.last, okTo = parsePosition(to)
	return r, okFrom && okTo && r.first <= r.last && r.last < math.MaxInt64 && (r.size < 0 || r.last < r.size)
}

// parsePosition reads digits, and nothing else.
func parsePosition(s string) (int64, bool) {
	n, err := strconv.ParseUint(s, 10, 63)
	return int64(n), err == nil
}
