package integration_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/integration/origin"
	"github.com/suaveplan/caddy-storage-mux/integration/rig"
)

// ourGoroutines counts the goroutines that run code of the breaker.
func ourGoroutines(t *testing.T, c *rig.Caddy) int {
	t.Helper()
	status, body := c.Admin(http.MethodGet, "/debug/pprof/goroutine?debug=2", "")
	if status != http.StatusOK {
		t.Fatalf("the goroutine profile is %d", status)
	}
	n := 0
	for stack := range strings.SplitSeq(body, "\n\n") {
		if strings.Contains(stack, "/caddybreaker.") || strings.Contains(stack, "/muxcore/breaker.") {
			n++
		}
	}
	return n
}

// Twenty reloads under load: nobody is refused or cut off, what the breakers
// know stays, and nothing of the old configs runs on. The http transport keeps
// the connection of a last request for its keepalive, so that is short here.
func TestTwentyReloadsUnderLoadKeepEveryStateAndLeakNothing(t *testing.T) {
	t.Parallel()
	well, ill, sick := origin.New(t), origin.New(t), origin.New(t)
	well.Put("/x", origin.Object{Body: []byte("body")})
	ill.Script(origin.Faults{Status: http.StatusInternalServerError})
	sick.Script(origin.Faults{Status: http.StatusInternalServerError})
	site := func(i int) string {
		return fmt.Sprintf(`
		header X-Config %d
		reverse_proxy /x {$WELL} {$ILL} {
			lb_policy relay_breaker round_robin
			transport relay_breaker {
				failure_threshold 3
				open_duration 1h
				transport http {
					keepalive 1s
				}
			}
		}
		reverse_proxy {$SICK} {
			transport relay_breaker probed {
				failure_threshold 1
				open_duration 10ms
				probe_uri /
				probe_interval 10ms
				probe_only
			}
		}`, i)
	}
	c := rig.Start(t, site(0), rig.Env("WELL", well.Addr()), rig.Env("ILL", ill.Addr()), rig.Env("SICK", sick.Addr()))
	wantStatus(t, "GET of the probed path", c.Get("/y"), http.StatusInternalServerError)
	c.Eventually(soon, "the opening of the ill path", func() error {
		if c.Get("/x"); pathTo(t, c, ill).State != "OPEN" {
			return fmt.Errorf("%d failures", pathTo(t, c, ill).Failures)
		}
		return nil
	})
	c.Reload(site(1))
	before, ours := c.Goroutines(), ourGoroutines(t, c)
	since := pathTo(t, c, ill).Since

	clients := loadOn(t, c)
	for i := range 20 {
		seen := clients.answered.Load()
		c.Reload(site(i + 2))
		clients.goesOn(t, seen)
	}
	clients.stop()

	if v := pathTo(t, c, ill); v.State != "OPEN" || v.OpenedTotal != 1 || !v.Since.Equal(since) || ill.Hits() != 3 {
		t.Errorf("after the reloads: %s, opened %d times, since %v, %d hits; want what it was: OPEN once since %v, 3 hits",
			v.State, v.OpenedTotal, v.Since, ill.Hits(), since)
	}
	if v := pathTo(t, c, sick); v.State == "CLOSED" || v.OpenedTotal < 2 {
		t.Errorf("the probed path is %s and opened %d times", v.State, v.OpenedTotal)
	}
	c.Eventually(soon, "the end of the old configs", func() error {
		if n, own := c.Goroutines(), ourGoroutines(t, c); n > before+10 || own > ours+1 {
			return fmt.Errorf("%d goroutines, %d of the breaker; before %d, %d", n, own, before, ours)
		}
		return nil
	})
	sick.Forget() // one config probes, not twenty
	c.Eventually(soon, "more probes", func() error {
		if sick.Hits() < 3 {
			return fmt.Errorf("%d", sick.Hits())
		}
		return nil
	})
}
