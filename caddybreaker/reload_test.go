package caddybreaker

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/suaveplan/caddy-storage-mux/muxcore/breaker"
)

func TestStateOutlivesAReloadAndAnEditedBreakerStartsAfresh(t *testing.T) {
	o := newOrigin(t)
	site := long(br(o, ""))
	r := start(t, "", site)
	trip(r, o, 3)
	r.load("", site+"\nheader X-Edited elsewhere")
	if v := r.path(o); v.State != breaker.Open || v.OpenedTotal != 1 {
		t.Fatalf("after a reload: %v, opened %d; want OPEN, 1", v.State, v.OpenedTotal)
	}
	r.want("/x", 503)
	r.load("", strings.Replace(site, "failure_threshold 3", "failure_threshold 2", 1))
	if v := r.path(o); v.State != breaker.Closed || len(views()) != 1 {
		t.Fatalf("after an edit: %v and %d paths, want CLOSED and 1", v.State, len(views()))
	}
	r.want("/x", 500)
}

// A server that is shutting down still serves what it had accepted.
func TestAConfigThatIsGoneGoesOnAskingTheSameBreakers(t *testing.T) {
	o := newOrigin(t)
	site := long(br(o, ""))
	r := start(t, "", site)
	r.want("/x", 200)
	old, err := entryOf(t, r.path(o).PathID).observer().registry("")
	if err != nil {
		t.Fatal(err)
	}
	u := old.lookup(o.addr()).definer
	r.load("", site+"\nheader X-Edited elsewhere")
	trip(r, o, 3)
	if g := old.meet(o.addr(), u); g == nil || g.entry.breaker.State() != breaker.Open {
		t.Errorf("the old config asks %v, want the breaker that the new one opened", g)
	}
	if g := old.meet("elsewhere:80", u); g != nil {
		t.Errorf("the old config made a new path: %v", g)
	}
}

func TestTheLastConfigThatNamedAPathTakesItAway(t *testing.T) {
	o := newOrigin(t)
	r := start(t, "", br(o, ""))
	r.want("/x", 200)
	r.load("", "respond hello")
	if got := views(); len(got) != 0 {
		t.Errorf("paths of a config that is gone: %v", got)
	}
}

// caddy#7037: failure memory for dynamic upstreams was dropped.
func TestDynamicUpstreamsAreRememberedAndOutliveAReload(t *testing.T) {
	o := newOrigin(t)
	host, port, _ := strings.Cut(o.addr(), ":")
	site := fmt.Sprintf(`reverse_proxy {
		dynamic a %s %s
		lb_policy relay_breaker
		transport relay_breaker {
			failure_threshold 3
			open_duration 1m
		}
	}
	metrics /metrics`, host, port)
	r := start(t, "", site)
	trip(r, o, 3)
	r.want("/x", 503)
	r.load("", site+"\nheader X-Edited elsewhere")
	if v := r.path(o); v.State != breaker.Open || v.RejectedTotal != 1 {
		t.Fatalf("after a reload: %v, %d rejected; want OPEN, 1", v.State, v.RejectedTotal)
	}
	hits := o.hits.Load()
	r.want("/x", 503)
	if o.hits.Load() != hits {
		t.Error("a request reached the open upstream after the reload")
	}
	// No client may make up metric labels.
	if text := r.want("/metrics", 200).body; strings.Contains(text, o.addr()) || !strings.Contains(text, `→dynamic",registry="default"} 2`) {
		t.Errorf("metrics of a dynamic path:\n%s", grep(text, "relay_breaker"))
	}
}

func TestIdleDynamicPathsAreForgotten(t *testing.T) {
	o := newOrigin(t)
	host, port, _ := strings.Cut(o.addr(), ":")
	r := start(t, "", fmt.Sprintf("reverse_proxy {\n dynamic a %s %s\n transport relay_breaker\n}", host, port))
	r.want("/x", 200)
	app := entryOf(t, r.path(o).PathID).observer()
	reg, err := app.registry("")
	if err != nil {
		t.Fatal(err)
	}
	reg.forgetIdle(time.Now().Add(-time.Hour))
	if len(views()) != 1 {
		t.Fatal("a path in use was forgotten")
	}
	for _, action := range []string{"force_open", "force_closed"} {
		if status, body := admin(t, "POST", fmt.Sprintf(`{"path_id":%q,"action":%q}`, r.path(o).PathID, action)); status != 200 {
			t.Fatalf("%s = %d %s", action, status, body)
		}
		reg.forgetIdle(time.Now().Add(time.Hour))
		if len(views()) != 1 {
			t.Fatalf("a path was forgotten after %s", action)
		}
	}
	entryOf(t, r.path(o).PathID).breaker.Auto()
	trip(r, o, 5)
	reg.forgetIdle(time.Now().Add(time.Hour))
	if len(views()) != 1 {
		t.Fatal("an open path was forgotten")
	}
	entryOf(t, r.path(o).PathID).breaker.Reset()
	o.status.Store(200)
	reg.forgetIdle(time.Now().Add(time.Hour))
	if got := views(); len(got) != 0 {
		t.Fatalf("idle paths are still there: %v", got)
	}
	r.want("/x", 200) // and come back
	if len(views()) != 1 {
		t.Error("the path did not come back")
	}
}

