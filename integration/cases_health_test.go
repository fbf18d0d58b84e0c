package integration_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/suaveplan/caddy-storage-mux/integration/origin"
	"github.com/suaveplan/caddy-storage-mux/integration/rig"
)

// probed is a tree "t" in failover over f1 and f2 with active checks, in a form that reloads can change.
func probed(t *testing.T, options string) (g *group, config func(i int) string) {
	t.Helper()
	g = newGroup(t, "failover", options, []byte("body"))
	return g, func(i int) string {
		return fmt.Sprintf("header X-Config %d\n%s", i, g.config)
	}
}

// is returns an error unless a backend of the tree "t" has the status, and why.
func (g *group) is(t *testing.T, backend int, status, reason string) error {
	t.Helper()
	b := g.stats(t).Backends[backend]
	if b.Status != status || !strings.Contains(b.Reason, reason) {
		return fmt.Errorf("%s is %s (%s), want %s (%s)", b.Name, b.Status, b.Reason, status, reason)
	}
	return nil
}

// checks waits for n checks of an origin from now on, meanwhile doing something.
func checks(t *testing.T, c *rig.Caddy, o *origin.Origin, n int, meanwhile func()) {
	t.Helper()
	before := o.Hits(http.MethodHead)
	c.Eventually(soon, fmt.Sprintf("%d more checks", n), func() error {
		meanwhile()
		if got := o.Hits(http.MethodHead) - before; got < n {
			return fmt.Errorf("%d checks", got)
		}
		return nil
	})
}

// Row 22: each reload left one more loop of checks behind. The rate is what one loop can make in the time it took, whatever
// that was.
func TestCase022ReloadsDoNotMultiplyTheChecks(t *testing.T) {
	t.Parallel()
	const interval = 100 * time.Millisecond
	g, config := probed(t, "health_interval 100ms")
	for i := range 20 {
		site := config(i)
		if i%2 == 0 {
			site = strings.Replace(site, "health_interval 100ms", "health_interval 100ms\ncooldown 2s", 1) // another tree
		}
		g.Reload(site)
	}
	begun, before := time.Now(), g.origins[0].Hits(http.MethodHead)
	checks(t, g.Caddy, g.origins[0], 20, func() {})
	n, most := g.origins[0].Hits(http.MethodHead)-before, int(time.Since(begun)/interval)
	if n > most*3/2+5 {
		t.Errorf("%d checks after 20 reloads in the time of %d", n, most)
	}
}

// Row 26: what is known of dynamic upstreams was forgotten after every request.
func TestCase026ABreakerRemembersDynamicUpstreams(t *testing.T) {
	t.Parallel()
	f1 := origin.New(t)
	f1.Put("/x", origin.Object{Body: []byte("body")})
	_, port, _ := strings.Cut(f1.Addr(), ":")
	c := rig.Start(t, `
		reverse_proxy {
			dynamic a {
				name localhost
				port {$F1}
				refresh 1ms
				versions ipv4
			}
			lb_policy relay_breaker
			transport relay_breaker {
				failure_threshold 3
				open_duration 1h
			}
		}`, rig.Env("F1", port))
	fails(t, c, f1, 3)
	wantOpen(t, c, f1)
}

// Row 27: until the first check had passed, the answer was 503. Backends are up until something is known against them, and
// are checked at once.
func TestCase027NoReadWaitsForTheFirstCheck(t *testing.T) {
	t.Parallel()
	g, config := probed(t, "timeout 20s\nhealth_interval 1h")
	for _, o := range g.origins {
		o.Script(origin.Faults{Hang: true, Only: func(r *http.Request) bool { return r.Method == http.MethodHead }})
	}
	for i := range 10 {
		site := strings.Replace(config(i), "timeout 20s", fmt.Sprintf("timeout 2%ds", i), 1) // another tree
		if msg := g.Load(site); msg != "" {
			t.Fatal(msg)
		}
		for range 10 {
			r, err := g.Try(rig.Request{Path: "/x"})
			if err == nil && r.Status != http.StatusOK { // a connection may be closed by Caddy's old servers
				t.Errorf("GET after reload %d = %d", i, r.Status)
			}
		}
	}
	g.Eventually(soon, "the first check of each tree", func() error {
		if n := g.origins[0].Hits(http.MethodHead); n < 10 {
			return fmt.Errorf("%d checks", n)
		}
		return nil
	})
}

