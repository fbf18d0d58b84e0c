package caddybreaker

import (
	"encoding/json"
	"net/http"

	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
)

func init() {
	httpcaddyfile.RegisterGlobalOption(appName, parseGlobal)
	httpcaddyfile.RegisterDirective(appName, parseRoute)
	httpcaddyfile.RegisterDirectiveOrder(appName, httpcaddyfile.Before, "invoke")
}

// UnmarshalCaddyfile sets up the transport from Caddyfile tokens:
//
//	transport relay_breaker [<registry>] {
//	    registry            <name>
//	    local_id            <id>
//	    failure_threshold   <n>
//	    success_threshold   <n>
//	    open_duration       <duration> [<max>]
//	    half_open_max_calls <n>
//	    trial_timeout       <duration>
//	    failure_status      <codes and classes...>
//	    ignore_status       <codes and classes...>
//	    slow_call           <duration>
//	    failure_ratio       <0..1> <window> <min-calls>
//	    max_concurrent      <n>
//	    min_available       <n>
//	    probe_uri           <path>
//	    probe_interval      <duration>
//	    probe_timeout       <duration>
//	    probe_only
//	    transport           <inner> { ... }
//	}
func (t *Transport) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	b := &block{more: map[string]func(*caddyfile.Dispenser) error{
		"registry":  registryWord(&t.Registry),
		"local_id":  word(&t.LocalID),
		"transport": t.parseInner,
	}}
	if err := b.registryArg(d, &t.Registry); err != nil {
		return err
	}
	return b.parse(d, &t.Options)
}

func (t *Transport) parseInner(d *caddyfile.Dispenser) error {
	if !d.NextArg() {
		return d.Errf("transport: missing the name of a transport")
	}
	t.innerName = d.Val()
	if t.innerName == appName {
		return d.Errf("transport: relay_breaker cannot wrap itself")
	}
	module, err := caddyfile.UnmarshalModule(d, transportNamespace+t.innerName)
	if err != nil {
		return err
	}
	inner, ok := module.(http.RoundTripper)
	if !ok {
		return d.Errf("transport: module %s is no transport", t.innerName)
	}
	t.inner = inner
	return t.encodeInner()
}

// encodeInner writes the inner transport down, as it is now.
func (t *Transport) encodeInner() error {
	var err error
	t.TransportRaw, err = moduleJSON(t.inner, "protocol", t.innerName)
	return err
}

// UnmarshalCaddyfile sets up the policy from Caddyfile tokens:
//
//	lb_policy relay_breaker [<policy> [<args>...]] {
//	    registry <name>
//	    policy   <policy> [<args>...] { ... }
//	}
func (s *Selection) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // consume the policy's name
	b := new(block)
	if args := d.RemainingArgsAsTokens(); len(args) > 0 {
		if err := s.parsePolicy(d, caddyfile.NewDispenser(args)); err != nil {
			return err
		}
		_ = b.once(d, "policy")
	}
	b.more = map[string]func(*caddyfile.Dispenser) error{
		"registry": registryWord(&s.Registry),
		"policy": func(d *caddyfile.Dispenser) error {
			if !d.NextArg() {
				return d.Errf("policy: missing the name of a policy")
			}
			d.Prev()
			inner := d.NewFromNextSegment()
			inner.Next() // the word policy
			return s.parsePolicy(d, inner)
		},
	}
	return b.parse(d, nil)
}

// parsePolicy reads the inner policy that begins at the next token of inner.
func (s *Selection) parsePolicy(d, inner *caddyfile.Dispenser) error {
	inner.Next()
	name := inner.Val()
	if name == appName {
		return d.Errf("policy: relay_breaker cannot be its own inner policy")
	}
	module, err := caddyfile.UnmarshalModule(inner, policyNamespace+name)
	if err != nil {
		return err
	}
	if _, ok := module.(reverseproxy.Selector); !ok {
		return d.Errf("policy: module %s is no selection policy", name)
	}
	s.PolicyRaw, err = moduleJSON(module, "policy", name)
	return err
}

