package integration_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/suaveplan/caddy-storage-mux/integration/origin"
	"github.com/suaveplan/caddy-storage-mux/integration/rig"
)

// The breaker of the list of cases: 3 failures open it, one trial at a time
// after a second, 2 successes close it.
const (
	breaking = `
		failure_threshold 3
		success_threshold 2
		open_duration 1s
		half_open_max_calls 1
`
	refused = http.StatusServiceUnavailable
)

// broken is the same breaker where it does not close again within a test.
var broken = strings.Replace(breaking, "open_duration 1s", "open_duration 1h", 1)

// proxy starts a Caddy that proxies to one origin through a breaker.
func proxy(t *testing.T, options string) (*rig.Caddy, *origin.Origin) {
	t.Helper()
	f1 := origin.New(t)
	f1.Put("/x", origin.Object{Body: []byte("body")})
	c := rig.Start(t, `
		header >X-State {http.relay_breaker.state}
		reverse_proxy {$F1} {
			lb_policy relay_breaker
			transport relay_breaker {
				`+options+`
			}
		}`, rig.Env("F1", f1.Addr()))
	return c, f1
}

// fails sends n requests that the origin answers with 500.
func fails(t *testing.T, c *rig.Caddy, f *origin.Origin, n int) {
	t.Helper()
	f.Script(origin.Faults{Status: http.StatusInternalServerError, Body: "why"})
	for i := range n {
		wantBody(t, fmt.Sprintf("failure %d", i+1), c.Get("/x"), http.StatusInternalServerError, []byte("why"))
	}
}

// wantOpen fails the test unless the breaker refuses, without asking the origin. That
// one must be ill: where the machine was so busy that the open time was over by then,
// the request was a trial, which opens the breaker again for the next one.
func wantOpen(t *testing.T, c *rig.Caddy, f *origin.Origin) {
	t.Helper()
	for {
		before, hits := pathTo(t, c, f), f.Hits()
		r := c.Get("/x")
		after, passed := pathTo(t, c, f), f.Hits()-hits
		if before.State == "CLOSED" || after.State == "CLOSED" {
			t.Fatalf("the breaker is %s, and %s after a request; want OPEN", before.State, after.State)
		}
		if before.State != "OPEN" || after.State != "OPEN" || after.OpenedTotal != before.OpenedTotal {
			continue
		}
		wantStatus(t, "GET through the open breaker", r, refused)
		if seconds, err := strconv.Atoi(r.Header.Get("Retry-After")); err != nil || seconds < 1 {
			t.Errorf("Retry-After = %q", r.Header.Get("Retry-After"))
		}
		if passed != 0 {
			t.Errorf("the open breaker let %d requests through", passed)
		}
		return
	}
}

// closes waits until the breaker is closed again: more requests in a row get
// through than a half-open one admits.
func closes(t *testing.T, c *rig.Caddy) {
	t.Helper()
	c.Eventually(soon, "the closing of the breaker", func() error {
		for i := range 4 {
			if r := c.Get("/x"); r.Status != http.StatusOK {
				return fmt.Errorf("request %d: %d", i, r.Status)
			}
		}
		return nil
	})
}

func TestCase011StatusesTripTheBreakerAndMissesDoNot(t *testing.T) {
	t.Parallel()
	c, f1 := proxy(t, breaking)
	for range 50 {
		wantStatus(t, "GET of a missing key", c.Get("/missing"), http.StatusNotFound)
	}
	fails(t, c, f1, 3)
	wantOpen(t, c, f1)
	f1.Heal()
	closes(t, c)
}

func TestConnectionErrorsTripTheBreaker(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(*origin.Origin){
		"refused": (*origin.Origin).Refuse,
		"reset":   script(origin.Faults{Drop: true}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, f1 := proxy(t, breaking)
			fail(f1)
			for range 3 {
				wantStatus(t, "GET", c.Get("/x"), http.StatusBadGateway)
			}
			wantOpen(t, c, f1)
			f1.Heal()
			closes(t, c)
		})
	}
}

