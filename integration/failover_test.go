package integration_test

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/suaveplan/caddy-storage-mux/integration/origin"
	"github.com/suaveplan/caddy-storage-mux/integration/rig"
)

// backendIs returns an error unless the answer came from the named backend.
func backendIs(r rig.Response, name string) error {
	if got := r.Header.Get("X-Backend"); r.Status != http.StatusOK || got != name {
		return fmt.Errorf("%d from backend %q, want 200 from %q", r.Status, got, name)
	}
	return nil
}

func TestAFailingFirstOriginIsReplacedByTheSecond(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		fail func(*origin.Origin)
	}{
		{"500", script(origin.Faults{Status: 500})},
		{"502", script(origin.Faults{Status: 502})},
		{"503 with Retry-After", script(origin.Faults{Status: 503, Header: http.Header{"Retry-After": {"3600"}}})},
		{"408", script(origin.Faults{Status: 408})},
		{"429", script(origin.Faults{Status: 429})},
		{"connection reset", script(origin.Faults{Drop: true})},
		{"hang", script(origin.Faults{Hang: true})},
		{"slow to answer", script(origin.Faults{Delay: time.Minute})},
		{"refused", (*origin.Origin).Refuse},
		{"blackhole", (*origin.Origin).Blackhole},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			body := someBytes(10_000)
			c, f1, f2 := twoOrigins(t, body, "timeout 5s\ncooldown 1h")
			tt.fail(f1)
			for i := range 20 {
				r := c.Get("/x")
				wantBody(t, "GET", r, http.StatusOK, body)
				if err := backendIs(r, "f2"); err != nil {
					t.Fatalf("request %d: %v", i, err)
				}
			}
			if n := f1.Hits(); n > 1 {
				t.Errorf("the down origin was asked %d times during its cooldown", n)
			}
			if n := f2.Hits(); n != 20 {
				t.Errorf("the second origin was asked %d times, want 20", n)
			}
		})
	}
}

// script returns a function that gives an origin its faults.
func script(f origin.Faults) func(*origin.Origin) {
	return func(o *origin.Origin) { o.Script(f) }
}

func TestTheFirstAnswerIsTheFirstOrigins(t *testing.T) {
	t.Parallel()
	c, f1, f2 := twoOrigins(t, []byte("body"), "")
	r := c.Get("/x")
	if err := backendIs(r, "f1"); err != nil {
		t.Error(err)
	}
	if got := r.Header.Get("X-Attempts") + " " + r.Header.Get("X-Outcome"); got != "1 ok" {
		t.Errorf("attempts and outcome = %q, want \"1 ok\"", got)
	}
	if f1.Hits() != 1 || f2.Hits() != 0 {
		t.Errorf("hits = %d and %d, want 1 and 0", f1.Hits(), f2.Hits())
	}
	f1.Script(origin.Faults{Status: 500})
	if got := c.Get("/x").Header.Get("X-Attempts"); got != "2" {
		t.Errorf("attempts after a failure = %q, want 2", got)
	}
}

func TestADownOriginComesBackAfterItsCooldown(t *testing.T) {
	t.Parallel()
	c, f1, _ := twoOrigins(t, []byte("body"), "timeout 20s\ncooldown 200ms 400ms")
	for round, fail := range []func(*origin.Origin){script(origin.Faults{Status: 500}), (*origin.Origin).Refuse} {
		fail(f1)
		if err := backendIs(c.Get("/x"), "f2"); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		f1.Heal()
		c.Eventually(soon, "the return of the first origin", func() error { return backendIs(c.Get("/x"), "f1") })
	}
}