// A reload closes the idle connections of the config that ends, and net/http takes a connection for idle before it hands
// on an answer without a body: a request that was as good as answered got 502, and its upstream the blame.
func TestAnAnswerThatAReloadLosesIsAskedForAgain(t *testing.T) {
	o := newOrigin(t)
	for _, row := range []struct {
		method string
		body   io.Reader
		again  bool
	}{
		{method: http.MethodGet, again: true},
		{method: http.MethodHead, again: true},
		{method: http.MethodPost},
		{method: http.MethodGet, body: strings.NewReader("used up")},
	} {
		inner := &lossy{returned: make(chan struct{})}
		r, def := static(t, "there:80")
		guarded := &Transport{inner: inner, registry: r, def: def}
		req := httptest.NewRequestWithContext(inner.trace(t.Context()), row.method, o.URL, row.body)
		req.RequestURI = ""
		req = caddyhttp.PrepareRequest(req, caddy.NewReplacer(), nil, &caddyhttp.Server{})
		req = req.WithContext(context.WithValue(req.Context(), dialInfoKey, reverseproxy.DialInfo{Address: "there:80"}))
		before := o.hits.Load()
		res, err := guarded.RoundTrip(req)
		switch hits := o.hits.Load() - before; {
		case row.again && (err != nil || res.StatusCode != 200 || hits != 2):
			t.Errorf("%s: %v after %d requests, want the answer to the second", row.method, err, hits)
		case !row.again && (err == nil || hits != 1):
			t.Errorf("%s with %v: %v after %d requests, want an error after one", row.method, row.body, err, hits)
		}
		if err == nil {
			res.Body.Close()
		}
		inner.CloseIdleConnections()
		e := r.lookup("there:80").entry
		if failures := e.calls[breaker.Failure].Load(); failures != 0 {
			t.Errorf("%s: the path has %d failures", row.method, failures)
		}
	}
}

// lossy is a transport that loses its first answer, as one does whose config ends just then.
type lossy struct {
	http.Transport
	once     sync.Once
	returned chan struct{}
}

func (l *lossy) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := l.Transport.RoundTrip(req)
	l.once.Do(func() { close(l.returned) })
	return res, err
}

func (l *lossy) trace(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{PutIdleConn: func(error) {
		select {
		case <-l.returned:
		default:
			l.CloseIdleConnections()
			<-l.returned
		}
	}})
}

func TestTwentyReloadsUnderLoadLeakNothingAndRefuseNobody(t *testing.T) {
	o := newOrigin(t)
	site := func(i int) string {
		return fmt.Sprintf(`header X-Load %d
		reverse_proxy %s {
			lb_policy relay_breaker
			transport relay_breaker {
				probe_uri /probe
			}
		}`, i, o.addr())
	}
	r := start(t, "", site(0))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				// A connection of the old listener may be closed under a request;
				// an answer must be a good one.
				if got := r.get("/x"); got.err == nil && got.status != 200 {
					t.Errorf("answer %d during reloads", got.status)
				}
			}
		})
	}
	for i := 1; i <= 20; i++ {
		r.load("", site(i))
	}
	close(stop)
	wg.Wait()
	r.eventually("all goroutines of older configs to end", func() bool { return ours() == 2 })
	if v := r.path(o); len(views()) != 1 || v.State != breaker.Closed {
		t.Errorf("%d paths, %v", len(views()), v.State)
	}
	e := entryOf(t, r.path(o).PathID)
	if e.calls[breaker.Success].Load() < 20 {
		t.Errorf("%d successes counted over 20 reloads: the totals were lost", e.calls[breaker.Success].Load())
	}
}

