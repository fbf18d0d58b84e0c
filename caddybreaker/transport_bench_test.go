package caddybreaker

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
)

// instant answers without a network.
type instant struct{ body []byte }

// RoundTrip implements http.RoundTripper.
func (i instant) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		_, _ = io.Copy(io.Discard, req.Body)
	}
	return &http.Response{
		StatusCode:    http.StatusOK,
		Header:        http.Header{"Content-Type": {"text/plain"}},
		Body:          io.NopCloser(bytes.NewReader(i.body)),
		ContentLength: int64(len(i.body)),
		Request:       req,
	}, nil
}

// BenchmarkTransport is what a call costs around the inner transport, and what
// the inner transport of the benchmark costs.
func BenchmarkTransport(b *testing.B) {
	r, def := static(b, "there:80")
	inner := instant{body: make([]byte, 1024)}
	wrapped := &Transport{inner: inner, registry: r, def: def}
	for _, upload := range []struct {
		name string
		body func() io.ReadCloser
	}{
		{"get", func() io.ReadCloser { return nil }},
		{"put", func() io.ReadCloser { return io.NopCloser(bytes.NewReader(inner.body)) }},
	} {
		for _, rt := range []struct {
			name string
			http.RoundTripper
		}{{"plain", inner}, {"wrapped", wrapped}} {
			b.Run(upload.name+"/"+rt.name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					req := httptest.NewRequestWithContext(b.Context(), http.MethodGet, "http://there/", nil)
					req = caddyhttp.PrepareRequest(req, caddy.NewReplacer(), nil, &caddyhttp.Server{})
					ctx, cancel := context.WithCancel(context.WithValue(req.Context(), dialInfoKey, reverseproxy.DialInfo{Address: "there:80"}))
					req = req.WithContext(ctx)
					req.Body = upload.body()
					res, err := rt.RoundTrip(req)
					if err != nil {
						b.Fatal(err)
					}
					_, _ = io.Copy(io.Discard, res.Body)
					res.Body.Close()
					cancel()
				}
			})
		}
	}
}