func TestADownOriginIsTriedByOneRequestAtATime(t *testing.T) {
	t.Parallel()
	c, f1, _ := twoOrigins(t, []byte("body"), "cooldown 100ms 100ms")
	f1.Script(origin.Faults{Status: 500})
	wantStatus(t, "GET", c.Get("/x"), http.StatusOK)
	f1.Script(origin.Faults{Hang: true})
	<-time.After(300 * time.Millisecond) // past the cooldown
	f1.Forget()
	answers := make(chan rig.Response, 20)
	for range cap(answers) {
		go func() {
			r, _ := c.Try(rig.Request{Path: "/x"})
			answers <- r
		}()
	}
	for range cap(answers) - 1 {
		wantStatus(t, "GET during the trial", <-answers, http.StatusOK)
	}
	if n := f1.Hits(); n != 1 {
		t.Errorf("the origin on trial got %d of 20 concurrent requests, want 1", n)
	}
	f1.Heal() // ends the trial, which is sent again or goes on elsewhere
	wantStatus(t, "GET that was the trial", <-answers, http.StatusOK)
}

func TestWithAllOriginsDownTheAnswerIs503WithRetryAfter(t *testing.T) {
	t.Parallel()
	c, f1, f2 := twoOrigins(t, []byte("body"), "timeout 20s\ncooldown 1h")
	f1.Refuse()
	f2.Script(origin.Faults{Status: 500})
	for i := range 3 {
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			r := c.Do(rig.Request{Method: method, Path: "/x"})
			wantStatus(t, fmt.Sprintf("%s %d", method, i), r, http.StatusServiceUnavailable)
			after, err := strconv.Atoi(r.Header.Get("Retry-After"))
			if err != nil || after < 1 || after > 3600 {
				t.Errorf("%s %d: Retry-After = %q", method, i, r.Header.Get("Retry-After"))
			}
			if code := r.Header.Get("X-Code"); code != "" && code != "STORAGE_MUX.ALL_BACKENDS_DOWN" {
				t.Errorf("%s %d: code %q", method, i, code)
			}
		}
	}
	if f1.Hits() > 1 || f2.Hits() > 1 {
		t.Errorf("hits = %d and %d during the cooldown", f1.Hits(), f2.Hits())
	}
}

func TestATimeoutOfTheLastAttemptIs504(t *testing.T) {
	t.Parallel()
	c, f1, f2 := twoOrigins(t, []byte("body"), "timeout 300ms")
	f1.Script(origin.Faults{Status: 500})
	f2.Script(origin.Faults{Hang: true})
	wantStatus(t, "GET", c.Get("/x"), http.StatusGatewayTimeout)
}

func TestAnswersThatSayNothingAboutHealthAreNotFailures(t *testing.T) {
	t.Parallel()
	body := []byte(alphabet)
	for _, tt := range []struct {
		name   string
		header []string
		path   string
		status int
	}{
		{"404", nil, "/missing", 404},
		{"304", []string{"If-None-Match", origin.Tag(body)}, "/x", 304},
		{"412", []string{"If-Match", `"other"`}, "/x", 412},
		{"416", []string{"Range", "bytes=100-"}, "/x", 416},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c, _, _ := twoOrigins(t, body, "cooldown 1h")
			for range 20 {
				wantStatus(t, "GET", c.Get(tt.path, tt.header...), tt.status)
			}
			if err := backendIs(c.Get("/x"), "f1"); err != nil {
				t.Errorf("afterwards: %v", err)
			}
		})
	}
}

func TestADeniedReadMovesOnAndLeavesHealthAlone(t *testing.T) {
	t.Parallel()
	for _, status := range []int{401, 403, 407} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			t.Parallel()
			c, f1, f2 := twoOrigins(t, []byte("body"), "cooldown 1h")
			f1.Script(origin.Faults{Status: status})
			for range 3 {
				if err := backendIs(c.Get("/x"), "f2"); err != nil {
					t.Error(err)
				}
			}
			if n := f1.Hits(); n != 3 {
				t.Errorf("the denying origin was asked %d times, want 3", n)
			}
			f2.Script(origin.Faults{Status: status})
			wantStatus(t, "GET denied by all", c.Get("/x"), http.StatusBadGateway)
			f1.Heal()
			if err := backendIs(c.Get("/x"), "f1"); err != nil {
				t.Errorf("once it is admitted again: %v", err)
			}
		})
	}
}

