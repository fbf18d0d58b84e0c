package caddybreaker

import (
	"fmt"
	"net/http"
	"net/url"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/headers"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
)

// What the reverse proxy asks of a transport besides round trips is handed on to
// the inner one. Where that does not know the question, the answer is what the
// proxy assumes of a transport that cannot be asked, so that the wrapper makes no
// difference.

// TLSEnabled implements reverseproxy.TLSTransport.
func (t *Transport) TLSEnabled() bool {
	inner, ok := t.inner.(reverseproxy.TLSTransport)
	return ok && inner.TLSEnabled()
}

// EnableTLS implements reverseproxy.TLSTransport. It is called while adapting.
func (t *Transport) EnableTLS(base *reverseproxy.TLSConfig) error {
	t.defaultInner()
	inner, ok := t.inner.(reverseproxy.TLSTransport)
	if !ok {
		return fmt.Errorf("upstreams are configured for HTTPS but transport module does not support TLS: %T", t.inner)
	}
	if err := inner.EnableTLS(base); err != nil {
		return err
	}
	return t.encodeInner()
}

// EnableH2C implements reverseproxy.H2CTransport. It is called while adapting.
func (t *Transport) EnableH2C() error {
	t.defaultInner()
	inner, ok := t.inner.(reverseproxy.H2CTransport)
	if !ok {
		return nil
	}
	if err := inner.EnableH2C(); err != nil {
		return err
	}
	return t.encodeInner()
}

// ProxyProtocolEnabled implements reverseproxy.ProxyProtocolTransport.
func (t *Transport) ProxyProtocolEnabled() bool {
	inner, ok := t.inner.(reverseproxy.ProxyProtocolTransport)
	return ok && inner.ProxyProtocolEnabled()
}

// OverrideHealthCheckScheme implements reverseproxy.HealthCheckSchemeOverriderTransport.
func (t *Transport) OverrideHealthCheckScheme(base *url.URL, port string) {
	if inner, ok := t.inner.(reverseproxy.HealthCheckSchemeOverriderTransport); ok {
		inner.OverrideHealthCheckScheme(base, port)
	}
}

// RequiresContentLength implements reverseproxy.ContentLengthRequiredTransport.
func (t *Transport) RequiresContentLength() bool {
	inner, ok := t.inner.(reverseproxy.ContentLengthRequiredTransport)
	return ok && inner.RequiresContentLength()
}

// DefaultBufferSizes implements reverseproxy.BufferedTransport.
func (t *Transport) DefaultBufferSizes() (request, response int64) {
	if inner, ok := t.inner.(reverseproxy.BufferedTransport); ok {
		return inner.DefaultBufferSizes()
	}
	return 0, 0
}

// RequestHeaderOps implements reverseproxy.RequestHeaderOpsTransport.
func (t *Transport) RequestHeaderOps() *headers.HeaderOps {
	if inner, ok := t.inner.(reverseproxy.RequestHeaderOpsTransport); ok {
		return inner.RequestHeaderOps()
	}
	return nil
}

// defaultInner makes up the inner transport that nobody named.
func (t *Transport) defaultInner() {
	if t.inner == nil {
		t.inner, t.innerName = new(reverseproxy.HTTPTransport), defaultTransport
	}
}

// Interface guards.
var (
	_ caddy.Provisioner                                = (*Transport)(nil)
	_ caddy.CleanerUpper                               = (*Transport)(nil)
	_ http.RoundTripper                                = (*Transport)(nil)
	_ reverseproxy.TLSTransport                        = (*Transport)(nil)
	_ reverseproxy.H2CTransport                        = (*Transport)(nil)
	_ reverseproxy.ProxyProtocolTransport              = (*Transport)(nil)
	_ reverseproxy.HealthCheckSchemeOverriderTransport = (*Transport)(nil)
	_ reverseproxy.ContentLengthRequiredTransport      = (*Transport)(nil)
	_ reverseproxy.BufferedTransport                   = (*Transport)(nil)
	_ reverseproxy.RequestHeaderOpsTransport           = (*Transport)(nil)
)
