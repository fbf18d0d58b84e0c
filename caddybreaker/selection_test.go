package caddybreaker

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/suaveplan/caddy-storage-mux/muxcore/breaker"
)

// pair returns a policy over upstreams a:80 and b:80, and their breakers.
func pair(t *testing.T, o Options) (*Selection, reverseproxy.UpstreamPool, []*breaker.Breaker) {
	t.Helper()
	def, err := newDefinition(o)
	if err != nil {
		t.Fatal(err)
	}
	s := &Selection{inner: reverseproxy.FirstSelection{}, registry: newRegistry(nil, "default", Options{})}
	var upstreams reverseproxy.UpstreamPool
	var breakers []*breaker.Breaker
	guards := make(map[string]*guard)
	for _, dial := range []string{"a:80", "b:80"} {
		b, err := breaker.New(dial, def.opts.settings())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(b.Close)
		guards[dial] = &guard{entry: &entry{breaker: b}, def: def, upstream: dial, static: true}
		upstreams = append(upstreams, &reverseproxy.Upstream{Host: new(reverseproxy.Host), Dial: dial})
		breakers = append(breakers, b)
	}
	s.registry.snapshot.Store(&guards)
	return s, upstreams, breakers
}

// A group of a config that is gone must not keep breakers of the next one closed.
func TestARequestOfAnOldConfigDoesNotBringItsGroupBack(t *testing.T) {
	s, upstreams, breakers := pair(t, Options{FailureThreshold: 1, MinAvailable: 2})
	s.transport = &Transport{registry: s.registry}
	s.transport.members.keep(2)
	r, w, end := request(t)
	defer end()
	if s.Select(upstreams, r, w); s.transport.members.group.Len() != 2 {
		t.Fatalf("%d members, want 2", s.transport.members.group.Len())
	}
	s.transport.members.leave()
	s.Select(upstreams, r, w)
	breakers[0].Record(breaker.Failure, "test")
	if n := s.transport.members.group.Len(); n != 0 || breakers[0].State() != breaker.Open {
		t.Errorf("%d members and %v after the config left, want 0 and OPEN", n, breakers[0].State())
	}
}

func request(t *testing.T) (*http.Request, *httptest.ResponseRecorder, context.CancelFunc) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
	return caddyhttp.PrepareRequest(r, caddy.NewReplacer(), w, new(caddyhttp.Server)), w, cancel
}

// Many requests see the same free place before any of them has called.
func TestAPlaceThatWasPromisedIsNotPromisedAgain(t *testing.T) {
	for name, o := range map[string]Options{
		"half-open":      {FailureThreshold: 1, HalfOpenMaxCalls: 1},
		"max_concurrent": {MaxConcurrent: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, upstreams, breakers := pair(t, o)
				if o.FailureThreshold == 1 {
					breakers[0].Record(breaker.Failure, "test")
					time.Sleep(30 * time.Second)
					synctest.Wait()
				}
				r1, w1, end1 := request(t)
				r2, w2, end2 := request(t)
				defer end2()
				if up := s.Select(upstreams, r1, w1); up == nil || up.Dial != "a:80" {
					t.Fatalf("first request goes to %v, want a:80", up)
				}
				if up := s.Select(upstreams, r2, w2); up == nil || up.Dial != "b:80" {
					t.Fatalf("second request goes to %v, want b:80", up)
				}
				if _, err := claim(r1.Context(), varsOf(r1.Context()), s.registry.lookup("a:80")); err != nil {
					t.Fatalf("the place that was promised = %v", err)
				}
				end1()
			})
		})
	}
}

func TestAPromiseThatIsNotClaimedEndsWithTheRequestOrTheNextAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, upstreams, breakers := pair(t, Options{MaxConcurrent: 1})
		r1, w1, end1 := request(t)
		s.Select(upstreams, r1, w1)
		if up := s.Select(upstreams, r1, w1); up == nil || up.Dial != "a:80" {
			t.Fatalf("the next attempt goes to %v, want a:80: its own promise must not be in the way", up)
		}
		if breakers[0].Ready() {
			t.Fatal("the place is free while promised")
		}
		end1()
		synctest.Wait()
		if !breakers[0].Ready() {
			t.Error("the place is taken after the request ended")
		}
	})
}

func TestWhereAllRefuseTheClientIsToldTheShortestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, upstreams, breakers := pair(t, Options{FailureThreshold: 1})
		breakers[0].Record(breaker.Failure, "test")
		time.Sleep(10*time.Second - 100*time.Millisecond)
		breakers[1].Record(breaker.Failure, "test")
		r, w, end := request(t)
		defer end()
		if up := s.Select(upstreams, r, w); up != nil {
			t.Fatalf("request goes to %v, want none", up)
		}
		if got := w.Header().Get("Retry-After"); got != "21" {
			t.Errorf("Retry-After = %q, want 21: 20.1s, rounded up", got)
		}
		if breakers[0].Rejected() != 1 || breakers[1].Rejected() != 0 {
			t.Errorf("rejected %d and %d, want 1 and 0: one request is refused once", breakers[0].Rejected(), breakers[1].Rejected())
		}
	})
}
