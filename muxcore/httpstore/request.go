package httpstore

import (
	"context"
	"net/http"
	"net/url"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/internal/wire"
)

// request makes a request without a body to the origin. header may be shared: nobody changes it.
func (s *Store) request(ctx context.Context, method string, u *url.URL, header http.Header) *http.Request {
	r := http.Request{
		Method: method, URL: u, Host: s.host, Header: header,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
	if r.Host == "" {
		r.Host = u.Host
	}
	return r.WithContext(ctx)
}

// exchange sends a request to the origin, once.
func (s *Store) exchange(ctx context.Context, op muxcore.Op, key string, req *http.Request) (*http.Response, error) {
	resp, err := s.home.RoundTrip(req)
	if err != nil {
		return nil, wire.Broke(ctx, op, key, err)
	}
	return resp, nil
}
