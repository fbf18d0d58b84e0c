package caddybreaker

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	"go.uber.org/zap"

	"github.com/suaveplan/caddy-storage-mux/internal/strictjson"
	"github.com/suaveplan/caddy-storage-mux/muxcore/breaker"
)

func init() { caddy.RegisterModule((*Selection)(nil)) }

const policyNamespace = "http.reverse_proxy.selection_policies."

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
	reported  bool // the transport reports to the registry that is asked
}

// CaddyModule returns the Caddy module information.
func (*Selection) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  policyNamespace + "relay_breaker",
		New: func() caddy.Module { return new(Selection) },
	}
}

// UnmarshalJSON implements json.Unmarshaler: an error names the field.
func (s *Selection) UnmarshalJSON(data []byte) error {
	type plain Selection
	return strictjson.Decode(data, (*plain)(s))
}

// Provision sets up s.
func (s *Selection) Provision(ctx caddy.Context) error {
	if err := s.loadInner(ctx); err != nil {
		return err
	}
	if proxy := parentProxy(ctx); proxy != nil {
		s.transport, _ = proxy.Transport.(*Transport)
	}
	if group := s.group(); group != nil && s.weighted != nil {
		group.weigh(s.weighted.weights)
	}
	if s.transport != nil && s.Registry == "" {
		s.registry, s.reported = s.transport.registry, true
		return nil
	}
	app, err := breakerApp(ctx)
	if err != nil {
		return err
	}
	if s.registry, err = app.registry(s.Registry); err != nil {
		return err
	}
	s.reported = s.transport != nil && s.transport.registry == s.registry
	switch {
	case s.reported:
	case s.group() != nil:
		return fmt.Errorf("registry: '%s' is not that of the transport, '%s', as its min_available needs", s.registry.name, s.transport.registry.name)
	default:
		ctx.Logger().Warn("lb_policy relay_breaker asks a registry that this proxy does not report to; use transport relay_breaker with the same registry",
			zap.String("registry", s.registry.name))
	}
	return nil
}

// Select implements reverseproxy.Selector.
func (s *Selection) Select(pool reverseproxy.UpstreamPool, r *http.Request, w http.ResponseWriter) *reverseproxy.Upstream {
	vars := varsOf(r.Context())
	dropReservation(vars) // of an attempt that was not made
	var up *reverseproxy.Upstream
	if s.allClear(pool, r) {
		if up = s.inner.Select(pool, r, w); up != nil && !s.reserve(r.Context(), vars, s.guardOf(up, r)) {
			up = s.selectAround(pool, vars, r, w) // it tripped just now
		}
	} else {
		up = s.selectAround(pool, vars, r, w)
	}
	switch {
	case up != nil:
		takeBackRetryAfter(w, vars)
	case vars[retryAfterVar] == nil:
		noteNobody(r.Context())
	}
	return up
}

// allClear reports whether no upstream needs any care: the usual case, and the
// one that must cost nothing.
func (s *Selection) allClear(pool reverseproxy.UpstreamPool, r *http.Request) bool {
	group := s.group()
	for i, up := range pool {
		g := s.guardOf(up, r)
		if g != nil && g.entry.breaker.State() != breaker.Closed {
			return false
		}
		if group != nil && !group.has(i, g, up) {
			return false
		}
	}
	return group == nil || group.size() == len(pool)
}

// staleRounds is how often a pool with min_available is looked at before a
// refusal: paths are looked at one after the other, and the one that was out may
// have taken the place of one that was in.
const staleRounds = 3

// selectAround chooses between the upstreams that do not refuse; nil: there are
// none.
func (s *Selection) selectAround(pool reverseproxy.UpstreamPool, vars map[string]any, r *http.Request, w http.ResponseWriter) *reverseproxy.Upstream {
	guards := s.guardsOf(pool, r)
	refusing := make([]bool, len(guards))
	for round := 1; ; round++ {
		anyRefuses, lost := false, false
		for i, g := range guards {
			refusing[i] = g != nil && !g.entry.breaker.Ready()
			anyRefuses = anyRefuses || refusing[i]
		}
		for {
			up := s.choose(pool, refusing, anyRefuses, r, w)
			if up == nil {
				break
			}
			at := indexOf(pool, up)
			if at < 0 || s.reserve(r.Context(), vars, guards[at]) {
				return up
			}
			refusing[at], anyRefuses, lost = true, true, true // somebody was faster
		}
		switch {
		case !anyRefuses:
			return nil // for reasons of the inner policy
		case !lost && (s.group() == nil || round >= staleRounds):
			s.refuse(guards, refusing, r, w)
			return nil
		}
	}
}

// group returns the pool's membership where min_available is on.
func (s *Selection) group() *membership {
	if s.transport == nil || s.transport.members.group == nil {
		return nil
	}
	return &s.transport.members
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
		if guards[i] = s.guardOf(up, r); guards[i] != nil {
			guards[i].touch() // a path that is left out is in use, too
		}
	}
	if group := s.group(); group != nil {
		group.sync(pool, guards)
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
	if s.group() != nil {
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