func TestProbesBringAPathBackWithoutTraffic(t *testing.T) {
	o := newOrigin(t)
	r := start(t, "", br(o, "probe_uri /health?deep=1\nprobe_interval 10ms\nprobe_only"))
	trip(r, o, 3)
	o.pause()
	r.becomes(o, breaker.HalfOpen)
	r.want("/x", 503) // no real traffic is risked
	o.status.Store(200)
	o.release()
	r.becomes(o, breaker.Closed)
	probe := o.lastReq.Load()
	if probe.Header.Get("Relay-Probe") != "1" || probe.RequestURI != "/health?deep=1" || probe.ContentLength > 0 {
		t.Errorf("the probe was %s %s %v", probe.Method, probe.RequestURI, probe.Header)
	}
	hits := o.hits.Load()
	r.want("/x", 200)
	if o.hits.Load() != hits+1 {
		t.Errorf("%d hits for one request on a closed path: probes go on", o.hits.Load()-hits)
	}
}

func TestFailedProbesOpenAgain(t *testing.T) {
	o := newOrigin(t)
	r := start(t, "", br(o, "probe_uri /health\nprobe_interval 10ms"))
	trip(r, o, 3)
	r.eventually("it to be opened by probes", func() bool { return r.path(o).OpenedTotal >= 3 })
	recent := r.path(o).Recent
	if got := recent[len(recent)-1].Cause; got != "CB.PROBE_FAILED: status 500" {
		t.Errorf("cause %q, want CB.PROBE_FAILED and why", got)
	}
}

func TestMetricsAndAdminAPISayWhatTheBreakersSay(t *testing.T) {
	o := newOrigin(t)
	r := start(t, "relay_breaker {\nlocal_id here\n}", "metrics /metrics\n"+long(br(o, "")))
	r.want("/x", 200)
	trip(r, o, 3)
	r.want("/x", 503)
	text := r.want("/metrics", 200).body
	path := "here→" + o.addr()
	for _, line := range []string{
		`caddy_relay_breaker_state{path="%s",registry="default"} 2`,
		`caddy_relay_breaker_transitions_total{path="%s",registry="default",to="OPEN"} 1`,
		`caddy_relay_breaker_rejected_total{path="%s",registry="default"} 1`,
		`caddy_relay_breaker_calls_total{outcome="success",path="%s",registry="default"} 1`,
		`caddy_relay_breaker_calls_total{outcome="failure",path="%s",registry="default"} 3`,
		`caddy_relay_breaker_calls_total{outcome="neutral",path="%s",registry="default"} 0`,
	} {
		if want := fmt.Sprintf(line, path); !strings.Contains(text, want+"\n") {
			t.Errorf("metrics lack %s; have:\n%s", want, grep(text, "relay_breaker"))
		}
	}
	code, body := admin(t, http.MethodGet, "")
	for _, field := range []string{
		`"path_id":"` + path + `"`, `"registry":"default"`, `"state":"OPEN"`, `"since":"`, `"reason":"3 failures in a row"`,
		`"failures":0`, `"successes":0`, `"half_open_in_flight":0`, `"next_trial_at":"`, `"rejected_total":1`, `"opened_total":1`,
		`"recent":[{"at":"`, `"cause":"status 500"`,
	} {
		if code != 200 || !strings.Contains(body, field) {
			t.Errorf("GET /relay_breaker = %d %s, lacks %s", code, body, field)
		}
	}
}

// An upstream may come from a placeholder, with whatever it stands for.
func TestAnUpstreamThatIsNotUTF8FailsNoScrape(t *testing.T) {
	t.Setenv("NOT_UTF8", "a\xff")
	r := start(t, "relay_breaker {\nlocal_id here\n}", "metrics /metrics\nreverse_proxy unix//{env.NOT_UTF8} {\ntransport relay_breaker\n}")
	r.want("/x", 502)
	if text := r.want("/metrics", 200).body; !strings.Contains(text, "here→") || !strings.Contains(text, "a\uFFFD") {
		t.Errorf("metrics lack the path:\n%s", grep(text, "relay_breaker"))
	}
}