func TestABodyThatBreaksOffIsAFailure(t *testing.T) {
	t.Parallel()
	c, f1 := proxy(t, breaking)
	f1.Put("/x", origin.Object{Body: someBytes(200_000)})
	f1.Script(origin.Faults{CutAfter: 100_000})
	for range 3 {
		if r, err := c.Try(rig.Request{Path: "/x"}); !rig.Aborted(r, err) {
			t.Error("the body came whole")
		}
	}
	wantOpen(t, c, f1)
}

func TestCase001AClientThatLeavesIsNoFailureOfTheUpstream(t *testing.T) {
	t.Parallel()
	c, f1 := proxy(t, breaking)
	f1.Script(origin.Faults{Delay: 2 * time.Second})
	for range 10 {
		if _, err := c.Try(rig.Request{Path: "/x", Within: 100 * time.Millisecond}); err == nil {
			t.Error("the slow origin answered in time")
		}
	}
	f1.Heal()
	wantStatus(t, "GET", c.Get("/x"), http.StatusOK)
}

func TestCase002ACancelledTrialFreesItsPlace(t *testing.T) {
	t.Parallel()
	c, f1 := proxy(t, breaking)
	fails(t, c, f1, 3)
	f1.Script(origin.Faults{Hang: true})
	before := f1.Hits()
	c.Eventually(soon, "a trial", func() error {
		_, _ = c.Try(rig.Request{Path: "/x", Within: 100 * time.Millisecond})
		if f1.Hits() == before {
			return fmt.Errorf("nothing reached the origin")
		}
		return nil
	})
	f1.Heal()
	closes(t, c)
}

func TestCase006AFewTrialsAtATime(t *testing.T) {
	t.Parallel()
	c, f1 := proxy(t, breaking)
	fails(t, c, f1, 3)
	f1.Script(origin.Faults{Hang: true})
	becomes(t, c, f1, "HALF_OPEN")
	before := f1.Hits()
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	answers := asking(ctx, c, 100)
	count := tally(answers, 99)
	hits(c, f1, before+1)
	leave()
	count[<-answers]++
	if n := f1.Hits() - before; n != 1 {
		t.Errorf("%d trials reached the origin, want 1", n)
	}
	if count[refused] != 99 || count[0] != 1 {
		t.Errorf("statuses: %v, want 99 times 503 and one that hangs", count)
	}
}

func TestCase008AFailedTrialOpensTheBreakerAgain(t *testing.T) {
	t.Parallel()
	c, f1 := proxy(t, breaking)
	fails(t, c, f1, 3)
	f1.Heal()
	c.Eventually(soon, "the first good trial", func() error {
		if r := c.Get("/x"); r.Status != http.StatusOK {
			return fmt.Errorf("%d", r.Status)
		}
		return nil
	})
	fails(t, c, f1, 1) // the second trial
	wantOpen(t, c, f1)
	f1.Heal()
	closes(t, c)
}

func TestCase009AnIgnoredStatusDoesNotOpenAHalfOpenBreaker(t *testing.T) {
	t.Parallel()
	c, f1 := proxy(t, breaking+"ignore_status 404 501\n")
	f1.Script(origin.Faults{Status: http.StatusNotImplemented})
	for range 10 {
		wantStatus(t, "GET", c.Get("/x"), http.StatusNotImplemented)
	}
	fails(t, c, f1, 3)
	f1.Script(origin.Faults{Status: http.StatusNotImplemented})
	for range 3 {
		c.Eventually(soon, "an ignored trial", func() error {
			if r := c.Get("/x"); r.Status != http.StatusNotImplemented {
				return fmt.Errorf("%d", r.Status)
			}
			return nil
		})
	}
	f1.Heal()
	wantStatus(t, "the trial right after", c.Get("/x"), http.StatusOK)
	closes(t, c)
}

