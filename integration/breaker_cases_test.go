package integration_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/suaveplan/caddy-storage-mux/integration/origin"
	"github.com/suaveplan/caddy-storage-mux/integration/rig"
)

// Row 1, as operators see it.
func TestCase001AClientThatLeavesIsLoggedAs499AndCountedAsNothing(t *testing.T) {
	t.Parallel()
	c, f1 := proxy(t, breaking)
	c.Reload("log\nreverse_proxy {$F1} {\nlb_policy relay_breaker\ntransport relay_breaker {\n" + breaking + "\n}\n}")
	f1.Script(origin.Faults{Hang: true})
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	answers := asking(ctx, c, 10)
	hits(c, f1, 10)
	leave()
	if got := tally(answers, 10); got[0] != 10 {
		t.Fatalf("statuses: %v, want none while the origin hangs", got)
	}
	c.Eventually(soon, "the log lines of the clients that left", func() error {
		lines := c.Log.Entries(func(e rig.Entry) bool { return e["status"] == 499.0 && e.Str("logger") == "http.log.access" })
		if len(lines) != 10 {
			return fmt.Errorf("%d access log lines with 499", len(lines))
		}
		return nil
	})
	if v := pathTo(t, c, f1); v.State != "CLOSED" || v.Failures != 0 || failuresIn(v) != 0 {
		t.Errorf("the path is %s with %d failures, recent: %v", v.State, v.Failures, v.Recent)
	}
}

// Row 3: permits come back on every way out of a request.
func TestCase003FiftyCancelledTrialsLeaveNothingTaken(t *testing.T) {
	t.Parallel()
	c, f1 := proxy(t, breaking)
	fails(t, c, f1, 3)
	f1.Script(origin.Faults{Hang: true})
	becomes(t, c, f1, "HALF_OPEN")
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	answers := asking(ctx, c, 50)
	if got := tally(answers, 49); got[refused] != 49 {
		t.Errorf("statuses beside the trial: %v, want 503", got)
	}
	hits(c, f1, 4) // with the 3 before, and the trial
	leave()
	if got := <-answers; got != 0 {
		t.Errorf("the trial was answered by %d", got)
	}
	c.Eventually(soon, "the return of the permits", func() error {
		if v := pathTo(t, c, f1); v.HalfOpenInFlight != 0 || v.State != "HALF_OPEN" {
			return fmt.Errorf("%s with %d trials on their way", v.State, v.HalfOpenInFlight)
		}
		return nil
	})
	f1.Heal()
	closes(t, c)
}

// Row 3: the proxy panics on purpose, after the round trip, where a body breaks off.
func TestCase003TheProxysPanicAfterTheRoundTripReturnsThePermit(t *testing.T) {
	t.Parallel()
	c, f1 := proxy(t, breaking)
	f1.Put("/x", origin.Object{Body: someBytes(200_000)})
	fails(t, c, f1, 3)
	f1.Script(origin.Faults{CutAfter: 100_000})
	becomes(t, c, f1, "HALF_OPEN")
	if r, err := c.Try(rig.Request{Path: "/x"}); !rig.Aborted(r, err) {
		t.Error("the body came whole")
	}
	if v := becomes(t, c, f1, "OPEN"); v.OpenedTotal != 2 {
		t.Errorf("opened %d times, want 2", v.OpenedTotal)
	}
	f1.Heal()
	if v := becomes(t, c, f1, "HALF_OPEN"); v.HalfOpenInFlight != 0 {
		t.Errorf("%d trials on their way, want 0", v.HalfOpenInFlight)
	}
	closes(t, c)
}

func TestCase004TheFirstTrialCounts(t *testing.T) {
	t.Parallel()
	c, f1 := proxy(t, `
		failure_threshold 3
		open_duration 1s
		half_open_max_calls 2`)
	fails(t, c, f1, 3)
	becomes(t, c, f1, "HALF_OPEN")
	f1.Script(origin.Faults{Delay: time.Hour})
	answers := asking(t.Context(), c, 20)
	if got := tally(answers, 18); got[refused] != 18 {
		t.Errorf("statuses beside the trials: %v, want 503", got)
	}
	hits(c, f1, 5) // with the 3 before, and 2 trials
	f1.Heal()
	if got := tally(answers, 2); got[http.StatusOK] != 2 {
		t.Errorf("statuses of the trials: %v, want 200", got)
	}
	if n := f1.Hits(); n != 5 {
		t.Errorf("%d requests reached the origin, want exactly 2 trials after the 3 failures", n)
	}
	closes(t, c)
}

