package httpstore

import (
	"maps"
	"math"
	"net/http"
	"strconv"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// ask is what a read asks for.
type ask struct {
	op   muxcore.Op
	key  string
	opts muxcore.GetOptions

	ranged      bool // the range is sent
	conditional bool // the conditions are sent
	again       bool // this is the second, plainer try
}

func (a *ask) method() string {
	if a.op == muxcore.OpStat {
		return http.MethodHead
	}
	return http.MethodGet
}

// header is base with the fields of the question. What it returns may be shared.
func (a *ask) header(base http.Header) http.Header {
	if !a.ranged && !a.conditional {
		return base
	}
	h := maps.Clone(base)
	if a.conditional {
		addConditions(h, &a.opts.Conditions)
	}
	if a.ranged {
		h["Range"] = []string{rangeField(a.opts.Range)}
		if a.opts.IfRange != "" {
			h["If-Range"] = []string{a.opts.IfRange}
		}
	}
	return h
}

// mayApply tells whether a range can apply under ifRange at all: it is a strong entity tag or a date.
func mayApply(ifRange string) bool {
	if ifRange == "" || muxcore.IsStrong(ifRange) {
		return true
	}
	_, err := http.ParseTime(ifRange)
	return err == nil
}

// rangeField is r as a Range field. A suffix is asked for whole, and cut by us.
func rangeField(r muxcore.Range) string {
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