// Row 28: after a reload, traffic went to backends that were known to be down.
func TestCase028AReloadForgetsNoneThatIsDown(t *testing.T) {
	t.Parallel()
	g, config := probed(t, "cooldown 1h 1h")
	g.origins[0].Script(origin.Faults{Status: 500})
	wantStatus(t, "GET", g.Get("/x"), http.StatusOK)
	for i := range 10 {
		g.Reload(config(i))
		if got := g.answers(t, 20, "/x", []byte("body")); got["f2"] != 20 {
			t.Errorf("after reload %d: %v", i, got)
		}
		if err := g.is(t, 0, "down", "500"); err != nil {
			t.Errorf("after reload %d: %v", i, err)
		}
	}
	if n := g.origins[0].Hits(); n != 1 {
		t.Errorf("the backend that is down was asked %d times, want 1", n)
	}
}

// Row 30: checks waited behind real traffic, ran out of time, and took the only backend out.
func TestCase030ChecksThatGetNoTurnTakeNobodyOutWhoAnswers(t *testing.T) {
	t.Parallel()
	for _, backends := range []string{"backend f1 http {$F1}", "backend f1 http {$F1}\nbackend f2 http {$F2}"} {
		busy := origin.Faults{Hang: true, Only: func(r *http.Request) bool { return r.Method == http.MethodHead }}
		f1, f2 := origin.New(t), origin.New(t)
		for _, f := range []*origin.Origin{f1, f2} {
			f.Put("/x", origin.Object{Body: []byte("body")})
			f.Script(busy)
		}
		c := rig.Start(t, "header >X-Backend {http.storage_mux.backend}\nstorage_mux {\nhealth_interval 20ms\ntimeout 3s\ncooldown 1h 1h\n"+backends+"\n}",
			rig.Env("F1", f1.URL()), rig.Env("F2", f2.URL()))
		asked := 0
		checks(t, c, f1, 3, func() {
			wantStatus(t, "GET while checks fail", c.Get("/x"), http.StatusOK)
			asked++
		})
		if n := f1.Hits(http.MethodGet); n != asked {
			t.Errorf("the first backend answered %d of %d reads", n, asked)
		}
	}
}

// Row 31: a check of something else than what is served marked all down, and nobody could see why.
func TestCase031WhyACheckFailsIsVisible(t *testing.T) {
	t.Parallel()
	block := "health_uri /health"
	g := newGroup(t, "failover", "health_interval 20ms\ncooldown 20ms 20ms", []byte("body"), block, block, block)
	unwell := origin.Faults{Status: 500, Only: func(r *http.Request) bool { return r.URL.Path == "/health" }}
	for i, o := range g.origins {
		o.Put("/health", origin.Object{Body: []byte("well")})
		if i == 0 {
			o.Script(unwell)
		}
	}
	g.Eventually(soon, "the check to fail", func() error { return g.is(t, 0, "down", "500") })
	for _, o := range g.origins { // nobody can be checked, everybody answers
		o.Script(unwell)
	}
	checks(t, g.Caddy, g.origins[2], 5, func() { g.answers(t, 5, "/x", []byte("body")) })
	g.Eventually(soon, "the reason in the stats", func() error {
		for _, b := range g.stats(t).Backends {
			if b.Status == "down" && strings.Contains(b.Reason, "500") {
				return nil
			}
		}
		return fmt.Errorf("%+v", g.stats(t).Backends)
	})
	for i, o := range g.origins {
		o.Heal()
		g.Eventually(soon, "the return", func() error { return g.is(t, i, "up", "") })
	}
}