func TestCase015EachTripTakesTheSameNumberOfFailures(t *testing.T) {
	t.Parallel()
	c, f1 := proxy(t, breaking)
	for range 3 {
		fails(t, c, f1, 2)
		f1.Heal()
		wantStatus(t, "GET after two failures", c.Get("/x"), http.StatusOK) // starts the count afresh
		fails(t, c, f1, 3)
		wantOpen(t, c, f1)
		f1.Heal()
		closes(t, c)
	}
}

func TestCase018TheStateFollowsTheClockWithoutTraffic(t *testing.T) {
	t.Parallel()
	c, f1 := proxy(t, breaking)
	fails(t, c, f1, 3)
	wantOpen(t, c, f1)
	f1.Heal()
	<-time.After(2 * time.Second) // to look at it would be traffic, too
	wantStatus(t, "the first GET after the open time", c.Get("/x"), http.StatusOK)
}

func TestCase019WithoutOptionsTheDefaultsHold(t *testing.T) {
	t.Parallel()
	for _, transport := range []string{"transport relay_breaker", "transport relay_breaker {\n}"} {
		f1 := origin.New(t)
		c := rig.Start(t, "reverse_proxy {$F1} {\n"+transport+"\n}", rig.Env("F1", f1.Addr()))
		f1.Script(origin.Faults{Status: http.StatusInternalServerError})
		for i := range 10 {
			want := http.StatusInternalServerError
			if i >= 5 {
				want = refused
			}
			wantStatus(t, fmt.Sprintf("GET %d", i+1), c.Get("/x"), want)
		}
		if n := f1.Hits(); n != 5 {
			t.Errorf("%q: %d requests reached the origin, want 5", transport, n)
		}
	}
}

func TestCase020TheUpstreamsOwnErrorIsRelayed(t *testing.T) {
	t.Parallel()
	c, f1 := proxy(t, breaking)
	f1.Script(origin.Faults{Status: http.StatusInternalServerError, Body: "why", Header: http.Header{"X-Cause": {"disk"}}})
	for range 3 {
		r := c.Put("/x", "body")
		wantBody(t, "PUT", r, http.StatusInternalServerError, []byte("why"))
		if r.Header.Get("X-Cause") != "disk" {
			t.Error("the upstream's header is gone")
		}
	}
}

// twoUpstreams starts a proxy over two origins that say who they are.
func twoUpstreams(t *testing.T, lb, options string) (c *rig.Caddy, f1, f2 *origin.Origin) {
	t.Helper()
	f1, f2 = origin.New(t), origin.New(t)
	f1.Put("/x", origin.Object{Body: []byte("one")})
	f2.Put("/x", origin.Object{Body: []byte("two")})
	c = rig.Start(t, `
		reverse_proxy {$F1} {$F2} {
			`+lb+`
			transport relay_breaker {
				`+options+`
			}
		}`, rig.Env("F1", f1.Addr()), rig.Env("F2", f2.Addr()))
	return c, f1, f2
}

func TestThePolicySkipsUpstreamsThatWouldRefuse(t *testing.T) {
	t.Parallel()
	for _, inner := range []string{"", "round_robin", "first", "least_conn", "ip_hash", "random", "random_choose 2", "header X-Key"} {
		t.Run("inner "+inner, func(t *testing.T) {
			t.Parallel()
			c, f1, f2 := twoUpstreams(t, "lb_policy relay_breaker "+inner, breaking)
			f1.Script(origin.Faults{Status: http.StatusInternalServerError})
			f2.Script(origin.Faults{Status: http.StatusInternalServerError})
			c.Eventually(soon, "the first breaker's opening", func() error {
				if r := c.Get("/x", "X-Key", "k"); r.Status == refused {
					return nil
				}
				return fmt.Errorf("%d and %d failures", f1.Hits(), f2.Hits())
			})
			for _, f := range []*origin.Origin{f1, f2} { // a trial on a busy machine is a hit more, and opens it once more
				if v := pathTo(t, c, f); f.Hits() != 2+v.OpenedTotal {
					t.Errorf("%d hits before both were open, which opened one %d times; want 3 for the first time", f.Hits(), v.OpenedTotal)
				}
			}
			f2.Heal() // one of the two comes back
			f1.Refuse()
			c.Eventually(soon, "the second upstream's return", func() error {
				for range 6 {
					if r := c.Get("/x", "X-Key", "k"); r.Status != http.StatusOK {
						return fmt.Errorf("%d", r.Status)
					}
				}
				return nil
			})
		})
	}
}

