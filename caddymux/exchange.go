package caddymux

import (
	"errors"
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// exchange is one request under way.
type exchange struct {
	h      *Handler
	t      *tree
	w      http.ResponseWriter
	r      *http.Request
	repl   *caddy.Replacer
	method string // in an error route, every method but HEAD is read as GET

	status  int  // instead of 200
	plain   bool // ranges and preconditions are ignored
	erring  bool // this is an error route
	started time.Time
	result  result
	told    placeholders
	sink    sink
	values  [8]string // of header fields, see set
	fields  int       // of them, taken
}

// result is what the placeholders tell of a request.
type result struct {
	tree    string
	via     muxcore.Via
	class   muxcore.Class
	code    muxcore.Code
	latency time.Duration
}

// resultKey finds the result of an earlier storage_mux handler of the same request, so that the last one counts.
const resultKey = "http.storage_mux"

// begin sets up the exchange.
func (x *exchange) begin() {
	x.started = time.Now()
	x.status = http.StatusOK
	x.result.tree = x.t.name
	if x.h.status != 0 {
		x.status = x.h.status
	}
	if failure, ok := x.r.Context().Value(caddyhttp.ErrorCtxKey).(error); ok {
		x.inErrorRoute(failure)
	} else {
		x.plain = x.status/100 != 2
	}
	if x.repl == nil {
		x.repl = caddy.NewReplacer()
	}
	if earlier, ok := x.repl.Get(resultKey); ok {
		if p, ok := earlier.(*placeholders); ok {
			p.of = &x.result
			return
		}
	}
	x.told.of = &x.result
	x.repl.Map(x.told.value)
}

// inErrorRoute reads the request as file_server does when it serves an error page.
func (x *exchange) inErrorRoute(failure error) {
	x.plain, x.erring = true, true
	if x.method != http.MethodHead {
		x.method = http.MethodGet
	}
	if x.h.status != 0 {
		return
	}
	x.status = http.StatusInternalServerError
	if handlerErr, ok := errors.AsType[caddyhttp.HandlerError](failure); ok && handlerErr.StatusCode > 0 {
		x.status = handlerErr.StatusCode
	}
}

// placeholders gives the values of the latest result. It computes them only when somebody asks.
type placeholders struct{ of *result }

func (p *placeholders) value(name string) (any, bool) {
	const prefix = resultKey + "."
	if len(name) <= len(prefix) || name[:len(prefix)] != prefix {
		return p, name == resultKey
	}
	switch name[len(prefix):] {
	case "tree":
		return p.of.tree, true
	case "backend":
		return p.of.via.Backend, true
	case "attempts":
		return p.of.via.Attempts, true
	case "outcome":
		return p.of.class.Outcome(), true
	case "error_code":
		return string(p.of.code), true
	case "latency_ms":
		return float64(p.of.latency) / float64(time.Millisecond), true
	}
	return nil, false
}

// answered notes who answered.
func (x *exchange) answered(via muxcore.Via) {
	x.result.latency = time.Since(x.started)
	x.result.via, x.result.class, x.result.code = via, muxcore.ClassOK, ""
}

// erred notes why there is no answer.
func (x *exchange) erred(err error) {
	x.result.latency = time.Since(x.started)
	x.result.class = muxcore.Classify(x.r.Context(), err)
	if e, ok := errors.AsType[*muxcore.Error](err); ok {
		x.result.code = e.Code
		x.result.via = muxcore.Via{Backend: e.Backend, Attempts: e.Attempts}
	}
}