func TestAMissingKeyEndsTheReadOrGoesOn(t *testing.T) {
	t.Parallel()
	t.Run("on_miss stop", func(t *testing.T) {
		t.Parallel()
		c, f1, f2 := twoOrigins(t, []byte("body"), "")
		f1.Remove("/x")
		wantMissing(t, c, "/x")
		if f2.Hits() != 0 {
			t.Error("the second origin was asked")
		}
	})
	t.Run("on_miss next", func(t *testing.T) {
		t.Parallel()
		c, f1, f2 := twoOrigins(t, []byte("body"), "on_miss next\ncooldown 1h")
		f1.Remove("/x")
		if err := backendIs(c.Get("/x"), "f2"); err != nil {
			t.Error(err)
		}
		wantMissing(t, c, "/nowhere")
		// A backend that cannot be asked might have had it: no 404.
		f2.Refuse()
		r := c.Get("/nowhere")
		wantStatus(t, "GET with one origin down", r, http.StatusServiceUnavailable)
		if r.Header.Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
	})
}

func TestRetriesGoToTheSameBackendFirst(t *testing.T) {
	t.Parallel()
	c, f1, f2 := twoOrigins(t, []byte("body"), "retry 2 1ms 5ms")
	f1.Script(origin.Faults{Status: 500, Times: 2})
	if err := backendIs(c.Get("/x"), "f1"); err != nil {
		t.Error(err)
	}
	if f1.Hits() != 3 || f2.Hits() != 0 {
		t.Errorf("hits = %d and %d, want 3 and 0", f1.Hits(), f2.Hits())
	}
}

// While some of three origins are down in every combination, there is always
// an answer: from one that is up, or 503.
func TestCase032EverySubsetOfOriginsDown(t *testing.T) {
	t.Parallel()
	var all []*origin.Origin
	var options []rig.Option
	for i := range 3 {
		f := origin.New(t)
		f.Put("/x", origin.Object{Body: []byte("body")})
		all = append(all, f)
		options = append(options, rig.Env(fmt.Sprintf("F%d", i+1), f.URL()))
	}
	c := rig.Start(t, `
		storage_mux {
			timeout 5s
			cooldown 1ms 1ms
			backend f1 http {$F1}
			backend f2 http {$F2}
			backend f3 http {$F3}
		}`, options...)
	for down := range 8 {
		want := http.StatusOK
		if down == 7 {
			want = http.StatusServiceUnavailable
		}
		for i, f := range all {
			if down&(1<<i) != 0 {
				f.Refuse()
			}
		}
		c.Eventually(soon, "the end of the last cooldown", func() error {
			if r := c.Get("/x"); r.Status != want {
				return fmt.Errorf("%d", r.Status)
			}
			return nil
		})
		for range 25 {
			r, err := c.Try(rig.Request{Path: "/x"})
			if err != nil || r.Status != want {
				t.Fatalf("subset %03b: %d, %v, want %d", down, r.Status, err, want)
			}
		}
		for _, f := range all {
			f.Heal()
		}
	}
}

// A dial that never ends must not use up the time of the backend after it.
func TestCase038ABlackholedDialLeavesTimeForTheSecondOrigin(t *testing.T) {
	t.Parallel()
	f2 := origin.New(t)
	f2.Put("/x", origin.Object{Body: []byte("body")})
	c := rig.Start(t, `
		header >X-Backend {http.storage_mux.backend}
		storage_mux {
			timeout 3s
			backend f1 http http://{$F1}
			backend f2 http {$F2}
		}`, rig.Env("F1", origin.DeadEnd(t)), rig.Env("F2", f2.URL()))
	if err := backendIs(c.Get("/x"), "f2"); err != nil {
		t.Error(err)
	}
}

