package caddybreaker

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	"go.uber.org/zap"

	"github.com/suaveplan/caddy-storage-mux/internal/strictjson"
	"github.com/suaveplan/caddy-storage-mux/muxcore/breaker"
)

func init() { caddy.RegisterModule((*Transport)(nil)) }

const (
	transportNamespace = "http.reverse_proxy.transport."
	defaultTransport   = "http"
)

// Transport puts a circuit breaker around each upstream of a reverse proxy. It
// wraps any other transport, counts what becomes of each call to the end of its
// body, and refuses calls to an upstream that keeps failing: to the proxy a
// refusal is a dial error, which it may retry elsewhere with the request
// untouched; to the client it is a 503.
//
// With several upstreams, use the selection policy relay_breaker, too: it keeps
// requests away from upstreams that would refuse. If passive health checks are
// on, Caddy counts a refusal as a failure of the upstream; the policy avoids
// that, because a refusing upstream is not asked.
//
// Caddy's own active health checks pass untouched.
type Transport struct {
	// The transport that makes the calls. Default: http.
	TransportRaw json.RawMessage `json:"transport,omitempty" caddy:"namespace=http.reverse_proxy.transport inline_key=protocol"`

	// The registry whose breakers are used. Proxies that name the same one share
	// the breaker of an upstream. Default: "default".
	Registry string `json:"registry,omitempty"`

	// The name of this end of each path, of the whole registry. Default: as set
	// there, else the host name.
	LocalID string `json:"local_id,omitempty"`

	Options

	inner     http.RoundTripper
	innerName string          // only while adapting a Caddyfile
	innerRaw  json.RawMessage // only while provisioning: Caddy empties TransportRaw

	registry *registry
	def      *definition
	members  membership
	prober   *prober
	logger   *zap.Logger
}

// CaddyModule returns the Caddy module information.
func (*Transport) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  transportNamespace + "relay_breaker",
		New: func() caddy.Module { return new(Transport) },
	}
}

// UnmarshalJSON implements json.Unmarshaler: an error names the field.
func (t *Transport) UnmarshalJSON(data []byte) error {
	type plain Transport
	return strictjson.Decode(data, (*plain)(t))
}

// Provision sets up t.
func (t *Transport) Provision(ctx caddy.Context) error {
	t.logger = ctx.Logger()
	if err := t.loadInner(ctx); err != nil {
		return err
	}
	app, err := breakerApp(ctx)
	if err != nil {
		return err
	}
	if t.registry, err = app.registry(t.Registry); err != nil {
		return err
	}
	if t.LocalID != "" {
		if err := t.registry.setLocalID(t.LocalID); err != nil {
			return err
		}
	}
	proxy := parentProxy(ctx)
	_, probing := t.inner.(*reverseproxy.HTTPTransport)
	if t.def, err = t.define(t.registry.defaults, probing, usesPolicy(proxy)); err != nil {
		return err
	}
	if n := t.registry.defaults.MinAvailable; n > 0 && proxy != nil && !usesPolicy(proxy) {
		t.logger.Warn("min_available of the registry does nothing for this proxy: it "+needsPolicy,
			zap.String("registry", t.registry.name), zap.Strings("upstreams", dialsOf(proxy)), zap.Int("min_available", n))
	}
	if t.def.opts.ProbeURI != "" {
		if t.prober, err = newProber(ctx, t); err != nil {
			return err
		}
	}
	t.innerRaw = nil
	t.registry.join(t)
	return t.defineStatic(proxy)
}

// Cleanup ends the probes. The inner transport is cleaned up by Caddy, which
// loaded it.
func (t *Transport) Cleanup() error {
	t.members.leave()
	if t.prober != nil {
		t.prober.stop()
	}
	return nil
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	dial, ok := reverseproxy.GetDialInfo(ctx)
	vars := varsOf(ctx)
	if !ok || vars == nil {
		// Without the variables every served request has, it is made by Caddy
		// itself, for nobody: an active health check.
		return t.inner.RoundTrip(req)
	}
	g := t.registry.meet(upstreamOf(dial), t)
	if g == nil {
		noteNobody(ctx)
		return t.inner.RoundTrip(req)
	}
	g.touch()
	b, err := claim(ctx, vars, g)
	if err != nil {
		return nil, refused(ctx, g, err)
	}
	note(ctx, g, "")
	return t.roundTrip(req, b)
}

// roundTrip makes an admitted call.
func (t *Transport) roundTrip(req *http.Request, b *trackedBody) (*http.Response, error) {
	defer func() {
		if p := recover(); p != nil {
			b.end(neutral("panic in the transport"))
			b.isOver()
			panic(p)
		}
	}()
	if req.Body != nil && req.Body != http.NoBody {
		b.up.ReadCloser = req.Body
		req = req.WithContext(b.ctx) // a copy, ours to change
		req.Body = &b.up
	}
	late := b.hurry(&b.up)
	res, err := t.send(req)
	tooLate := late() // judged already
	switch {
	case err != nil:
		if !tooLate {
			b.end(broken(b.ctx, err, &b.up, ""))
		}
		b.isOver()
		return res, err
	case tooLate:
		b.follow(req, res)
		return res, nil
	}
	b.permit.Sent(b.up.sent())
	b.permit.Answered()
	v := b.up.excuse(b.guard.def.classes.status(res.StatusCode, res.Header))
	if v.outcome != breaker.Success || judgedByHeader(req, res) {
		b.end(v)
		b.follow(req, res)
		return res, nil
	}
	b.track(res, time.Duration(b.guard.def.opts.TrialTimeout))
	return res, nil
}

