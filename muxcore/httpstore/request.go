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
	return wire.Request(ctx, method, u, s.host, header)
}

// exchange sends a request to the origin, once.
func (s *Store) exchange(ctx context.Context, op muxcore.Op, key string, req *http.Request) (*http.Response, error) {
	resp, err := s.home.RoundTrip(req)
	if err != nil {
		return nil, wire.Broke(ctx, op, key, err)
	}
	return resp, nil
}
