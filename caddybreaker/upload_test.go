package caddybreaker

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/suaveplan/caddy-storage-mux/muxcore/breaker"
)

// side is what one side of a call does.
type side struct {
	client, path time.Duration // before the end of the body, before the answer
	deaf         bool          // the path does not read the body
	want         breaker.Outcome
}

// With a limit of one second.
var sides = map[string]side{
	"both are quick":             {want: breaker.Success},
	"the client sends slowly":    {client: 5 * time.Second, want: breaker.Success},
	"the path answers slowly":    {path: 2 * time.Second, want: breaker.Failure},
	"one after the other":        {client: 5 * time.Second, path: 2 * time.Second, want: breaker.Failure},
	"the path reads no body":     {client: time.Hour, path: 2 * time.Second, deaf: true, want: breaker.Failure},
	"the path answers early":     {client: time.Hour, path: time.Millisecond, deaf: true, want: breaker.Success},
	"the answer is just in time": {client: 5 * time.Second, path: 900 * time.Millisecond, want: breaker.Success},
}

// body is what the client sends, in its own time.
func (s side) body() io.ReadCloser {
	r, w := io.Pipe()
	go func() {
		if _, err := io.WriteString(w, "begin"); err == nil {
			time.Sleep(s.client)
		}
		_ = w.Close()
	}()
	return r
}

func (s side) serve(body io.ReadCloser) {
	if !s.deaf {
		_, _ = io.Copy(io.Discard, body)
	}
	time.Sleep(s.path)
	_ = body.Close()
}

// RoundTrip implements http.RoundTripper.
func (s side) RoundTrip(r *http.Request) (*http.Response, error) {
	s.serve(r.Body)
	return &http.Response{StatusCode: 200, Body: http.NoBody}, nil
}

// ServeHTTP implements caddyhttp.Handler.
func (s side) ServeHTTP(w http.ResponseWriter, r *http.Request) error {
	s.serve(r.Body)
	w.WriteHeader(http.StatusOK)
	return nil
}

// limits are the options with a limit; the trial's needs a half-open path.
var limits = map[string]Options{
	"slow_call":     {SlowCall: caddy.Duration(time.Second), FailureThreshold: 9},
	"trial_timeout": {TrialTimeout: caddy.Duration(time.Second), FailureThreshold: 1},
}

// guardWith returns a guard with options, half-open where a trial is limited.
func guardWith(t *testing.T, o Options) *guard {
	t.Helper()
	def, err := newDefinition(o)
	if err != nil {
		t.Fatal(err)
	}
	b, err := breaker.New("test", def.opts.settings())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	if o.TrialTimeout > 0 {
		b.Record(breaker.Failure, "test")
		time.Sleep(30 * time.Second)
		synctest.Wait()
	}
	return &guard{entry: &entry{breaker: b}, def: def, upstream: "test", static: true}
}

func TestAClientThatSendsSlowlyIsNoFailureOfTheTransport(t *testing.T) {
	for limit, options := range limits {
		for name, side := range sides {
			t.Run(limit+": "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					g := guardWith(t, options)
					permit, err := g.entry.breaker.Allow()
					if err != nil {
						t.Fatal(err)
					}
					tr := &Transport{inner: side}
					r := httptest.NewRequestWithContext(t.Context(), http.MethodPut, "/", nil)
					r.Body = side.body()
					if _, err := tr.roundTrip(r, &trackedBody{call: call{guard: g, permit: permit}, ctx: t.Context()}); err != nil {
						t.Fatal(err)
					}
					checkOutcome(t, g, side.want)
				})
			})
		}
	}
}

func TestAClientThatSendsSlowlyIsNoFailureOfTheHandler(t *testing.T) {
	for limit, options := range limits {
		for name, side := range sides {
			t.Run(limit+": "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					g := guardWith(t, options)
					if _, err := serveHandler(t, g, side.body(), side); err != nil {
						t.Fatal(err)
					}
					checkOutcome(t, g, side.want)
				})
			})
		}
	}
}

// checkOutcome wants one call with an outcome, and the breaker to think the same.
func checkOutcome(t *testing.T, g *guard, want breaker.Outcome) {
	t.Helper()
	recent := g.entry.breaker.Snapshot().Recent
	if g.entry.calls[want].Load() != 1 || (len(recent) > 0 && recent[len(recent)-1].Outcome != want) {
		t.Errorf("%d calls are a %v, want 1: %+v", g.entry.calls[want].Load(), want, recent)
	}
}

// serveHandler has the handler serve one PUT, guarded by g.
func serveHandler(t *testing.T, g *guard, body io.ReadCloser, next caddyhttp.Handler) (http.ResponseWriter, error) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPut, "/", nil)
	r.Body = body
	return serveRequest(t, g, r, next)
}

// serveRequest has the handler serve a request, guarded by g.
func serveRequest(t *testing.T, g *guard, r *http.Request, next caddyhttp.Handler) (http.ResponseWriter, error) {
	t.Helper()
	p := &namedPath{registry: newRegistry(nil, "default", Options{}), def: g.def, id: g.upstream}
	p.registry.snapshot.Store(&map[string]*guard{g.upstream: g})
	w := httptest.NewRecorder()
	r = caddyhttp.PrepareRequest(r, caddy.NewReplacer(), w, new(caddyhttp.Server))
	return w, (&Handler{path: p}).ServeHTTP(w, r, next)
}

