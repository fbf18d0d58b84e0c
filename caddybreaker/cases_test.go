package caddybreaker

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore/breaker"
)

// The cases of users of other systems, each by its report.

// caddy#1149, #1828, #1925: closing the tab during a slow request marked the
// backend down.
func TestAClientThatLeavesIsNoFailure(t *testing.T) {
	o := newOrigin(t)
	r := start(t, "", br(o, ""))
	o.delay.Store(int64(2 * time.Second))
	for range 10 {
		r.cancelled(20 * time.Millisecond)
	}
	o.delay.Store(0)
	r.want("/x", 200)
	if v := r.path(o); v.Failures != 0 || v.State != breaker.Closed {
		t.Errorf("after 10 cancelled requests: %v with %d failures, want CLOSED with 0", v.State, v.Failures)
	}
}

// monix#1080, resilience4j#935: cancelled trials left the breaker half-open.
func TestCancelledTrialsFreeTheirPlaces(t *testing.T) {
	o := newOrigin(t)
	r := start(t, "", br(o, ""))
	trip(r, o, 3)
	r.becomes(o, breaker.HalfOpen)
	o.status.Store(200)
	o.pause()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() { r.do(ctx, http.MethodGet, "/x", nil) })
	}
	r.eventually("one to be a trial, and the others to be refused", func() bool {
		v := r.path(o)
		return v.HalfOpenInFlight == 1 && v.RejectedTotal == 49
	})
	cancel()
	wg.Wait()
	o.release()
	r.eventually("the cancelled trial to end", func() bool { return r.path(o).HalfOpenInFlight == 0 })
	r.want("/x", 200)
	r.want("/x", 200)
	if v := r.path(o); v.State != breaker.Closed {
		t.Errorf("after two good trials: %v, want CLOSED", v.State)
	}
}

// resilience4j#903: a permit was never reported back.
func TestAPanicAfterTheRoundTripGivesThePermitBack(t *testing.T) {
	o := newOrigin(t)
	r := start(t, "", fmt.Sprintf(`reverse_proxy %s {
		transport relay_breaker {
			failure_threshold 1
			success_threshold 1
			half_open_max_calls 1
			open_duration 100ms
		}
		@panic header X-Panic *
		handle_response @panic {
			test_panic
		}
	}`, o.addr()))
	body := strings.Repeat("x", 100000)
	o.body.Store(&body)
	trip(r, o, 1)
	r.becomes(o, breaker.HalfOpen)
	o.status.Store(200)
	o.header.Store(&http.Header{"X-Panic": {"1"}})
	if got := r.get("/x"); got.err == nil {
		t.Fatalf("the panic was answered with %d", got.status)
	}
	r.eventually("the trial to end", func() bool { return r.path(o).HalfOpenInFlight == 0 })
	o.header.Store(nil)
	r.want("/x", 200)
	r.becomes(o, breaker.Closed) // once the proxy has seen the end of the body, which the client may have before
}

// go-interview-practice#673, open-liberty#7080, opossum#119: more trials than
// allowed hit the sick backend at once.
func TestNoMoreTrialsThanAllowedReachTheOrigin(t *testing.T) {
	for _, limit := range []int{1, 2, 5} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			o := newOrigin(t)
			r := start(t, "", strings.Replace(br(o, ""), "half_open_max_calls 1", fmt.Sprint("half_open_max_calls ", limit), 1))
			trip(r, o, 3)
			r.becomes(o, breaker.HalfOpen)
			before := o.hits.Load()
			o.status.Store(200)
			o.pause()
			var wg sync.WaitGroup
			codes := make([]int, 100)
			for i := range codes {
				wg.Go(func() { codes[i] = r.get("/x").status })
			}
			r.eventually("the others to be refused", func() bool { return r.path(o).RejectedTotal >= uint64(100-limit) })
			o.release()
			wg.Wait()
			served := 0
			for _, code := range codes {
				if code == 200 {
					served++
				} else if code != 503 {
					t.Errorf("answer %d, want 200 or 503", code)
				}
			}
			if hits := o.hits.Load() - before; hits != int64(limit) || served != limit {
				t.Errorf("100 in parallel: %d hits, %d served, want %d", hits, served, limit)
			}
		})
	}
}

// gobreaker#91: calls already admitted tripped it again and again.
func TestOneTripIsOneTransition(t *testing.T) {
	o := newOrigin(t)
	r := start(t, "", long(br(o, "")))
	o.status.Store(500)
	o.pause()
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() { r.get("/x") })
	}
	r.eventually("all to be on their way", func() bool { return o.hits.Load() == 100 })
	o.release()
	wg.Wait()
	v := r.path(o)
	e := entryOf(t, v.PathID)
	if v.State != breaker.Open || v.OpenedTotal != 1 || e.transitions[breaker.Open].Load() != 1 {
		t.Errorf("100 failures at once: %v, opened %d, %d events; want OPEN, 1, 1", v.State, v.OpenedTotal, e.transitions[breaker.Open].Load())
	}
}

// smallrye#320, Polly#311: the ignore-list did not work while half-open.
func TestAnIgnoredStatusSaysNothingInAnyState(t *testing.T) {
	o := newOrigin(t)
	r := start(t, "", br(o, "failure_status 5xx 4xx\nignore_status 404"))
	trip(r, o, 3)
	r.becomes(o, breaker.HalfOpen)
	o.status.Store(404)
	for range 5 {
		r.want("/x", 404)
	}
	if v := r.path(o); v.State != breaker.HalfOpen || v.Successes != 0 {
		t.Errorf("after ignored trials: %v with %d successes, want HALF_OPEN with 0", v.State, v.Successes)
	}
	o.status.Store(403)
	r.want("/x", 403)
	r.becomes(o, breaker.Open)
}

