package swiftstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/internal/wire"
)

// statusRateLimit is Swift's own status for too many requests.
const statusRateLimit = 498

// containerTrust is how long a container that was seen is taken to be still there, in seconds.
const containerTrust = 60

// question is a request, before it has a token and a place.
type question struct {
	op     muxcore.Op
	key    string // for errors
	method string

	container string // default: the store's own
	object    string // its name, "" for the container itself
	query     url.Values
	header    http.Header
	body      *wire.Upload
	toCDN     bool // to the CDN's management instead of the cluster
}

// ask is a question about the object at key.
func (s *Store) ask(op muxcore.Op, method, key string) *question {
	return &question{op: op, key: key, method: method, object: s.prefix.Path(key)}
}

// send sends q, and once more with a new token if the cluster refuses the first and q can be sent again.
func (s *Store) send(ctx context.Context, q *question) (*http.Response, error) {
	for again := false; ; again = true {
		a, err := s.session.get(ctx)
		if err != nil {
			return nil, located(ctx, q, err)
		}
		resp, err := s.exchange(ctx, q, a)
		if err != nil {
			return nil, err
		}
		if resp.StatusCode != http.StatusUnauthorized {
			return resp, nil
		}
		wire.Drain(resp)
		s.session.refused(a)
		if again || q.body != nil && !q.body.Rewinds() {
			return nil, &muxcore.Error{Code: muxcore.CodeDenied, Op: q.op, Key: q.key, Status: http.StatusUnauthorized, Err: errToken}
		}
	}
}

var (
	errToken  = errors.New("the token is refused")
	errBroken = errors.New("a large object of which a segment is missing, or another one")
)

// located is an error of the session. Whoever waited for it and whose time was up is to blame himself.
func located(ctx context.Context, q *question, err error) error {
	if ctx.Err() != nil {
		return wire.Broke(ctx, q.op, q.key, err)
	}
	return muxcore.At(q.op, q.key, err)
}

// exchange sends q with the token of a, once.
func (s *Store) exchange(ctx context.Context, q *question, a *access) (*http.Response, error) {
	u, err := q.url(a, s.set.Container)
	if err != nil {
		return nil, &muxcore.Error{Code: muxcore.CodeUnsupported, Op: q.op, Key: q.key, Err: err}
	}
	header := make(http.Header, len(q.header)+3)
	maps.Copy(header, q.header)
	header["X-Auth-Token"] = []string{a.token}
	header["User-Agent"] = []string{wire.UserAgent}
	header["Accept-Encoding"] = []string{"identity"}
	req := wire.Request(ctx, q.method, u, u.Host, header)
	if q.body != nil {
		return q.body.Send(ctx, q.key, s.home, req)
	}
	resp, err := s.home.RoundTrip(req)
	if err != nil {
		return nil, wire.Broke(ctx, q.op, q.key, err)
	}
	return resp, nil
}

// url is where q goes.
func (q *question) url(a *access, container string) (*url.URL, error) {
	at := a.storage
	if q.toCDN {
		if at = a.cdn; at == nil {
			return nil, errors.New("cdn: the identity service names no CDN for this account and region")
		}
	}
	if q.container != "" {
		container = q.container
	}
	path := "/" + container
	if q.object != "" {
		path += "/" + q.object
	}
	u := *at
	u.RawPath = strings.TrimSuffix(at.EscapedPath(), "/") + wire.EscapePath(path)
	u.Path = strings.TrimSuffix(at.Path, "/") + path
	u.RawQuery = q.query.Encode()
	return &u, nil
}

// refused is the error that an answer's status means.
func (s *Store) refused(q *question, resp *http.Response) error {
	e := &muxcore.Error{
		Code: muxcore.CodeUnavailable, Op: q.op, Key: q.key, Status: resp.StatusCode,
		RetryAfter: wire.RetryAfter(resp.Header, s.set.Now),
	}
	switch resp.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired:
		e.Code = muxcore.CodeDenied
	case http.StatusNotFound, http.StatusGone:
		e.Code = muxcore.CodeKeyNotFound
	case http.StatusRequestURITooLong:
		e.Code = muxcore.CodeInvalidKey
	case statusRateLimit:
		e.Status, e.Err = http.StatusTooManyRequests, errors.New("rate limit (status 498)")
	case http.StatusRequestEntityTooLarge:
		e.Code = muxcore.CodeTooLarge
	case http.StatusConflict:
		if q.op == muxcore.OpGet {
			e.Unsure, e.Err = true, errBroken // which says nothing of other copies, and the cluster is well
		}
	case http.StatusLengthRequired, http.StatusNotImplemented, http.StatusMethodNotAllowed:
		e.Code = muxcore.CodeUnsupported
	}
	if resp.StatusCode < 400 {
		e.Status, e.Err = 0, fmt.Errorf("answer %d is wrong: a %s does not have it", resp.StatusCode, q.method)
	}
	return e
}

// missing is the error of an object that is not there. A container that is not there is no miss: the backend is set up wrong.
func (s *Store) missing(ctx context.Context, q *question, resp *http.Response) error {
	if err := s.checkContainer(ctx, q.op, q.key); err != nil {
		return err
	}
	return s.refused(q, resp)
}

// checkContainer looks whether the container is there, unless it was lately.
func (s *Store) checkContainer(ctx context.Context, op muxcore.Op, key string) error {
	now := s.set.Now().Unix()
	if age := now - s.there.Load(); age >= 0 && age < containerTrust {
		return nil
	}
	q := &question{op: op, key: key, method: http.MethodHead}
	resp, err := s.send(ctx, q) //nolint:bodyclose // drained below
	if err != nil {
		return err
	}
	wire.Drain(resp)
	switch {
	case resp.StatusCode == http.StatusNotFound:
		return s.noContainer(q)
	case resp.StatusCode == http.StatusForbidden && op != muxcore.OpHealth:
		return nil // those who may read objects may not always look at the container
	case resp.StatusCode >= 300:
		return s.refused(q, resp)
	}
	s.there.Store(now)
	return nil
}

func (s *Store) noContainer(q *question) error {
	return &muxcore.Error{Code: muxcore.CodeUnavailable, Op: q.op, Key: q.key, Err: fmt.Errorf("there is no container %q", s.set.Container)}
}