func TestARefusedPathIsRetriedOnAnotherWithItsBody(t *testing.T) {
	t.Parallel()
	// The plain policy does not know the breakers: the transport refuses, and Caddy goes on.
	c, f1, f2 := twoUpstreams(t, "lb_policy round_robin\nlb_retries 2", broken)
	f1.Script(origin.Faults{Status: http.StatusInternalServerError})
	failures := 0
	for range 10 {
		if r := c.Get("/x"); r.Status == http.StatusInternalServerError {
			failures++
		}
	}
	if failures != 3 {
		t.Errorf("%d failures reached the client, want 3", failures)
	}
	for i := range 6 {
		body := strings.Repeat("b", 10_000+i)
		path := fmt.Sprintf("/put%d", i)
		r := c.Do(rig.Request{Method: http.MethodPut, Path: path, Body: io.MultiReader(strings.NewReader(body)), Length: -1})
		wantStatus(t, "PUT", r, http.StatusCreated)
		if obj, ok := f2.Object(path); !ok || string(obj.Body) != body {
			t.Errorf("the second upstream holds %d bytes of %s, want %d", len(obj.Body), path, len(body))
		}
	}
}

func TestAllPathsRefusedIs503WithRetryAfter(t *testing.T) {
	t.Parallel()
	c, f1, f2 := twoUpstreams(t, "lb_policy relay_breaker round_robin\nlb_retries 1", broken)
	f1.Script(origin.Faults{Status: http.StatusInternalServerError})
	f2.Script(origin.Faults{Status: http.StatusInternalServerError})
	for range 6 {
		wantStatus(t, "GET", c.Get("/x"), http.StatusInternalServerError)
	}
	r := c.Get("/x")
	wantStatus(t, "GET", r, refused)
	if after, err := strconv.Atoi(r.Header.Get("Retry-After")); err != nil || after < 1 {
		t.Errorf("Retry-After = %q", r.Header.Get("Retry-After"))
	}
}

// Row 16: never are all paths of a proxy out of rotation.
func TestCase016AFewPathsStayInRotation(t *testing.T) {
	t.Parallel()
	c, f1, f2 := twoUpstreams(t, "lb_policy relay_breaker round_robin", breaking)
	c.Reload(`
		reverse_proxy {$F1} {$F2} {
			lb_policy relay_breaker round_robin
			transport relay_breaker {
				min_available 1
				` + breaking + `
			}
		}`)
	f1.Script(origin.Faults{Status: http.StatusInternalServerError})
	f2.Script(origin.Faults{Status: http.StatusInternalServerError})
	for i := range 30 {
		if r := c.Get("/x"); r.Status == refused {
			t.Fatalf("request %d was refused", i)
		}
	}
}

func TestBreakersOutliveAReload(t *testing.T) {
	t.Parallel()
	config := func(extra string) string {
		return "reverse_proxy {$F1} {\n" + extra + "transport relay_breaker {\nfailure_threshold 3\nopen_duration 1h\n}\n}"
	}
	f1 := origin.New(t)
	c := rig.Start(t, config(""), rig.Env("F1", f1.Addr()))
	f1.Script(origin.Faults{Status: http.StatusInternalServerError})
	for range 3 {
		c.Get("/x")
	}
	c.Reload(config("flush_interval -1\n"))
	wantStatus(t, "GET after the reload", c.Get("/x"), refused)
	if n := f1.Hits(); n != 3 {
		t.Errorf("%d requests reached the origin, want 3", n)
	}
}