func TestCase007CallsThatWereAdmittedBeforeTheTripCountOnce(t *testing.T) {
	t.Parallel()
	c, f1 := proxy(t, "failure_threshold 3\nopen_duration 1h")
	f1.Script(origin.Faults{Status: http.StatusInternalServerError, Delay: 200 * time.Millisecond})
	got := atOnce(c, 100)
	if got[500]+got[refused] != 100 || got[500] < 3 {
		t.Errorf("statuses: %v", got)
	}
	// Each result is counted once, also those that came after the trip.
	_, metrics := c.Admin(http.MethodGet, "/metrics", "")
	if want := fmt.Sprintf("outcome=\"failure\",path=%q,registry=\"default\"} %d\n", pathTo(t, c, f1).PathID, got[500]); !strings.Contains(metrics, want) {
		t.Errorf("the metrics lack %s", want)
	}
	if v := pathTo(t, c, f1); v.State != "OPEN" || v.OpenedTotal != 1 {
		t.Errorf("%s, opened %d times; want OPEN, once", v.State, v.OpenedTotal)
	}
	var lines []rig.Entry
	c.Eventually(soon, "the log line of a transition", func() error { // which takes its way from one process to another
		lines = c.Log.Entries(func(e rig.Entry) bool { return e.Str("from") != "" && e.Str("to") != "" && e.Str("path") != "" })
		if len(lines) == 0 {
			return errors.New("there is none")
		}
		return nil
	})
	if len(lines) != 1 || lines[0].Str("to") != "OPEN" {
		t.Errorf("%d transitions were logged, want one to OPEN: %v", len(lines), lines)
	}
}

// Row 7: the in-flight cap bounds how many there can be.
func TestCase007TheInFlightCapBoundsWhatGoesPastTheTrip(t *testing.T) {
	t.Parallel()
	c, f1 := proxy(t, "failure_threshold 3\nopen_duration 1h\nmax_concurrent 4")
	f1.Script(origin.Faults{Status: http.StatusInternalServerError, Delay: 200 * time.Millisecond})
	if got := atOnce(c, 100); got[500] < 3 || got[500] > 6 || got[500]+got[refused] != 100 {
		t.Errorf("statuses: %v, want at most 2 and the 4 of the cap to reach the origin", got)
	}
	if v := pathTo(t, c, f1); v.State != "OPEN" || v.OpenedTotal != 1 {
		t.Errorf("%s, opened %d times; want OPEN, once", v.State, v.OpenedTotal)
	}
}

func TestPlaceholdersAreEmptyWhereThereIsNothingToSay(t *testing.T) {
	t.Parallel()
	f1 := origin.New(t)
	f1.Put("/x", origin.Object{Body: []byte("body")})
	c := rig.Start(t, `
		http://:{$PORT} {
			header >X-Code "code={http.relay_breaker.code}"
			header >X-Path "path={http.relay_breaker.path}"
			reverse_proxy {$F1} {
				lb_policy relay_breaker
				transport relay_breaker {
					failure_threshold 1
					open_duration 1h
				}
			}
			handle_errors {
				header X-Code "code={http.relay_breaker.code}"
			}
		}`, rig.Env("F1", f1.Addr()))
	if r := c.Get("/x"); r.Header.Get("X-Code") != "code=" || !strings.HasSuffix(r.Header.Get("X-Path"), "→"+f1.Addr()) {
		t.Errorf("of an admitted call: %q and %q", r.Header.Get("X-Code"), r.Header.Get("X-Path"))
	}
	fails(t, c, f1, 1)
	if r := c.Get("/x"); r.Header.Get("X-Code") != "code=CB.PATH_OPEN" {
		t.Errorf("of a refused call: %q", r.Header.Get("X-Code"))
	}
}

