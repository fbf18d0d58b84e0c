package httpstore

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

const (
	drainLimit = 64 << 10
	drainTime  = 100 * time.Millisecond
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
		return nil, broke(ctx, op, key, err)
	}
	return resp, nil
}

// drain ends an answer whose body nobody wants: it reads the rest if that is little and at hand, so that the connection
// can be used again, and never waits for more than a moment.
func drain(resp *http.Response) {
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