// send makes the call, again if its answer was lost to a reload and asking twice does no harm.
func (t *Transport) send(req *http.Request) (*http.Response, error) {
	res, err := t.inner.RoundTrip(req)
	if err != nil && lostToReload(err) && isRepeatable(req) {
		return t.inner.RoundTrip(req)
	}
	return res, err
}

// lostToReload reports whether our own side has closed the connection: the config
// that owns it has ended, and with it all connections that were idle. net/http
// takes one for idle a moment before it hands on an answer without a body; it has
// no name for the error.
func lostToReload(err error) bool {
	return strings.HasSuffix(err.Error(), "http: CloseIdleConnections called")
}

// isRepeatable reports whether the method is safe (RFC 9110, 9.2.1) and no body is used up.
func isRepeatable(req *http.Request) bool {
	switch req.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return req.Body == nil || req.Body == http.NoBody
	}
	return false
}

// definition implements user.
func (t *Transport) definition() *definition { return t.def }

// watch implements watcher.
func (t *Transport) watch(g *guard) (unwatch func()) {
	if t.prober == nil {
		return func() {}
	}
	return t.prober.watch(g)
}

func (t *Transport) loadInner(ctx caddy.Context) error {
	if t.TransportRaw == nil {
		mod, err := ctx.LoadModuleByID(transportNamespace+defaultTransport, nil)
		if err != nil {
			return fmt.Errorf("loading inner transport: %w", err)
		}
		t.inner = mod.(http.RoundTripper)
		return nil
	}
	t.innerRaw = slices.Clone(t.TransportRaw)
	mod, err := ctx.LoadModule(t, "TransportRaw")
	if err != nil {
		return fmt.Errorf("loading inner transport: %w", err)
	}
	if _, again := mod.(*Transport); again {
		return fmt.Errorf("transport: relay_breaker cannot wrap itself")
	}
	t.inner = mod.(http.RoundTripper)
	return nil
}

// defineStatic defines the paths that the proxy names.
func (t *Transport) defineStatic(proxy *reverseproxy.Handler) error {
	if proxy == nil {
		return nil
	}
	for _, u := range proxy.Upstreams {
		upstream, ok := staticUpstream(u.Dial)
		if !ok {
			continue
		}
		if err := t.registry.define(upstream, t); err != nil {
			return err
		}
	}
	if t.def.opts.MinAvailable > 0 {
		t.members.keep(t.def.opts.MinAvailable)
		if n := len(proxy.Upstreams); n > 0 && n <= t.def.opts.MinAvailable {
			t.logger.Warn("min_available leaves no upstream that could open", zap.Int("upstreams", n))
		}
	}
	if (len(proxy.Upstreams) > 1 || proxy.DynamicUpstreamsRaw != nil) && !usesPolicy(proxy) {
		t.logger.Warn("transport relay_breaker over several upstreams without lb_policy relay_breaker: requests are still sent to upstreams that refuse")
	}
	return nil
}

// judgedByHeader reports whether there is no body to wait for: an empty one, an
// upgraded connection, or a stream that lasts as long as both sides like.
func judgedByHeader(req *http.Request, res *http.Response) bool {
	if req.Method == http.MethodHead || res.Body == nil || res.Body == http.NoBody || res.ContentLength == 0 || res.StatusCode == http.StatusSwitchingProtocols {
		return true
	}
	return isStream(res.Header)
}

func isStream(h http.Header) bool {
	const events, grpc = "text/event-stream", "application/grpc"
	kind, _, _ := strings.Cut(h.Get("Content-Type"), ";") // parsed whole, it would cost more than all else here
	kind = strings.TrimSpace(kind)
	return strings.EqualFold(kind, events) || len(kind) >= len(grpc) && strings.EqualFold(kind[:len(grpc)], grpc)
}

// parentProxy returns the reverse proxy that ctx is loading a module for.
func parentProxy(ctx caddy.Context) *reverseproxy.Handler {
	for _, module := range slices.Backward(ctx.Modules()) {
		if proxy, ok := module.(*reverseproxy.Handler); ok {
			return proxy
		}
	}
	return nil
}

// dialsOf names a proxy for its operator, who wrote its upstreams.
func dialsOf(proxy *reverseproxy.Handler) []string {
	dials := make([]string, 0, len(proxy.Upstreams))
	for _, up := range proxy.Upstreams {
		dials = append(dials, up.Dial)
	}
	return dials
}

// usesPolicy reports whether a proxy has our selection policy. It reads the
// config, because the transport is loaded first.
func usesPolicy(proxy *reverseproxy.Handler) bool {
	if proxy == nil || proxy.LoadBalancing == nil {
		return false
	}
	var policy struct {
		Policy string `json:"policy"`
	}
	return json.Unmarshal(proxy.LoadBalancing.SelectionPolicyRaw, &policy) == nil && policy.Policy == "relay_breaker"
}

// upstreamOf names an upstream: its dial address after placeholders.
func upstreamOf(dial reverseproxy.DialInfo) string {
	return upstreamName(dial.Network, dial.Address)
}

func upstreamName(network, address string) string {
	if network == "" || network == "tcp" {
		return address
	}
	return network + "/" + address
}

// staticUpstream names the upstream of a dial address that no request changes.
func staticUpstream(dial string) (string, bool) {
	if strings.Contains(dial, "{") {
		dial = caddy.NewReplacer().ReplaceKnown(dial, "")
		if strings.Contains(dial, "{") {
			return "", false
		}
	}
	return parseUpstream(dial)
}

func parseUpstream(dial string) (string, bool) {
	addr, err := caddy.ParseNetworkAddress(dial)
	if err != nil || addr.PortRangeSize() != 1 {
		return "", false
	}
	return upstreamName(addr.Network, addr.JoinHostPort(0)), true
}
