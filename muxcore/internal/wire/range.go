package wire

import (
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// ContentRange is a Content-Range in bytes.
type ContentRange struct {
	Has         bool // there is a part: not "*/1234"
	First, Last int64
	Size        int64 // of the whole, -1 unknown
}

// Length of the part.
func (r *ContentRange) Length() int64 { return r.Last - r.First + 1 }

// ParseContentRange reads "bytes 0-99/1234", "bytes 0-99/*" and "bytes */1234".
func ParseContentRange(v string) (r ContentRange, ok bool) {
	unit, rest, ok := strings.Cut(v, " ")
	if !ok || !strings.EqualFold(unit, "bytes") {
		return r, false
	}
	part, size, ok := strings.Cut(strings.TrimSpace(rest), "/")
	if !ok {
		return r, false
	}
	if r.Size = -1; size != "*" {
		if r.Size, ok = ParsePosition(size); !ok {
			return r, false
		}
	}
	if part == "*" || part == "0--1" && r.Size == 0 { // the latter is what net/http says of the end of an empty object
		return r, r.Size >= 0
	}
	from, to, _ := strings.Cut(part, "-")
	var okFrom, okTo bool
	r.Has = true
	r.First, okFrom = ParsePosition(from)
	r.Last, okTo = ParsePosition(to)
	return r, okFrom && okTo && r.First <= r.Last && r.Last < math.MaxInt64 && (r.Size < 0 || r.Last < r.Size)
}

// ParsePosition reads digits, and nothing else.
func ParsePosition(s string) (int64, bool) {
	n, err := strconv.ParseUint(s, 10, 63)
	return int64(n), err == nil
}

// SizeFor is the size of the object that the part belongs to, -1 unknown. A part that ends before the asked one, or that
// was asked to go to the end, ends where the object does.
func (r *ContentRange) SizeFor(want muxcore.Range) int64 {
	if r.Size < 0 && (want.Offset < 0 || r.Last < lastOf(want)) {
		return r.Last + 1
	}
	return r.Size
}

// Answers tells whether the part is the one that was asked for.
func (r *ContentRange) Answers(want muxcore.Range) bool {
	size := r.SizeFor(want)
	if want.Offset < 0 {
		return r.First == max(0, size+want.Offset) && r.Last == size-1
	}
	last := lastOf(want)
	if size >= 0 {
		last = min(last, size-1)
	}
	return r.First == want.Offset && r.Last == last
}

// MayApply tells whether a range can apply under ifRange at all: it is a strong entity tag or a date.
func MayApply(ifRange string) bool {
	if ifRange == "" || muxcore.IsStrong(ifRange) {
		return true
	}
	_, err := http.ParseTime(ifRange)
	return err == nil
}

// RangeField is r as a Range field. A suffix is asked for whole, and cut by us.
func RangeField(r muxcore.Range) string {
	var b [48]byte
	f := append(b[:0], "bytes="...)
	switch {
	case r.Offset == math.MinInt64:
		f = strconv.AppendInt(f, -math.MaxInt64, 10)
	case r.Offset < 0:
		f = strconv.AppendInt(f, r.Offset, 10)
	default:
		f = append(strconv.AppendInt(f, r.Offset, 10), '-')
		if last := lastOf(r); last != math.MaxInt64 {
			f = strconv.AppendInt(f, last, 10)
		}
	}
	return string(f)
}

// lastOf is the position of the last byte that r, which is no suffix, asks for; math.MaxInt64 is the end.
func lastOf(r muxcore.Range) int64 {
	if r.Length <= 0 || r.Length > math.MaxInt64-r.Offset {
		return math.MaxInt64
	}
	return r.Offset + r.Length - 1
}
