package swiftstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/ncw/swift/v2"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/internal/wire"
)

// maxAnswer is the longest answer of an identity service: catalogues are long.
const maxAnswer = 4 << 20

// login signs in once. No error shows what the service said: some repeat the question, with the key in it.
func (s *Store) login(ctx context.Context) (*access, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	guard := &guard{home: s.home, tries: 1}
	c := &swift.Connection{
		UserName: s.set.User, ApiKey: s.set.Key, AuthUrl: s.set.AuthURL, AuthVersion: s.set.version(), Tenant: s.set.Tenant,
		Domain: s.set.Domain, Region: s.set.Region, UserAgent: wire.UserAgent, Transport: guard, Retries: 1,
		ConnectTimeout: loginTime, Timeout: loginTime,
	}
	switch {
	case s.set.Rackspace:
		c.Auth = &rackspaceAuth{region: s.set.Region}
	case c.AuthVersion == 2:
		guard.tries = 2 // ncw tries the key as a password and as an API key
	}
	if err := c.Authenticate(ctx); err != nil {
		return nil, s.loginFailed(ctx, guard, err)
	}
	return s.granted(c, guard)
}

// granted reads what the service gave.
func (s *Store) granted(c *swift.Connection, g *guard) (*access, error) {
	storage, err := endpoint(c.StorageUrl)
	if err != nil {
		return nil, fmt.Errorf("storage URL of the identity service: %w", err)
	}
	a := &access{storage: storage, token: c.AuthToken, expires: c.Expires}
	if c.Auth.CdnUrl() != "" {
		if a.cdn, err = endpoint(c.Auth.CdnUrl()); err != nil {
			return nil, fmt.Errorf("CDN URL of the identity service: %w", err)
		}
	}
	if a.expires.IsZero() && g.lasts > 0 {
		a.expires = s.set.Now().Add(g.lasts)
	}
	if !a.expires.IsZero() {
		left := a.expires.Sub(s.set.Now())
		a.renew = a.expires.Add(-min(maxMargin, left/5))
	}
	return a, nil
}

// endpoint reads a URL from the catalogue.
func endpoint(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || !wire.HasServer(u) {
		return nil, errors.New("is no http or https URL")
	}
	return &url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}, nil
}

// loginFailed is the error of a login. The service's no is CodeCredentialExpired: new credentials are needed.
func (s *Store) loginFailed(ctx context.Context, g *guard, err error) error {
	if known, ok := errors.AsType[*catalogueError](err); ok {
		return &muxcore.Error{Code: muxcore.CodeUnavailable, Err: known}
	}
	at := "the identity service"
	if u, err := url.Parse(s.set.AuthURL); err == nil {
		at += " at " + u.Host
	}
	switch status := g.status; {
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return &muxcore.Error{
			Code: muxcore.CodeCredentialExpired, Status: status,
			Err: errors.New(at + " refuses user and key"),
		}
	case status >= 300:
		return &muxcore.Error{Code: muxcore.CodeUnavailable, Err: fmt.Errorf("signing in: %s answers %d: see auth_url", at, status)}
	case status != 0 && s.set.Region != "":
		return &muxcore.Error{Code: muxcore.CodeUnavailable, Err: fmt.Errorf("signing in: the catalogue has no object store in region %q", s.set.Region)}
	case status != 0:
		return &muxcore.Error{Code: muxcore.CodeUnavailable, Err: errors.New("signing in: the answer has no token, or no object store")}
	case g.err != nil:
		err = g.err
	}
	return wire.Broke(ctx, muxcore.OpNone, "", fmt.Errorf("signing in: %w", err))
}

// guard is a transport to the identity service. It follows no redirect, on which the key would go along, asks no more often
// than is of use, and bounds the answer.
type guard struct {
	home   http.RoundTripper
	tries  int
	status int           // of the last answer
	lasts  time.Duration // the token in it, where that is said in seconds, as with version 1
	err    error
}

var errEnough = errors.New("refused already")

// RoundTrip implements http.RoundTripper.
func (g *guard) RoundTrip(req *http.Request) (*http.Response, error) {
	if g.tries--; g.tries < 0 {
		return nil, errEnough
	}
	resp, err := g.home.RoundTrip(req.WithContext(wire.Settled(req.Context())))
	if err != nil {
		g.status, g.err = 0, err
		return nil, err
	}
	g.status, g.err = resp.StatusCode, nil
	if seconds, ok := wire.ParsePosition(wire.First(resp.Header, "X-Auth-Token-Expires")); ok && seconds < 1<<31 {
		g.lasts = time.Duration(seconds) * time.Second
	}
	if resp.StatusCode >= 300 && resp.StatusCode < 400 {
		wire.Drain(resp)
		return nil, errors.New("redirected")
	}
	resp.Body = &boundedBody{resp.Body, maxAnswer}
	return resp, nil
}

// boundedBody ends in an error where it is too long.
type boundedBody struct {
	io.ReadCloser
	left int64
}

// Read implements io.Reader.
func (b *boundedBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errors.New("answer too long")
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

// expiry reads the end of a token's time; zero where it is unknown.
func expiry(text string) time.Time {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}
	}
	return t
}
