package swiftstore

import (
	"context"
	"errors"
	"net/url"
	"sync"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

const (
	loginTime = 30 * time.Second // the longest that signing in may take
	maxMargin = 5 * time.Minute  // how long before its end a token is renewed, at most

	// sulk is how long a refusal by the identity service stands: it locks accounts that keep asking.
	sulk = 2 * time.Second
)

// access is what signing in yields. It is never changed.
type access struct {
	storage *url.URL
	cdn     *url.URL // nil: none
	token   string
	expires time.Time // zero: unknown
	renew   time.Time // when to get the next one
}

// session is the token in use. Whoever needs a new one waits for the same renewal. It is safe for concurrent use.
type session struct {
	login func(context.Context) (*access, error)
	now   func() time.Time
	end   context.CancelFunc
	work  sync.WaitGroup

	mu      sync.Mutex
	ctx     context.Context //nolint:containedctx // of what goes on in the background, until close
	closed  bool
	current *access
	pending *renewal  // under way
	refusal *renewal  // the last one, if the identity service said no
	since   time.Time // when it did
}

// renewal is one attempt to sign in. access and err are set when done is closed.
type renewal struct {
	done   chan struct{}
	access *access
	err    error
}

func newSession(login func(context.Context) (*access, error), now func() time.Time) *session {
	ctx, end := context.WithCancel(context.Background())
	return &session{login: login, now: now, ctx: ctx, end: end}
}

// close ends a renewal under way and waits for it.
func (s *session) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.end()
	s.work.Wait()
}

// get gives a token that is valid as far as we know.
func (s *session) get(ctx context.Context) (*access, error) {
	r, a := s.need() //nolint:contextcheck // a renewal is for all who wait, and outlives each
	if a != nil {
		return a, nil
	}
	select {
	case <-r.done:
		return r.access, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// need gives the token, or the renewal to wait for.
func (s *session) need() (*renewal, *access) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if a := s.current; a != nil && (a.expires.IsZero() || now.Before(a.expires)) {
		if !a.renew.IsZero() && !now.Before(a.renew) && !s.refusedLately(now) {
			s.start()
		}
		return nil, a
	}
	if s.refusedLately(now) {
		return s.refusal, nil
	}
	return s.start(), nil
}

// refusedLately must be called with s.mu held.
func (s *session) refusedLately(now time.Time) bool {
	return s.refusal != nil && now.Sub(s.since) < sulk
}

// start begins a renewal, unless one is under way. It must be called with s.mu held.
func (s *session) start() *renewal {
	if s.pending != nil {
		return s.pending
	}
	r := &renewal{done: make(chan struct{})}
	if s.closed {
		r.err = errClosed
		close(r.done)
		return r
	}
	s.pending = r
	s.work.Go(func() { s.run(r) })
	return r
}

var errClosed = errors.New("the store is closed")

// run signs in.
func (s *session) run(r *renewal) {
	ctx, cancel := context.WithTimeout(s.ctx, loginTime)
	defer cancel()
	r.access, r.err = s.login(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending, s.refusal = nil, nil
	switch {
	case r.err == nil:
		s.current = r.access
	case muxcore.CodeOf(r.err) == muxcore.CodeCredentialExpired:
		s.refusal, s.since = r, s.now()
	}
	close(r.done)
}

// refused says that the cluster did not take the token of a. If it is still the one in use, it no longer is.
func (s *session) refused(a *access) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == a {
		s.current = nil
	}
}