// A client that leaves says nothing about the origin it waited for.
func TestCase001AClientThatLeavesMarksNothingDown(t *testing.T) {
	t.Parallel()
	c, f1, _ := twoOrigins(t, []byte("body"), "timeout 30s\ncooldown 1h")
	f1.Script(origin.Faults{Hang: true})
	for range 10 {
		if _, err := c.Try(rig.Request{Path: "/x", Within: 100 * time.Millisecond}); err == nil {
			t.Error("a hanging origin answered")
		}
	}
	f1.Heal()
	if err := backendIs(c.Get("/x"), "f1"); err != nil {
		t.Error(err)
	}
}

func TestNestedMuxesFailOverWithinAndBetween(t *testing.T) {
	t.Parallel()
	var fs [3]*origin.Origin
	var options []rig.Option
	for i := range fs {
		fs[i] = origin.New(t)
		fs[i].Put("/x", origin.Object{Body: []byte("body")})
		options = append(options, rig.Env(fmt.Sprintf("F%d", i+1), fs[i].URL()))
	}
	c := rig.Start(t, `
		header >X-Backend {http.storage_mux.backend}
		storage_mux failover {
			name all
			backend eu mux failover {
				cooldown 1h
				backend a http {$F1}
				backend b http {$F2}
			}
			backend us http {$F3}
		}`, options...)
	for i, want := range []string{"eu.a", "eu.b", "us"} {
		if err := backendIs(c.Get("/x"), want); err != nil {
			t.Errorf("with %d origins down: %v", i, err)
		}
		fs[i].Refuse()
	}
	wantStatus(t, "GET with all down", c.Get("/x"), http.StatusServiceUnavailable)
}

func TestAMissingFileRootIsAFailureAndNoMiss(t *testing.T) {
	t.Parallel()
	f2 := origin.New(t)
	f2.Put("/x", origin.Object{Body: []byte("body")})
	c := rig.Start(t, `
		header >X-Backend {http.storage_mux.backend}
		storage_mux {
			cooldown 50ms 50ms
			backend d file {$DIR}/d
			backend f2 http {$F2}
		}`, rig.Env("F2", f2.URL()))
	if err := backendIs(c.Get("/x"), "f2"); err != nil {
		t.Error(err)
	}
	writeFile(t, c.Dir, "d/x", []byte("body"))
	c.Eventually(soon, "the directory's return", func() error {
		return errors.Join(backendIs(c.Get("/x"), "d"))
	})
}

func TestPlaceholdersReachTheAccessLog(t *testing.T) {
	t.Parallel()
	c := rig.Start(t, `
		log_append mux_tree {http.storage_mux.tree}
		log_append mux_backend {http.storage_mux.backend}
		log_append mux_outcome {http.storage_mux.outcome}
		log_append mux_code {http.storage_mux.error_code}
		log_append mux_latency {http.storage_mux.latency_ms}
		log
		storage_mux {
			name assets
			writable
			backend m memory
		}`)
	c.Put("/x", "body")
	c.Get("/x")
	c.Get("/missing")
	want := map[string][3]string{
		"GET /x":       {"m", "ok", ""},
		"GET /missing": {"m", "semantic", "STORAGE.KEY_NOT_FOUND"},
	}
	c.Eventually(soon, "the access log", func() error {
		for _, e := range c.Log.Entries(func(e rig.Entry) bool { return e.Str("msg") == "handled request" || e.Str("mux_tree") != "" }) {
			req, _ := e["request"].(map[string]any)
			what := fmt.Sprint(req["method"], " ", req["uri"])
			w, ok := want[what]
			if !ok {
				continue
			}
			if got := [3]string{e.Str("mux_backend"), e.Str("mux_outcome"), e.Str("mux_code")}; got != w || e.Str("mux_tree") != "assets" {
				return fmt.Errorf("%s: %v of tree %q, want %v of assets", what, got, e.Str("mux_tree"), w)
			}
			if _, err := strconv.ParseFloat(fmt.Sprint(e["mux_latency"]), 64); err != nil {
				return fmt.Errorf("%s: latency %v", what, e["mux_latency"])
			}
			delete(want, what)
		}
		if len(want) > 0 {
			return fmt.Errorf("no line yet for %v", want)
		}
		return nil
	})
}