// gobreaker#121: 500s never tripped it because the call returned no error.
func TestStatusesCountAndANotFoundDoesNot(t *testing.T) {
	o := newOrigin(t)
	r := start(t, "", br(o, ""))
	for _, harmless := range []int64{404, 304, 429, 401} {
		o.status.Store(harmless)
		for range 20 {
			r.want("/x", int(harmless))
		}
	}
	if v := r.path(o); v.State != breaker.Closed || v.Failures != 0 {
		t.Fatalf("after statuses below 500: %v with %d failures, want CLOSED with 0", v.State, v.Failures)
	}
	trip(r, o, 3)
}

// envoy#25487: our own "too many requests" was booked as a failure.
func TestOurOwnLimitIsNoFailureOfThePath(t *testing.T) {
	o := newOrigin(t)
	r := start(t, "", br(o, "max_concurrent 1"))
	o.pause()
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() { r.get("/x") })
	}
	r.eventually("19 to be refused", func() bool { return r.path(o).RejectedTotal == 19 })
	o.release()
	wg.Wait()
	if v := r.path(o); v.Failures != 0 || v.State != breaker.Closed || o.hits.Load() != 1 {
		t.Errorf("%v with %d failures and %d hits, want CLOSED with 0 and 1", v.State, v.Failures, o.hits.Load())
	}
	r.want("/x", 200)
}

// envoy#26877: the check ran before the ejection, so all hosts could go.
func TestMinAvailableKeepsTheLastUpstreams(t *testing.T) {
	a, b, c := newOrigin(t), newOrigin(t), newOrigin(t)
	r := start(t, "", fmt.Sprintf(`reverse_proxy %s %s %s {
		lb_policy relay_breaker round_robin
		transport relay_breaker {
			failure_threshold 2
			open_duration 1m
			min_available 1
		}
	}`, a.addr(), b.addr(), c.addr()))
	all := []*origin{a, b, c}
	for _, o := range all {
		o.status.Store(500)
	}
	for range 60 {
		if got := r.get("/x").status; got != 500 {
			t.Fatalf("answer %d, want the 500 of an upstream that is left", got)
		}
		open := 0
		for _, o := range all {
			if r.path(o).State == breaker.Open {
				open++
			}
		}
		if open == 3 {
			t.Fatal("all three are open")
		}
	}
	if got := len(openPaths()); got != 2 {
		t.Errorf("%d open after 60 failures, want 2", got)
	}
}

// failsafe-go#97, resilience4j#347: OPEN was shown long after its time.
func TestStateFollowsTheClockWithoutTraffic(t *testing.T) {
	o := newOrigin(t)
	r := start(t, "", br(o, ""))
	trip(r, o, 3)
	hits := o.hits.Load()
	r.becomes(o, breaker.HalfOpen)
	e := entryOf(t, r.path(o).PathID)
	r.eventually("the transition to be told", func() bool { return e.transitions[breaker.HalfOpen].Load() == 1 })
	if o.hits.Load() != hits {
		t.Errorf("%d hits, want none", o.hits.Load()-hits)
	}
}

// traefik-cluster-ratelimit#4: leaving out options made it do nothing.
func TestAnEmptyBreakerTripsByItsDefaults(t *testing.T) {
	o := newOrigin(t)
	r := start(t, "", fmt.Sprintf("reverse_proxy %s {\n transport relay_breaker {\n}\n}", o.addr()))
	o.status.Store(500)
	for i := range 10 {
		want := 500
		if i >= 5 {
			want = 503
		}
		r.want("/x", want)
	}
	v := r.path(o)
	if v.State != breaker.Open || v.Options["failure_threshold"] != 5 || v.Options["open_duration"] != "30s" {
		t.Errorf("%v with options %v, want OPEN and the defaults in effect", v.State, v.Options)
	}
}

// angie#169, openresty#351: a synthetic error page in place of the backend's own.
func TestTheAnswerOfAFailingUpstreamIsRelayed(t *testing.T) {
	o := newOrigin(t)
	r := start(t, "", br(o, ""))
	o.status.Store(500)
	why := "why"
	o.body.Store(&why)
	got := r.do(t.Context(), http.MethodPut, "/x", strings.NewReader("data"))
	if got.status != 500 || got.body != "why" || *o.gotBody.Load() != "data" {
		t.Errorf("PUT = %d %q, want 500 and its own body", got.status, got.body)
	}
}

// NET-90: the middleware wraps the transport and records success and failure.
func TestNET90_TheTransportRecordsSuccessAndFailureAndFailsFast(t *testing.T) {
	o := newOrigin(t)
	r := start(t, "", br(o, ""))
	r.want("/x", 200)
	trip(r, o, 3)
	r.whileOpen(o.addr(), "/x", func() string {
		hits := o.hits.Load()
		for range 10 {
			if got := r.get("/x"); got.status != 503 {
				return fmt.Sprintf("GET /x = %d, %v; want 503", got.status, got.err)
			}
		}
		if n := o.hits.Load() - hits; n != 0 {
			return fmt.Sprintf("%d requests reached the origin, want 0", n)
		}
		return ""
	})
	e := entryOf(t, r.path(o).PathID)
	if s, f := e.calls[breaker.Success].Load(), e.calls[breaker.Failure].Load(); s != 1 || f < 3 || int64(s+f) != o.hits.Load() {
		t.Errorf("recorded %d successes and %d failures, want 1, and all else that reached the origin: %d", s, f, o.hits.Load()-1)
	}
	o.status.Store(200)
	r.becomes(o, breaker.HalfOpen)
	r.want("/x", 200)
	r.want("/x", 200)
	if v := r.path(o); v.State != breaker.Closed {
		t.Errorf("after two good trials: %v, want CLOSED", v.State)
	}
}
