package httpstore

import (
	"maps"
	"net/http"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/internal/wire"
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
		h["Range"] = []string{wire.RangeField(a.opts.Range)}
		if a.opts.IfRange != "" {
			h["If-Range"] = []string{a.opts.IfRange}
		}
	}
	return h
}
