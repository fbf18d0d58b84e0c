package caddybreaker

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	"go.uber.org/zap"

	"github.com/suaveplan/caddy-storage-mux/muxcore/breaker"
)

func init() { caddy.RegisterModule((*Selection)(nil)) }

const policyNamespace = "http.reverse_proxy.selection_policies."

// reservationVar holds the permit that the policy took for the transport.
const reservationVar = "relay_breaker.reservation"

// Selection keeps requests away from upstreams whose breaker would refuse, and
// leaves the choice between the others to another policy. Where all refuse, the
// answer is 503 with Retry-After.
type Selection struct {
	// The policy that chooses between the upstreams that do not refuse.
	// Default: random.
	PolicyRaw json.RawMessage `json:"inner,omitempty" caddy:"namespace=http.reverse_proxy.selection_policies inline_key=policy"`

	// The registry to ask. Default: that of the proxy's transport, else "default".
	Registry string `json:"registry,omitempty"`

	inner     reverseproxy.Selector
	weighted  *weighted // in place of inner while upstreams are left out
	transport *Transport
	registry  *registry
}

// CaddyModule returns the Caddy module information.
func (*Selection) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  policyNamespace + "relay_breaker",
		New: func() caddy.Module { return new(Selection) },
	}
}

// Provision sets up s.
func (s *Selection) Provision(ctx caddy.Context) error {
	if err := s.loadInner(ctx); err != nil {
		return err
	}
	if proxy := parentProxy(ctx); proxy != nil {
		s.transport, _ = proxy.Transport.(*Transport)
	}
	if s.transport != nil && s.Registry == "" {
		s.registry = s.transport.registry
		return nil
	}
	app, err := breakerApp(ctx)
	if err != nil {
		return err
	}
	if s.registry, err = app.registry(s.Registry); err != nil {
		return err
	}
	if s.transport == nil || s.transport.registry != s.registry {
		ctx.Logger().Warn("lb_policy relay_breaker asks a registry that this proxy does not report to; use transport relay_breaker with the same registry",
			zap.String("registry", s.registry.name))
	}
	return nil
}

// Select implements reverseproxy.Selector.
func (s *Selection) Select(pool reverseproxy.UpstreamPool, r *http.Request, w http.ResponseWriter) *reverseproxy.Upstream {
	vars := varsOf(r.Context())
	dropReservation(vars) // of an attempt that was not made
	if s.allClear(pool, r) {
		takeBackRetryAfter(w, vars)
		return s.inner.Select(pool, r, w)
	}
	guards := s.guardsOf(pool, r)
	refusing := make([]bool, 0, 16)
	anyRefuses := false
	for _, g := range guards {
		refuses := g != nil && !g.entry.breaker.Ready()
		anyRefuses = anyRefuses || refuses
		refusing = append(refusing, refuses)
	}
	for {
		up := s.choose(pool, refusing, anyRefuses, r, w)
		if up == nil {
			if anyRefuses {
				s.refuse(guards, refusing, r, w)
			}
			return nil
		}
		at := indexOf(pool, up)
		if at < 0 || guards[at] == nil || reserve(r.Context(), guards[at]) {
			takeBackRetryAfter(w, vars)
			return up
		}
		refusing[at], anyRefuses = true, true // somebody was faster
	}
}

// allClear reports whether no upstream needs any care: the usual case, and the
// one that must cost nothing.
func (s *Selection) allClear(pool reverseproxy.UpstreamPool, r *http.Request) bool {
	if s.transport != nil && s.transport.members.group != nil {
		return false
	}
	for _, up := range pool {
		if g := s.guardOf(up, r); g != nil && g.needsReservation() {
			return false
		}
	}
	return true
}

// choose asks the inner policy about those that do not refuse.
func (s *Selection) choose(pool reverseproxy.UpstreamPool, refusing []bool, anyRefuses bool, r *http.Request, w http.ResponseWriter) *reverseproxy.Upstream {
	if s.weighted != nil && anyRefuses {
		return s.weighted.choose(pool, refusing, r, w)
	}
	if !anyRefuses {
		return s.inner.Select(pool, r, w)
	}
	ready := make(reverseproxy.UpstreamPool, 0, len(pool))
	for i, up := range pool {
		if !refusing[i] {
			ready = append(ready, up)
		}
	}
	if len(ready) == 0 {
		return nil
	}
	return s.inner.Select(ready, r, w)
}

