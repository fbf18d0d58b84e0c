package wire

import (
	"context"
	"crypto/tls"
	"net/http"
	"net/http/httptrace"
	"net/url"
)

// Request makes a request without a body. header may be shared: nobody changes it.
func Request(ctx context.Context, method string, u *url.URL, host string, header http.Header) *http.Request {
	r := http.Request{
		Method: method, URL: u, Host: host, Header: header,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
	if r.Host == "" {
		r.Host = u.Host
	}
	return r.WithContext(Settled(ctx))
}

var settled = httptrace.ClientTrace{GotConn: gotConn}

// Settled makes requests under ctx go out on connections without a rest of an earlier answer in them.
func Settled(ctx context.Context) context.Context {
	if httptrace.ContextClientTrace(ctx) != nil {
		return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: gotConn}) // which is changed to call the other, too
	}
	return httptrace.WithClientTrace(ctx, &settled)
}

// gotConn runs before a request is sent, and before net/http expects an answer on its connection.
func gotConn(info httptrace.GotConnInfo) {
	if !info.Reused {
		return
	}
	inner := info.Conn
	if secured, ok := inner.(*tls.Conn); ok {
		if secured.ConnectionState().NegotiatedProtocol == "h2" {
			return // frames say whose they are
		}
		inner = secured.NetConn()
	}
	if c, ok := inner.(*conn); ok {
		c.settle()
	}
}