// handlerLacks are the options that only a transport can have.
var handlerLacks = map[string]string{
	"min_available":  needsPolicy,
	"probe_uri":      needsTransport,
	"probe_interval": needsTransport,
	"probe_timeout":  needsTransport,
	"probe_only":     needsTransport,
}

// parseHandler sets up the handler from Caddyfile tokens:
//
//	relay_breaker [<matcher>] [<path-id>] {
//	    registry <name>
//	    local_id <id>
//	    <options, as for the transport>
//	}
//
// Without a path-id, a handler is named by its place (place.go).
func parseRoute(h httpcaddyfile.Helper) ([]httpcaddyfile.ConfigValue, error) {
	h.Next() // consume the directive's name
	at := place{site: siteOf(h)}
	if h.NextArg() {
		at.matcher = h.Val()
	}
	h.Reset()
	h.Next()
	matcher, err := h.ExtractMatcherSet()
	if err != nil {
		return nil, err
	}
	handler, err := parseHandler(h, at)
	if err != nil {
		return nil, err
	}
	return h.NewRoute(matcher, handler), nil
}

func parseHandler(h httpcaddyfile.Helper, at place) (*Handler, error) {
	h.Next() // consume the directive's name
	handler := new(Handler)
	if h.NextArg() {
		if handler.PathID = h.Val(); handler.PathID == "" {
			return nil, h.Errf("path-id: must not be empty; leave it out, and the handler is named by its place")
		}
		if h.NextArg() {
			return nil, h.Errf("relay_breaker: one word too many: '%s'", h.Val())
		}
	}
	b := &block{without: handlerLacks, more: map[string]func(*caddyfile.Dispenser) error{
		"registry": registryWord(&handler.Registry),
		"local_id": word(&handler.LocalID),
	}}
	if err := b.parse(h.Dispenser, &handler.Options); err != nil {
		return nil, err
	}
	if handler.PathID == "" {
		handler.PathID = at.name(h.State)
	}
	return handler, nil
}

// parseGlobal sets up the app from Caddyfile tokens, once per registry:
//
//	relay_breaker [<registry>] {
//	    local_id <id>
//	    <options, as for the transport>
//	}
func parseGlobal(d *caddyfile.Dispenser, existing any) (any, error) {
	app := App{Registries: make(map[string]*RegistryConfig)}
	if before, ok := existing.(httpcaddyfile.App); ok {
		if err := json.Unmarshal(before.Value, &app); err != nil {
			return nil, d.WrapErr(err)
		}
	}
	for d.Next() {
		name, cfg := defaultRegistry, new(RegistryConfig)
		b := &block{more: map[string]func(*caddyfile.Dispenser) error{"local_id": word(&cfg.LocalID)}}
		if d.NextArg() {
			name = d.Val()
			if err := validRegistry(d, name); err != nil {
				return nil, err
			}
			if d.NextArg() {
				return nil, d.Errf("relay_breaker: one word too many: '%s'", d.Val())
			}
		}
		if app.Registries[name] != nil {
			return nil, d.Errf("registry '%s': already specified", name)
		}
		if err := b.parse(d, &cfg.Options); err != nil {
			return nil, err
		}
		app.Registries[name] = cfg
	}
	return httpcaddyfile.App{Name: appName, Value: caddyconfig.JSON(&app, nil)}, nil
}

// registryArg reads the registry that may follow the name of a module.
func (b *block) registryArg(d *caddyfile.Dispenser, target *string) error {
	d.Next() // consume the module's name
	if !d.NextArg() {
		return nil
	}
	*target = d.Val()
	if err := validRegistry(d, *target); err != nil {
		return err
	}
	if d.NextArg() {
		return d.Errf("relay_breaker: one word too many: '%s'", d.Val())
	}
	return b.once(d, "registry")
}

// Interface guards.
var (
	_ caddyfile.Unmarshaler = (*Transport)(nil)
	_ caddyfile.Unmarshaler = (*Selection)(nil)
)