// refuse says why there is nothing to choose, and when to come back.
func (s *Selection) refuse(guards []*guard, refusing []bool, r *http.Request, w http.ResponseWriter) {
	var first *guard
	var wait time.Duration
	for i, g := range guards {
		if !refusing[i] {
			continue
		}
		due := or(g.entry.breaker.RetryAfter(), shortRetry)
		if first == nil || due < wait {
			first, wait = g, due
		}
	}
	code := breaker.CodePathOpen
	switch first.entry.breaker.State() {
	case breaker.HalfOpen:
		code = breaker.CodePathHalfOpenRejected
	case breaker.Closed:
		code = breaker.CodePathFull
	case breaker.Open:
	}
	first.entry.breaker.Reject()
	note(r.Context(), first, string(code))
	setRetryAfter(w, r, wait)
}

// guardsOf returns the guard of each upstream; nil for one nobody called yet.
func (s *Selection) guardsOf(pool reverseproxy.UpstreamPool, r *http.Request) []*guard {
	guards := make([]*guard, len(pool))
	for i, up := range pool {
		guards[i] = s.guardOf(up, r)
	}
	if s.transport != nil && s.transport.members.group != nil {
		members := make([]*guard, 0, len(guards))
		for _, g := range guards {
			if g != nil {
				members = append(members, g)
			}
		}
		s.transport.members.sync(members)
	}
	return guards
}

func (s *Selection) guardOf(up *reverseproxy.Upstream, r *http.Request) *guard {
	if g := s.registry.lookup(up.Dial); g != nil {
		return g // as it is written in most configs
	}
	dial := up.Dial
	if strings.Contains(dial, "{") {
		if repl, ok := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer); ok {
			dial = repl.ReplaceAll(dial, "")
		}
	}
	upstream, ok := parseUpstream(dial)
	if !ok {
		return nil
	}
	if s.transport != nil && s.transport.members.group != nil && s.transport.registry == s.registry {
		return s.registry.meet(upstream, s.transport) // a pool must be known as a whole
	}
	return s.registry.lookup(upstream)
}

func (s *Selection) loadInner(ctx caddy.Context) error {
	if s.PolicyRaw == nil {
		s.inner = reverseproxy.RandomSelection{}
		return nil
	}
	mod, err := ctx.LoadModule(s, "PolicyRaw")
	if err != nil {
		return fmt.Errorf("loading inner policy: %w", err)
	}
	switch inner := mod.(type) {
	case *Selection:
		return fmt.Errorf("policy: relay_breaker cannot be its own inner policy")
	case *reverseproxy.WeightedRoundRobinSelection:
		s.inner, s.weighted = inner, newWeighted(inner)
	case reverseproxy.Selector:
		s.inner = inner
	}
	return nil
}

// reservation is a permit taken before the transport is called, so that it
// cannot be refused there: while half-open, or near max_concurrent, many
// requests see the same free place.
type reservation struct {
	guard  *guard
	permit breaker.Permit
	taken  atomic.Bool
	stop   func() bool
}

// reserve takes a permit where somebody else could take the last one, and
// reports whether the path can be used. A reservation that no call claims is
// returned when the request ends.
func reserve(ctx context.Context, g *guard) bool {
	if !g.needsReservation() {
		return true
	}
	permit, err := g.entry.breaker.Allow()
	if err != nil {
		return false
	}
	res := &reservation{guard: g, permit: permit}
	res.stop = context.AfterFunc(ctx, res.drop)
	caddyhttp.SetVar(ctx, reservationVar, res)
	return true
}

// needsReservation reports whether others could take the last free place.
func (g *guard) needsReservation() bool {
	return g.def.opts.MaxConcurrent > 0 || g.entry.breaker.State() != breaker.Closed
}

// claim hands the permit to the call it was taken for.
func (r *reservation) claim(g *guard) (breaker.Permit, bool) {
	if r.guard != g || !r.taken.CompareAndSwap(false, true) {
		return breaker.Permit{}, false
	}
	r.stop()
	return r.permit, true
}

func (r *reservation) drop() {
	if r.taken.CompareAndSwap(false, true) {
		r.permit.Neutral()
	}
}

func dropReservation(vars map[string]any) {
	if r, ok := vars[reservationVar].(*reservation); ok {
		r.stop()
		r.drop()
		delete(vars, reservationVar)
	}
}

func indexOf(pool reverseproxy.UpstreamPool, up *reverseproxy.Upstream) int {
	for i := range pool {
		if pool[i] == up {
			return i
		}
	}
	return -1
}

// Interface guards.
var (
	_ caddy.Provisioner     = (*Selection)(nil)
	_ reverseproxy.Selector = (*Selection)(nil)
)