// Row 34: with all weights 0 the choice divided by zero.
func TestCase034WithNobodyLeftInServiceTheAnswerIs503(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		g := newGroup(t, mode, "", []byte("body"), weightsOf(mode)...)
		for i := range g.origins {
			if status, answer := g.Admin(http.MethodPost, fmt.Sprintf("/storage_mux/t/backends/f%d/drain", i+1), ""); status != http.StatusOK {
				t.Fatalf("drain = %d %s", status, answer)
			}
		}
		for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPut, http.MethodDelete} {
			r := g.Do(rig.Request{Method: method, Path: "/x"})
			if r.Status != http.StatusServiceUnavailable || r.Header.Get("Retry-After") == "" {
				t.Errorf("%s: %s with all drained = %d, Retry-After %q", mode, method, r.Status, r.Header.Get("Retry-After"))
			}
		}
		if status, answer := g.Admin(http.MethodDelete, "/storage_mux/t/backends/f2/drain", ""); status != http.StatusOK {
			t.Fatalf("putting it back = %d %s", status, answer)
		}
		g.answers(t, 10, "/x", []byte("body"))
	}
}

// Row 35: a backend that came back from being down was in rotation again, although it was drained or had weight 0.
func TestCase035HealthPutsNobodyBackIntoService(t *testing.T) {
	t.Parallel()
	for name, out := range map[string]func(g *group) (int, string){
		"drained": func(g *group) (int, string) {
			return g.Admin(http.MethodPost, "/storage_mux/t/backends/f1/drain", "")
		},
		"weight 0": func(g *group) (int, string) {
			return g.Admin(http.MethodPatch, "/storage_mux/t/backends/f1", `{"weight": 0}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGroup(t, "weighted", "health_interval 10ms\ncooldown 1ms 1ms\ntimeout 20s", []byte("body"), weightsOf("weighted")...)
			if status, answer := out(g); status != http.StatusOK {
				t.Fatalf("%d %s", status, answer)
			}
			before := g.origins[0].Hits(http.MethodGet)
			for range 10 {
				g.origins[0].Refuse()
				g.answers(t, 5, "/x", []byte("body"))
				g.origins[0].Heal()
				checks(t, g.Caddy, g.origins[1], 3, func() { g.answers(t, 5, "/x", []byte("body")) })
			}
			if n := g.origins[0].Hits(http.MethodGet) - before; n != 0 {
				t.Errorf("it got %d reads", n)
			}
		})
	}
}

// Row 39: that nobody is available was no reason to wait and try again.
func TestCase039AnUploadWaitsForAPathThatComesBack(t *testing.T) {
	t.Parallel()
	f1 := origin.New(t)
	f1.Put("/x", origin.Object{Body: []byte("body")})
	c := rig.Start(t, `
		reverse_proxy {$F1} {
			lb_policy relay_breaker
			lb_try_duration 30s
			lb_try_interval 20ms
			transport relay_breaker {
				failure_threshold 3
				open_duration 500ms
			}
		}`, rig.Env("F1", f1.Addr()))
	fails(t, c, f1, 3)
	f1.Heal()
	body := someBytes(100_000)
	r := c.Do(rig.Request{Method: http.MethodPut, Path: "/new", Body: bytes.NewReader(body), Length: int64(len(body))})
	if r.Status/100 != 2 {
		t.Errorf("PUT = %d %q", r.Status, r.Body)
	}
	if stored, ok := f1.Object("/new"); !ok || rig.Same(stored.Body, body) != nil {
		t.Errorf("what came of the upload: %t, %v", ok, rig.Same(stored.Body, body))
	}
	if n := f1.Hits(http.MethodPut); n != 1 {
		t.Errorf("the upload came %d times", n)
	}
}

// Row 40: a line in the log for every check.
func TestCase040AChangeIsLoggedOnce(t *testing.T) {
	t.Parallel()
	g, _ := probed(t, "health_interval 10ms\ncooldown 1ms 1ms")
	lines := func(msg string) int {
		return len(g.Log.Entries(func(e rig.Entry) bool { return e.Str("msg") == msg && e.Str("backend") == "f1" && e.Str("op") == "get" }))
	}
	checks(t, g.Caddy, g.origins[0], 20, func() {})
	if down, up := lines("backend down"), lines("backend recovered"); down+up != 0 {
		t.Errorf("%d and %d lines while all is well", down, up)
	}
	g.origins[0].Script(origin.Faults{Status: 500})
	checks(t, g.Caddy, g.origins[0], 20, func() {})
	if down, up := lines("backend down"), lines("backend recovered"); down != 1 || up != 0 {
		t.Errorf("%d lines of going down and %d of coming back, want 1 and 0", down, up)
	}
	g.origins[0].Heal()
	g.Eventually(soon, "the return", func() error { return g.is(t, 0, "up", "") })
	checks(t, g.Caddy, g.origins[0], 20, func() {})
	if down, up := lines("backend down"), lines("backend recovered"); down != 1 || up != 1 {
		t.Errorf("%d lines of going down and %d of coming back, want 1 and 1", down, up)
	}
}

// Row 41: the gauge of health vanished, or was wrong, after a reload.
func TestCase041SeriesSurviveAReload(t *testing.T) {
	t.Parallel()
	g, config := probed(t, "cooldown 1h 1h")
	g.origins[0].Script(origin.Faults{Status: 500})
	g.answers(t, 7, "/x", []byte("body"))
	scrape := func() string {
		_, text := g.Admin(http.MethodGet, "/metrics", "")
		var lines []string
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "caddy_storage_mux_") && !strings.Contains(line, "duration") {
				lines = append(lines, line)
			}
		}
		return strings.Join(lines, "")
	}
	before := scrape()
	if !strings.Contains(before, `caddy_storage_mux_backend_up{backend="f1",tree="t"} 0`) {
		t.Errorf("no gauge of a backend that is down:\n%s", before)
	}
	for i := range 3 {
		g.Reload(config(i))
		if after := scrape(); after != before {
			t.Fatalf("after reload %d:\n%swant\n%s", i, after, before)
		}
	}
}

// Row 42: a long answer from before a reload was cut off at the exit.
func TestCase042ALongReadOutlivesAReloadAndTheExit(t *testing.T) {
	t.Parallel()
	f1 := origin.New(t)
	body := someBytes(4 << 20)
	f1.Put("/x", origin.Object{Body: body})
	f1.Script(origin.Faults{Drip: 64 << 10, DripEvery: 10 * time.Millisecond})
	config := func(i int) string {
		return fmt.Sprintf("grace_period 60s\n}\nhttp://:{$PORT} {\nstorage_mux {\ntimeout %ds\nbackend f1 http {$F1}\n}\n", 20+i)
	}
	whole := func(i int) string {
		return "{\nadmin 127.0.0.1:{$ADMIN}\nauto_https off\npersist_config off\n" + config(i) + "}\n"
	}
	c := rig.Start(t, whole(0), rig.AsIs(), rig.Env("F1", f1.URL()))
	resp, err := c.Open(t.Context(), rig.Request{Path: "/x"})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got := make([]byte, len(body))
	if _, err := io.ReadFull(resp.Body, got[:100_000]); err != nil {
		t.Fatal(err)
	}
	if msg := c.Load(whole(1)); msg != "" {
		t.Fatal(msg)
	}
	code := -1
	var wg sync.WaitGroup
	wg.Go(func() { code = c.Stop() })
	_, err = io.ReadFull(resp.Body, got[100_000:])
	wg.Wait()
	if err != nil || rig.Same(got, body) != nil || code != 0 {
		t.Errorf("%v, %v, exit code %d", err, rig.Same(got, body), code)
	}
}