func TestTheHandlerBlamesTheRightSide(t *testing.T) {
	unwell := caddyhttp.Error(http.StatusServiceUnavailable, errors.New("no upstreams available"))
	for name, row := range map[string]struct {
		next caddyhttp.HandlerFunc
		want breaker.Outcome
		open time.Duration
	}{
		"a policy further on found no path": {func(w http.ResponseWriter, r *http.Request) error {
			setRetryAfter(w, r, time.Minute)
			return unwell
		}, breaker.Neutral, 0},
		"a policy further on found one, which failed": {func(w http.ResponseWriter, r *http.Request) error {
			setRetryAfter(w, r, time.Minute)
			takeBackRetryAfter(w, varsOf(r.Context()))
			return unwell
		}, breaker.Failure, 30 * time.Second},
		"an error with Retry-After": {func(w http.ResponseWriter, _ *http.Request) error {
			w.Header().Set("Retry-After", "120")
			return unwell
		}, breaker.Failure, 2 * time.Minute},
		"the body of the client broke off": {func(_ http.ResponseWriter, r *http.Request) error {
			_, err := io.Copy(io.Discard, r.Body)
			return err
		}, breaker.Neutral, 0},
		"an answer after the body of the client broke off": {func(w http.ResponseWriter, r *http.Request) error {
			_, _ = io.Copy(io.Discard, r.Body)
			w.WriteHeader(http.StatusBadGateway)
			return nil
		}, breaker.Neutral, 0},
		"a body that the path closed itself": {func(_ http.ResponseWriter, r *http.Request) error {
			_ = r.Body.Close()
			_, err := io.Copy(io.Discard, r.Body)
			return err
		}, breaker.Failure, 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := guardWith(t, Options{FailureThreshold: 1})
				_, err := serveHandler(t, g, io.NopCloser(io.MultiReader(strings.NewReader("begin"), errReader{})), row.next)
				if g.entry.calls[row.want].Load() != 1 || g.entry.breaker.RetryAfter() != row.open {
					t.Errorf("after %v: open for %s, want a %v and %s", err, g.entry.breaker.RetryAfter(), row.want, row.open)
				}
			})
		})
	}
}

// halfRequest is a path that answers what it has got of a request.
type halfRequest struct{ status int }

// RoundTrip implements http.RoundTripper.
func (h halfRequest) RoundTrip(r *http.Request) (*http.Response, error) {
	_, _ = io.Copy(io.Discard, r.Body)
	return &http.Response{StatusCode: h.status, Body: http.NoBody}, nil
}

func TestAnAnswerToHalfARequestSaysNothing(t *testing.T) {
	for _, status := range []int{http.StatusOK, http.StatusBadRequest, http.StatusInternalServerError} {
		synctest.Test(t, func(t *testing.T) {
			g := guardWith(t, Options{FailureThreshold: 1})
			permit, err := g.entry.breaker.Allow()
			if err != nil {
				t.Fatal(err)
			}
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPut, "/", nil)
			r.Body = io.NopCloser(io.MultiReader(strings.NewReader("begin"), errReader{}))
			tr := &Transport{inner: halfRequest{status}}
			if _, err := tr.roundTrip(r, &trackedBody{call: call{guard: g, permit: permit}, ctx: t.Context()}); err != nil {
				t.Fatal(err)
			}
			checkOutcome(t, g, breaker.Neutral)
		})
	}
}

// A WebSocket over HTTP/2 is asked for by CONNECT and answered with 200.
func TestTheHandlerJudgesAConnectionOfItsOwnByItsHeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardWith(t, Options{MaxConcurrent: 1})
		r := httptest.NewRequestWithContext(t.Context(), http.MethodConnect, "example.com:443", nil)
		_, err := serveRequest(t, g, r, caddyhttp.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) error {
			w.WriteHeader(http.StatusOK)
			if n := g.entry.calls[breaker.Success].Load(); n != 1 || g.entry.breaker.Ready() {
				t.Errorf("%d successes while the connection is open, place free: %v; want 1, and it is taken", n, g.entry.breaker.Ready())
			}
			return nil
		}))
		if err != nil {
			t.Fatal(err)
		}
		checkOutcome(t, g, breaker.Success)
	})
}

func TestABodyThatNobodyClosesIsNotWatchedForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardWith(t, Options{})
		permit, err := g.entry.breaker.Allow()
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		b := &trackedBody{call: call{guard: g, permit: permit}, ctx: ctx}
		b.track(&http.Response{ContentLength: 5, Body: io.NopCloser(strings.NewReader("12345"))}, time.Minute)
		time.Sleep(time.Hour)
		if b.ended.Load() {
			t.Error("ended while the request went on and nobody was waiting")
		}
		cancel()
		time.Sleep(time.Minute)
		synctest.Wait()
		checkOutcome(t, g, breaker.Neutral)
	})
}
