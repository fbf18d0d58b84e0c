package httpstore

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/internal/wire"
)

const maxRedirects = 5

func redirects(status int) bool {
	switch status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return true
	}
	return false
}

// read sends the request that a makes, and follows where the origin sends it.
func (s *Store) read(ctx context.Context, a *ask) (*http.Response, error) {
	req := s.request(ctx, a.method(), s.base.of(a.key), a.header(s.traced(ctx, s.header)))
	transport, away := s.home, false
	for hops := 1; ; hops++ {
		resp, err := transport.RoundTrip(req)
		if err != nil {
			return nil, wire.Broke(ctx, a.op, a.key, err)
		}
		dropHopByHop(resp.Header)
		if !redirects(resp.StatusCode) {
			return resp, nil
		}
		wire.Drain(resp)
		to, err := redirection(req.URL, resp.Header)
		switch {
		case err == nil && isSlash(req.URL, to):
			return nil, &muxcore.Error{Code: muxcore.CodeKeyNotFound, Op: a.op, Key: a.key, Status: resp.StatusCode, Err: errCollection}
		case err == nil && hops > maxRedirects:
			err = fmt.Errorf("more than %d redirects", maxRedirects)
		}
		if err != nil {
			return nil, &muxcore.Error{Code: muxcore.CodeUnavailable, Op: a.op, Key: a.key, Status: resp.StatusCode, Err: err}
		}
		// Whom the origin sent us to must not send us back with our credentials.
		if away = away || !s.isOrigin(to); away {
			req, transport = s.stranger(ctx, a, to), s.foreign
		} else {
			req = s.request(ctx, a.method(), to, req.Header)
		}
	}
}

var errCollection = errors.New("the key names a collection")

// redirection is where an answer to a request for from points. Its errors name no more of it than the host: there may be
// a signature in the rest.
func redirection(from *url.URL, h http.Header) (*url.URL, error) {
	location := wire.First(h, "Location")
	if location == "" {
		return nil, errors.New("redirect without a location")
	}
	ref, err := url.Parse(location)
	if err != nil {
		return nil, errors.New("redirect to what is not a URL")
	}
	to := from.ResolveReference(ref)
	switch {
	case to.Scheme != "http" && to.Scheme != "https", to.Hostname() == "":
		return nil, errors.New("redirect to what is not an HTTP URL")
	case from.Scheme == "https" && to.Scheme == "http":
		return nil, fmt.Errorf("redirect from https to http (%s) is not followed", to.Host)
	}
	to.User, to.Fragment, to.RawFragment = nil, "", ""
	return to, nil
}

// isSlash tells whether to is from with nothing but a slash added.
func isSlash(from, to *url.URL) bool {
	return to.Host == from.Host && to.EscapedPath() == from.EscapedPath()+"/"
}

// isOrigin tells whether what is meant for the origin may go to u: the same scheme, host and port, or the same host with
// the default port of https in place of that of http.
func (s *Store) isOrigin(u *url.URL) bool {
	b := s.base.url
	switch {
	case !strings.EqualFold(u.Hostname(), b.Hostname()):
		return false
	case u.Scheme == b.Scheme:
		return portOf(u) == portOf(b)
	}
	return b.Scheme == "http" && portOf(b) == "80" && portOf(u) == "443"
}

func portOf(u *url.URL) string {
	switch {
	case u.Port() != "":
		return u.Port()
	case u.Scheme == "https":
		return "443"
	}
	return "80"
}

// stranger makes the request that somebody else than the origin gets: nothing in it is ours but the question.
func (s *Store) stranger(ctx context.Context, a *ask, u *url.URL) *http.Request {
	req := s.request(ctx, a.method(), u, a.header(s.plain))
	req.Host = u.Host
	return req
}
