package caddybreaker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/suaveplan/caddy-storage-mux/muxcore/breaker"
)

const (
	// probeHeader marks a probe, as the relay:probe message of the seeds does.
	probeHeader = "Relay-Probe"
	// probeBodyLimit is as much of a probe's answer as is read.
	probeBodyLimit = 1 << 20

	// How reverseproxy's http transport is told where to dial, and for whom. Both
	// keys are constants of its package that have no exported name.
	dialInfoKey      caddy.CtxKey = "reverse_proxy.dial_info"
	proxyProtocolVar string       = "reverse_proxy.proxy_protocol_info"
)

// prober is the HalfOpenProbe of a transport: it sends light requests over
// connections of its own, so that probes neither wait behind real traffic nor
// warm its connections.
type prober struct {
	rt      http.RoundTripper
	uri     *url.URL
	classes *classes
	probe   *breaker.HalfOpenProbe

	mu sync.Mutex

	upstreams map[string]string // by path
}

// probeInner is where Caddy loads the second instance of the inner transport.
type probeInner struct {
	TransportRaw json.RawMessage `caddy:"namespace=http.reverse_proxy.transport inline_key=protocol"`
}

func newProber(ctx caddy.Context, t *Transport) (*prober, error) {
	uri, err := url.ParseRequestURI(t.def.opts.ProbeURI)
	if err != nil {
		return nil, fmt.Errorf("probe_uri: %w", err)
	}
	var mod any
	if t.innerRaw == nil {
		mod, err = ctx.LoadModuleByID(transportNamespace+defaultTransport, nil)
	} else {
		mod, err = ctx.LoadModule(&probeInner{TransportRaw: t.innerRaw}, "TransportRaw")
	}
	if err != nil {
		return nil, fmt.Errorf("loading the transport of probes: %w", err)
	}
	p := &prober{
		rt:        mod.(http.RoundTripper),
		uri:       uri,
		classes:   &t.def.classes,
		upstreams: make(map[string]string),
	}
	logger := t.logger
	p.probe, err = breaker.NewHalfOpenProbe(p.check, breaker.ProbeSettings{
		Interval: time.Duration(t.def.opts.ProbeInterval),
		Timeout:  time.Duration(t.def.opts.ProbeTimeout),
		OnFailure: func(e *breaker.Error) {
			if line := logger.Check(zapcore.DebugLevel, "probe failed"); line != nil {
				line.Write(zap.String("path", e.Path), zap.Error(e.Err))
			}
		},
	})
	return p, err
}

func (p *prober) watch(g *guard) (unwatch func()) {
	path := g.entry.key.path
	p.mu.Lock()
	p.upstreams[path] = g.upstream
	p.mu.Unlock()
	end := p.probe.Watch(g.entry.breaker)
	return func() {
		end()
		p.mu.Lock()
		delete(p.upstreams, path)
		p.mu.Unlock()
	}
}

// stop ends the probes. The connection of the last one may have become idle
// after Caddy cleaned up the transport, so it is closed here.
func (p *prober) stop() {
	p.probe.Stop()
	if h, ok := p.rt.(*reverseproxy.HTTPTransport); ok && h.Transport != nil {
		h.Transport.CloseIdleConnections()
	}
}

// check makes one probe.
func (p *prober) check(ctx context.Context, path string) error {
	p.mu.Lock()
	upstream, ok := p.upstreams[path]
	p.mu.Unlock()
	if !ok {
		return breaker.ErrNoVerdict
	}
	addr, err := caddy.ParseNetworkAddress(upstream)
	if err != nil {
		return breaker.ErrNoVerdict
	}
	res, err := p.rt.RoundTrip(p.request(ctx, addr))
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, io.LimitReader(res.Body, probeBodyLimit))
	if err = errors.Join(err, res.Body.Close()); err != nil {
		return err
	}
	switch v := p.classes.status(res.StatusCode, res.Header); v.outcome {
	case breaker.Failure:
		return errors.New(v.cause)
	case breaker.Neutral:
		return breaker.ErrNoVerdict
	default:
		return nil
	}
}

func (p *prober) request(ctx context.Context, addr caddy.NetworkAddress) *http.Request {
	target := *p.uri
	target.Host = addr.JoinHostPort(0)
	host, port := target.Host, strconv.FormatUint(uint64(addr.StartPort), 10)
	if addr.IsUnixNetwork() {
		host = "localhost"
	}
	repl := caddy.NewReplacer()
	for name, value := range map[string]string{"address": upstreamName(addr.Network, target.Host), "hostport": target.Host, "host": addr.Host, "port": port} {
		repl.Set("http.reverse_proxy.upstream."+name, value) // tls_server_name may want them
	}
	ctx = context.WithValue(ctx, caddy.ReplacerCtxKey, repl)
	ctx = context.WithValue(ctx, caddyhttp.VarsCtxKey, map[string]any{
		proxyProtocolVar: reverseproxy.ProxyProtocolInfo{AddrPort: netip.AddrPortFrom(netip.IPv4Unspecified(), 0)},
	})
	ctx = context.WithValue(ctx, dialInfoKey, reverseproxy.DialInfo{
		Network: addr.Network,
		Address: target.Host,
		Host:    addr.Host,
		Port:    port,
	})
	req := &http.Request{
		Method:     http.MethodGet,
		URL:        &target,
		Host:       host,
		Proto:      "HTTP/1.1",
		ProtoMajor: 1,
		ProtoMinor: 1,
		Header: http.Header{
			probeHeader:  {"1"},
			"User-Agent": {"Caddy-Relay-Breaker"},
		},
	}
	return req.WithContext(ctx)
}
