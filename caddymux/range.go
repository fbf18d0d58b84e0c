package caddymux

import (
	"math"
	"net/textproto"
	"strings"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// maxRanges is how many ranges one request may name; with more, they are ignored, as net/http does.
const maxRanges = 200

// nothing is a range of no bytes, as a client can write it ("-0") but no store can open it.
var nothing = muxcore.Range{Offset: math.MaxInt64, Length: math.MaxInt64}

// parseRange reads a Range field. nil: there is none, it is malformed, or it is not to be obeyed. A range that is
// well-formed may still lie past the end of an object. Numbers too large to count with are as good as endless.
func parseRange(field string) []muxcore.Range {
	const unit = "bytes="
	if len(field) < len(unit) || !strings.EqualFold(field[:len(unit)], unit) {
		return nil
	}
	specs := field[len(unit):]
	if !strings.Contains(specs, ",") {
		r, ok := parseRangeSpec(textproto.TrimString(specs))
		if !ok {
			return nil
		}
		return []muxcore.Range{r}
	}
	if strings.Count(specs, ",") >= maxRanges {
		return nil
	}
	var ranges []muxcore.Range
	for spec := range strings.SplitSeq(specs, ",") {
		spec = textproto.TrimString(spec)
		if spec == "" {
			continue
		}
		r, ok := parseRangeSpec(spec)
		if !ok {
			return nil
		}
		ranges = append(ranges, r)
	}
	return ranges
}

// parseRangeSpec reads one of first-last, first- and -length.
func parseRangeSpec(spec string) (muxcore.Range, bool) {
	first, last, ok := strings.Cut(spec, "-")
	if !ok {
		return muxcore.Range{}, false
	}
	if first == "" {
		length, ok := parsePosition(last)
		if length == 0 {
			return nothing, ok
		}
		return muxcore.Range{Offset: -length}, ok
	}
	from, ok := parsePosition(first)
	if !ok || last == "" {
		return muxcore.Range{Offset: from}, ok
	}
	to, ok := parsePosition(last)
	if !ok || to < from {
		return muxcore.Range{}, false
	}
	if to-from == math.MaxInt64 {
		return muxcore.Range{Offset: from}, true
	}
	return muxcore.Range{Offset: from, Length: to - from + 1}, true
}

// parsePosition reads digits. What does not fit is the largest that does.
func parsePosition(digits string) (int64, bool) {
	if digits == "" {
		return 0, false
	}
	var n int64
	for _, c := range []byte(digits) {
		if c < '0' || c > '9' {
			return 0, false
		}
		if n > (math.MaxInt64-9)/10 {
			n = math.MaxInt64
			continue
		}
		n = n*10 + int64(c-'0')
	}
	return n, true
}
