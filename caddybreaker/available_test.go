package caddybreaker

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/muxcore/breaker"
)

// An outsider had one of two upstreams marked down by Caddy's health checks, and
// the other one, which failed, opened: min_available 1 left nobody.
func TestWhatCaddyTakesOutOfRotationKeepsNobodyInIt(t *testing.T) {
	for name, row := range map[string]struct {
		options string
		policy  string
		leave   func(t *testing.T, r *rig, b *origin)
	}{
		"marked down by active checks": {
			options: "health_uri /health\nhealth_interval 10ms",
			policy:  "first",
			leave: func(_ *testing.T, r *rig, b *origin) {
				b.status.Store(500)
				r.eventually("a request to pass b by", func() bool { return r.get("/x").body == "a" })
			},
		},
		"marked down by its failures": {
			options: "fail_duration 1m\nmax_fails 1",
			policy:  "first",
			leave: func(_ *testing.T, r *rig, b *origin) {
				b.Close()
				r.want("/x", 502)
			},
		},
		"full": {
			options: "unhealthy_request_count 1",
			policy:  "first",
			leave: func(t *testing.T, r *rig, b *origin) {
				b.pause()
				ctx := t.Context()
				go r.do(ctx, http.MethodGet, "/hang", nil)
				r.eventually("a request to hang", func() bool { return b.hits.Load() == 1 })
				t.Cleanup(b.release)
			},
		},
		"of weight 0": {
			policy: "weighted_round_robin 0 1",
			leave:  func(*testing.T, *rig, *origin) {},
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newOrigin(t)
			var served atomic.Int64
			a := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if !strings.HasPrefix(r.URL.Path, "/health") {
					served.Add(1)
					w.WriteHeader(http.StatusNotImplemented)
				}
				_, _ = io.WriteString(w, "a")
			}))
			defer a.Close()
			r := start(t, "", fmt.Sprintf(`reverse_proxy %s %s {
				lb_policy relay_breaker %s
				%s
				transport relay_breaker {
					failure_threshold 2
					failure_status 501
					open_duration 1h
					min_available 1
				}
			}`, b.addr(), a.Listener.Addr(), row.policy, row.options))
			row.leave(t, r, b)
			before := served.Load()
			for range 6 {
				if got := r.get("/x"); got.status != http.StatusNotImplemented || got.body != "a" {
					t.Fatalf("GET = %d %q, %v; want a's own 501", got.status, got.body, got.err)
				}
				if v := r.pathOf(a.Listener.Addr().String()); v.State != breaker.Closed || v.OpenedTotal != 0 {
					t.Fatalf("the only path in rotation is %v, opened %d times: %s", v.State, v.OpenedTotal, v.Reason)
				}
			}
			if n := served.Load() - before; n != 6 {
				t.Errorf("%d requests reached a, want 6", n)
			}
		})
	}
}