func TestARetryAfterOn429SetsTheOpenTime(t *testing.T) {
	t.Parallel()
	for options, want := range map[string]string{"": "OPEN", "ignore_status 429\n": "CLOSED"} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			c, f1 := proxy(t, breaking+options)
			f1.Script(origin.Faults{Status: http.StatusTooManyRequests})
			for range 5 {
				wantStatus(t, "GET", c.Get("/x"), http.StatusTooManyRequests)
			}
			f1.Script(origin.Faults{Status: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"7"}}})
			for range 3 {
				wantStatus(t, "GET", c.Get("/x"), http.StatusTooManyRequests)
			}
			v := pathTo(t, c, f1)
			if v.State != want {
				t.Fatalf("the path is %s, want %s: %s", v.State, want, v.Reason)
			}
			if want == "OPEN" && v.NextTrialAt.Sub(v.Since) != 7*time.Second {
				t.Errorf("open for %v, want the 7s that were asked for", v.NextTrialAt.Sub(v.Since))
			}
		})
	}
}

// With probe_only no request of a client is risked while half-open.
func TestProbesAloneDecideWhereTheyShall(t *testing.T) {
	t.Parallel()
	c, f1 := proxy(t, breaking+"probe_uri /x?probe\nprobe_interval 50ms\nprobe_only\n")
	fails(t, c, f1, 3)
	becomes(t, c, f1, "HALF_OPEN") // and open again, with every probe that fails
	for range 20 {
		wantStatus(t, "GET while the probes fail", c.Get("/x"), refused)
	}
	probes := 0
	for _, r := range f1.Log()[3:] {
		if r.Header.Get("Relay-Probe") != "1" || r.Body != 0 {
			t.Errorf("a request that is no probe: %+v", r)
		}
		probes++
	}
	if probes == 0 {
		t.Error("no probe was made")
	}
	f1.Heal()
	becomes(t, c, f1, "CLOSED")
	r := c.Get("/x")
	wantStatus(t, "GET after good probes", r, http.StatusOK)
	if last := f1.Log()[f1.Hits()-1]; last.Header.Get("Relay-Probe") != "" {
		t.Error("a request of a client is marked as a probe")
	}
}

// What was counted is not taken back while the process lives.
func TestCountersNeverFall(t *testing.T) {
	t.Parallel()
	c, f1 := proxy(t, breaking)
	failures := func() string {
		_, metrics := c.Admin(http.MethodGet, "/metrics", "")
		for line := range strings.Lines(metrics) {
			if strings.HasPrefix(line, "caddy_relay_breaker_calls_total{outcome=\"failure\"") {
				return line[strings.LastIndex(line, " ")+1:]
			}
		}
		return "none"
	}
	site := func(options string) string {
		return "reverse_proxy {$F1} {\ntransport relay_breaker {\n" + options + "\n}\n}"
	}
	fails(t, c, f1, 2)
	for what, step := range map[string]func(){
		"an edit": func() { c.Reload(site("failure_threshold 9")) },
		"a removal": func() {
			c.Admin(http.MethodPost, "/relay_breaker", fmt.Sprintf(`{"path_id":%q,"action":"remove"}`, pathTo(t, c, f1).PathID))
		},
		"a reload without the path": func() {
			c.Reload("respond hello")
			c.Reload(site("failure_threshold 7"))
		},
	} {
		if step(); failures() != "2\n" {
			t.Errorf("after %s: %s failures counted, want 2", what, failures())
		}
		c.Reload(site("failure_threshold 8"))
	}
}

func TestCase012OurOwnRefusalsAreNoFailures(t *testing.T) {
	t.Parallel()
	c, f1 := proxy(t, "failure_threshold 1\nmax_concurrent 1")
	f1.Script(origin.Faults{Delay: time.Hour})
	answers := asking(t.Context(), c, 20)
	if got := tally(answers, 19); got[refused] != 19 {
		t.Errorf("statuses beside the one that has the place: %v, want 503", got)
	}
	hits(c, f1, 1)
	f1.Heal()
	if got := <-answers; got != http.StatusOK {
		t.Errorf("the one that had the place = %d, want 200", got)
	}
	if v := pathTo(t, c, f1); v.State != "CLOSED" || v.Failures != 0 || failuresIn(v) != 0 || v.RejectedTotal != 19 {
		t.Errorf("the path: %+v; want CLOSED, no failure, 19 refusals", v)
	}
	wantStatus(t, "GET", c.Get("/x"), http.StatusOK)
}

