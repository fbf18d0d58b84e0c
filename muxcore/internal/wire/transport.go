package wire

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"time"
)

const (
	idleConns   = 256
	idleTime    = 50 * time.Second // below the 60 s after which common servers and balancers hang up
	dialTime    = 10 * time.Second
	pingTime    = 15 * time.Second
	bufferSize  = 16 << 10
	headerLimit = 256 << 10

	drainLimit = 64 << 10
	drainTime  = 100 * time.Millisecond
)

// NewTransport makes a pool of connections. There is no timeout for answers: whoever calls the store has one.
func NewTransport(config *tls.Config) *http.Transport {
	dialer := &net.Dialer{Timeout: dialTime, KeepAlive: pingTime}
	return NewTransportOver(dialer.DialContext, config)
}

// Dial opens a connection, as net.Dialer does.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// NewTransportOver makes one whose connections come from elsewhere.
func NewTransportOver(dial Dial, config *tls.Config) *http.Transport {
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            heard(dial),
		TLSClientConfig:        config,
		TLSHandshakeTimeout:    dialTime,
		DisableCompression:     true,
		MaxIdleConnsPerHost:    idleConns,
		IdleConnTimeout:        idleTime,
		MaxResponseHeaderBytes: headerLimit,
		ReadBufferSize:         bufferSize,
		WriteBufferSize:        bufferSize,
		ForceAttemptHTTP2:      true,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: pingTime, PingTimeout: pingTime},
	}
}

// Home is the transport of a store: what its settings name, or else a pool of its own whose uploads wait no longer than
// patience for 100 Continue.
func Home(given http.RoundTripper, config *tls.Config, patience time.Duration) http.RoundTripper {
	if given != nil {
		return given
	}
	own := NewTransport(config)
	own.ExpectContinueTimeout = patience
	return own
}

// CloseIdle releases the idle connections of a transport that can.
func CloseIdle(t http.RoundTripper) {
	if c, ok := t.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// Drain ends an answer whose body nobody wants: it reads the rest if that is little and at hand, so that the connection
// can be used again, and never waits for more than a moment.
func Drain(resp *http.Response) {
	if resp.Body == http.NoBody || resp.ContentLength == 0 || resp.ContentLength > drainLimit {
		_ = resp.Body.Close()
		return
	}
	drainBody(resp.Body, drainLimit)
}

func drainBody(body io.ReadCloser, limit int64) {
	late := time.AfterFunc(drainTime, func() { _ = body.Close() })
	_, _ = io.CopyN(io.Discard, body, limit+1)
	late.Stop()
	_ = body.Close()
}