func TestOperatorsDecideByTheAdminAPI(t *testing.T) {
	o := newOrigin(t)
	r := start(t, "relay_breaker {\nlocal_id here\n}", br(o, ""))
	path := "here→" + o.addr()
	do := func(action, more string) (int, string) {
		return admin(t, http.MethodPost, fmt.Sprintf(`{"path_id":%q,"action":%q%s}`, path, action, more))
	}
	for _, step := range []struct {
		action, more string
		state        breaker.State
		answer       int
	}{
		{"force_open", "", breaker.Open, 503},
		{"force_closed", `,"registry":"default"`, breaker.Closed, 200},
		{"force_open", `,"ttl":"1h"`, breaker.Open, 503},
		{"auto", "", breaker.Closed, 200},
		{"force_open", "", breaker.Open, 503},
		{"reset", "", breaker.Closed, 200},
		{"force_open", "", breaker.Open, 503},
		{"remove", "", breaker.Closed, 200},
	} {
		if code, body := do(step.action, step.more); code != 200 || !strings.HasPrefix(body, "[") {
			t.Fatalf("%s = %d %s, want 200 and the paths", step.action, code, body)
		}
		r.want("/x", step.answer)
		if v := r.path(o); v.State != step.state {
			t.Fatalf("after %s: %v, want %v", step.action, v.State, step.state)
		}
	}
	if code, _ := do("force_open", `,"ttl":"50ms"`); code != 200 {
		t.Fatalf("force_open with a ttl = %d", code)
	}
	r.becomes(o, breaker.Closed)
	for _, bad := range []struct {
		method, body string
		code         int
		says         string
	}{
		{http.MethodPost, `{"path_id":"nobody","action":"reset"}`, 404, "CB.REGISTRY_PATH_NOT_FOUND: nobody"},
		{http.MethodPost, `{"path_id":"` + path + `","registry":"other","action":"reset"}`, 404, "CB.REGISTRY_PATH_NOT_FOUND"},
		{http.MethodPost, `{"action":"reset"}`, 400, "path_id: missing"},
		{http.MethodPost, `{"path_id":"x","action":"explode"}`, 400, "action: must be force_open"},
		{http.MethodPost, `{"path_id":"x","action":"reset","ttl":"1m"}`, 400, "ttl: only force_open"},
		{http.MethodPost, `{"path_id":"x","action":"force_open","ttl":"-1m"}`, 400, "ttl: must be a duration above 0"},
		{http.MethodPost, `{"path_id":"x","action":"force_open","until":"1m"}`, 400, "unknown field"},
		{http.MethodPost, `{"path_id":"x","action":"reset"}{}`, 400, "more than one value"},
		{http.MethodPost, `nonsense`, 400, "decoding the action"},
		{http.MethodDelete, ``, 405, "method not allowed"},
	} {
		if code, says := admin(t, bad.method, bad.body); code != bad.code || !strings.Contains(says, bad.says) {
			t.Errorf("%s %s = %d %q, want %d %q", bad.method, bad.body, code, says, bad.code, bad.says)
		}
	}
}

func TestEachTransitionIsOneEvent(t *testing.T) {
	o := newOrigin(t)
	seen := collectEvents(t)
	r := start(t, "events {\non relay-breaker.state.changed test_collect\n}", br(o, ""))
	trip(r, o, 3)
	// A reload in between must neither lose nor double any.
	r.load("events {\non relay-breaker.state.changed test_collect\n}", br(o, "")+"\nheader X-Edited elsewhere")
	o.status.Store(200)
	r.becomes(o, breaker.HalfOpen)
	r.want("/x", 200)
	r.want("/x", 200)
	r.eventually("three events", func() bool { return len(seen()) >= 3 })
	want := []string{"CLOSED>OPEN 3 failures in a row", "OPEN>HALF_OPEN the open time is over", "HALF_OPEN>CLOSED 2 trials in a row succeeded"}
	if got := seen(); strings.Join(got, "; ") != strings.Join(want, "; ") {
		t.Errorf("events %v, want %v", got, want)
	}
}

// ours counts the goroutines that code of this module started; an app has two.
func ours() int {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	n := 0
	for stack := range strings.SplitSeq(string(stacks), "\n\n") {
		if strings.Contains(stack, "caddybreaker.(*") || strings.Contains(stack, "breaker.(*HalfOpenProbe)") {
			if !strings.Contains(stack, "_test.go") {
				n++
			}
		}
	}
	return n
}

func grep(text, word string) string {
	var out []string
	for line := range strings.Lines(text) {
		if strings.Contains(line, word) {
			out = append(out, line)
		}
	}
	return strings.Join(out, "")
}