func TestCase016NeverAreAllThreeUpstreamsOpen(t *testing.T) {
	t.Parallel()
	var origins []*origin.Origin
	options := []rig.Option{}
	for i := range 3 {
		f := origin.New(t)
		f.Script(origin.Faults{Status: http.StatusInternalServerError})
		origins = append(origins, f)
		options = append(options, rig.Env(fmt.Sprintf("F%d", i+1), f.Addr()))
	}
	c := rig.Start(t, `
		reverse_proxy {$F1} {$F2} {$F3} {
			lb_policy relay_breaker
			transport relay_breaker {
				min_available 1
				failure_threshold 3
				open_duration 50ms
			}
		}`, options...)
	done := make(chan map[int]int)
	go func() {
		all := make(map[int]int)
		for range 20 {
			for status, n := range atOnce(c, 20) {
				all[status] += n
			}
		}
		done <- all
	}()
	most := 0
	for {
		select {
		case got := <-done:
			if got[500] != 400 {
				t.Errorf("statuses: %v, want every request to reach an upstream", got)
			}
			if most != 2 {
				t.Errorf("at most %d of 3 paths were open at a time, want 2", most)
			}
			return
		default:
			open := 0
			for _, v := range pathViews(t, c) {
				if v.State == "OPEN" {
					open++
				}
			}
			if most = max(most, open); open == len(origins) {
				t.Fatal("all paths are open")
			}
		}
	}
}

func TestCase017OpenTimesGrowUpToTheCapAlsoByRatio(t *testing.T) {
	t.Parallel()
	c, f1 := proxy(t, `
		failure_ratio 0.5 10s 4
		success_threshold 1
		open_duration 4s 12s`)
	// Grown times are shortened by up to a tenth.
	for i, want := range []struct{ low, high time.Duration }{
		{4 * time.Second, 4 * time.Second},
		{7200 * time.Millisecond, 8 * time.Second},
		{10800 * time.Millisecond, 12 * time.Second},
	} {
		f1.Script(origin.Faults{Status: http.StatusInternalServerError})
		for range 4 {
			wantStatus(t, "GET", c.Get("/x"), http.StatusInternalServerError)
		}
		v := pathTo(t, c, f1)
		if v.State != "OPEN" || v.NextTrialAt == nil {
			t.Fatalf("trip %d: %s, next trial at %v", i+1, v.State, v.NextTrialAt)
		}
		if took := v.NextTrialAt.Sub(v.Since); took < want.low || took > want.high {
			t.Errorf("trip %d opened the path for %v, want %v to %v", i+1, took, want.low, want.high)
		}
		f1.Heal()
		if i < 2 {
			becomes(t, c, f1, "HALF_OPEN")
			wantStatus(t, "the trial", c.Get("/x"), http.StatusOK)
		}
	}
}

func TestCase018StatsFollowTheClockAndProbesCloseWithoutTraffic(t *testing.T) {
	t.Parallel()
	for options, want := range map[string]string{
		"":                                  "HALF_OPEN",
		"probe_uri /x\nprobe_interval 50ms": "CLOSED",
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			c, f1 := proxy(t, breaking+options)
			fails(t, c, f1, 3)
			if v := pathTo(t, c, f1); v.OpenedTotal == 0 {
				t.Errorf("right after the trip: %s", v.State)
			}
			f1.Heal()
			before := f1.Hits()
			becomes(t, c, f1, want)
			for _, r := range f1.Log()[before:] {
				if r.Header.Get("Relay-Probe") != "1" || r.Body != 0 {
					t.Errorf("a request that is no probe: %+v", r)
				}
			}
		})
	}
}

func TestCase019StatsShowTheEffectiveValues(t *testing.T) {
	t.Parallel()
	f1 := origin.New(t)
	c := rig.Start(t, "reverse_proxy {$F1} {\ntransport relay_breaker {\n}\n}", rig.Env("F1", f1.Addr()))
	v := pathTo(t, c, f1)
	for option, want := range map[string]string{
		"failure_threshold":   "5",
		"success_threshold":   "3",
		"open_duration":       "30s",
		"half_open_max_calls": "3",
		"trial_timeout":       "1m0s",
		"failure_status":      "[5xx]",
	} {
		if got := fmt.Sprint(v.Options[option]); got != want {
			t.Errorf("%s is %s, want %s", option, got, want)
		}
	}
}
