package caddybreaker

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/suaveplan/caddy-storage-mux/muxcore/breaker"
)

func init() {
	caddy.RegisterModule(collectHandler{})
	caddy.RegisterModule(panicHandler{})
	caddy.RegisterModule(busyHandler{})
	httpcaddyfile.RegisterHandlerDirective("test_panic", func(httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
		return panicHandler{}, nil
	})
	httpcaddyfile.RegisterDirectiveOrder("test_panic", httpcaddyfile.Before, "respond")
}

// panicHandler does what its name says, as an aborted response if asked.
type panicHandler struct{}

func (panicHandler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.test_panic", New: func() caddy.Module { return new(panicHandler) }}
}

func (panicHandler) UnmarshalCaddyfile(*caddyfile.Dispenser) error { return nil }

func (panicHandler) ServeHTTP(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	w.WriteHeader(200)
	_, _ = w.Write([]byte("half of"))
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

// trip makes an origin fail until its path is open.
func trip(r *rig, o *origin, failures int) {
	r.t.Helper()
	o.status.Store(500)
	for range failures {
		r.want("/x", 500)
	}
	if v := r.path(o); v.OpenedTotal == 0 {
		r.t.Fatalf("%d failures did not open the path: %+v", failures, v)
	}
}

func entryOf(t *testing.T, path string) *entry {
	t.Helper()
	for _, e := range entries() {
		if e.key.path == path {
			return e
		}
	}
	t.Fatalf("no entry for %s", path)
	return nil
}

func openPaths() []string {
	var open []string
	for _, v := range views() {
		if v.State == breaker.Open {
			open = append(open, v.PathID)
		}
	}
	return open
}

// collectHandler is an events handler that remembers transitions.
type collectHandler struct{}

var collected struct {
	sync.Mutex
	lines []string
}

func (collectHandler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "events.handlers.test_collect", New: func() caddy.Module { return new(collectHandler) }}
}

func (*collectHandler) UnmarshalCaddyfile(*caddyfile.Dispenser) error { return nil }

func (collectHandler) Handle(_ context.Context, e caddy.Event) error {
	collected.Lock()
	defer collected.Unlock()
	collected.lines = append(collected.lines, fmt.Sprintf("%v>%v %v", e.Data["from"], e.Data["state"], e.Data["reason"]))
	return nil
}

// collectEvents forgets what was collected, and returns how to read it.
func collectEvents(t *testing.T) func() []string {
	t.Helper()
	collected.Lock()
	defer collected.Unlock()
	collected.lines = nil
	return func() []string {
		collected.Lock()
		defer collected.Unlock()
		return slices.Clone(collected.lines)
	}
}

// busyHandler is an events handler that takes its time: until the gate opens.
type busyHandler struct{}

var busyGate atomic.Pointer[chan struct{}]

func (busyHandler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "events.handlers.test_busy", New: func() caddy.Module { return new(busyHandler) }}
}

func (*busyHandler) UnmarshalCaddyfile(*caddyfile.Dispenser) error { return nil }

func (busyHandler) Handle(context.Context, caddy.Event) error {
	<-*busyGate.Load()
	return nil
}
