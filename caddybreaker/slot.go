package caddybreaker

import (
	"fmt"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/suaveplan/caddy-storage-mux/internal/strictjson"
	"github.com/suaveplan/caddy-storage-mux/muxcore/breaker"
)

func init() { caddy.RegisterModule((*Slot)(nil)) }

// Slot is a circuit breaker for Caddy's own circuit_breaker option of
// reverse_proxy, which only JSON can set. Caddy gives a proxy one breaker for all
// its upstreams, asks it about each of them, and tells it of answers but not of
// connections that fail, of bodies that break off or of a Retry-After; and as
// nobody holds a permit, trials are not limited while half-open, and refusals are
// not counted. Prefer the transport relay_breaker, which has none of these limits.
type Slot struct {
	// What the proxy stands for: the path is <local_id>→<path_id>. Required.
	PathID string `json:"path_id,omitempty"`

	// The registry that holds the breaker. Default: "default".
	Registry string `json:"registry,omitempty"`

	// The name of this end of each path, of the whole registry. Default: as set
	// there, else the host name.
	LocalID string `json:"local_id,omitempty"`

	Options

	path *namedPath
}

// CaddyModule returns the Caddy module information.
func (*Slot) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.reverse_proxy.circuit_breakers.relay_breaker",
		New: func() caddy.Module { return new(Slot) },
	}
}

// UnmarshalJSON implements json.Unmarshaler: an error names the field.
func (s *Slot) UnmarshalJSON(data []byte) error {
	type plain Slot
	return strictjson.Decode(data, (*plain)(s))
}

// Provision sets up s.
func (s *Slot) Provision(ctx caddy.Context) error {
	if s.MaxConcurrent != 0 {
		return fmt.Errorf("max_concurrent: Caddy's circuit_breaker cannot limit calls; use unhealthy_request_count, or transport relay_breaker")
	}
	var err error
	s.path, err = newNamedPath(ctx, s.Registry, s.LocalID, s.PathID, s.Options)
	return err
}

// OK implements reverseproxy.CircuitBreaker.
func (s *Slot) OK() bool {
	g := s.path.guard()
	return g == nil || g.entry.breaker.Ready()
}

// RecordMetric implements reverseproxy.CircuitBreaker.
func (s *Slot) RecordMetric(status int, latency time.Duration) {
	g := s.path.guard()
	if g == nil {
		return
	}
	v := s.path.def.classes.status(status, nil)
	if limit := time.Duration(s.path.def.opts.SlowCall); limit > 0 && latency >= limit && v.outcome == breaker.Success {
		v = failure("slow: " + latency.Round(time.Millisecond).String())
	}
	g.entry.breaker.Record(v.outcome, v.cause)
	g.entry.calls[v.outcome].Add(1)
}

// Interface guards.
var (
	_ caddy.Provisioner           = (*Slot)(nil)
	_ reverseproxy.CircuitBreaker = (*Slot)(nil)
)
