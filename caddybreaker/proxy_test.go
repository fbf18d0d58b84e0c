package caddybreaker

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore/breaker"
)

func TestAConnectionThatFailsIsAFailure(t *testing.T) {
	o := newOrigin(t)
	addr := o.addr()
	r := start(t, "", long(br(o, "")))
	o.Close()
	for range 3 {
		r.want("/x", 502)
	}
	r.want("/x", 503)
	if v := r.pathOf(addr); v.State != breaker.Open || !strings.Contains(v.Recent[0].Cause, "refused") {
		t.Errorf("%v, %+v; want OPEN and the cause", v.State, v.Recent)
	}
}

func TestThePolicyMovesOnAndTellsWhenToComeBack(t *testing.T) {
	a, b := newOrigin(t), newOrigin(t)
	r := start(t, "", fmt.Sprintf(`reverse_proxy %s %s {
		lb_policy relay_breaker first
		transport relay_breaker {
			failure_threshold 2
			open_duration 1m
		}
	}`, a.addr(), b.addr()))
	trip(r, a, 2)
	for range 20 {
		r.want("/x", 200) // by b
	}
	trip(r, b, 2)
	r.wantRetryAfter(*r.path(a).NextTrialAt)
}

func TestARefusalIsRetriedElsewhereWithItsBodyUntouched(t *testing.T) {
	a, b := newOrigin(t), newOrigin(t)
	r := start(t, "", fmt.Sprintf(`reverse_proxy %s %s {
		lb_policy round_robin
		lb_retries 1
		transport relay_breaker {
			failure_threshold 1
			open_duration 1m
		}
	}`, a.addr(), b.addr()))
	a.status.Store(500)
	for range 2 {
		r.get("/x")
	}
	r.becomes(a, breaker.Open)
	for i := range 10 {
		body := fmt.Sprintf("body %d", i)
		got := r.do(t.Context(), http.MethodPost, "/x", strings.NewReader(body))
		if got.status != 200 || *b.gotBody.Load() != body {
			t.Fatalf("POST = %d, upstream got %q; want 200 and %q", got.status, *b.gotBody.Load(), body)
		}
	}
}

func TestRetryAfterIsTakenBackWhenALaterAttemptFindsAPath(t *testing.T) {
	o := newOrigin(t)
	r := start(t, "", fmt.Sprintf(`reverse_proxy %s {
		lb_policy relay_breaker
		lb_try_duration 1m
		lb_try_interval 20ms
		transport relay_breaker {
			failure_threshold 1
			success_threshold 1
			open_duration 200ms
		}
	}`, o.addr()))
	trip(r, o, 1)
	o.status.Store(200)
	got := r.want("/x", 200)
	if after, ok := got.header["Retry-After"]; ok {
		t.Errorf("Retry-After = %v on a 200", after)
	}
}

// While half-open many requests see the same free place; with another upstream
// well, none of them may be refused.
func TestAHalfOpenUpstreamCostsNobodyAnAnswer(t *testing.T) {
	a, b := newOrigin(t), newOrigin(t)
	r := start(t, "", fmt.Sprintf(`reverse_proxy %s %s {
		lb_policy relay_breaker round_robin
		transport relay_breaker {
			failure_threshold 1
			half_open_max_calls 1
			open_duration 100ms
		}
	}`, a.addr(), b.addr()))
	a.status.Store(500)
	r.get("/x")
	r.get("/x")
	r.becomes(a, breaker.HalfOpen)
	a.status.Store(200)
	a.pause()
	results := make(chan int, 100)
	for range 100 {
		go func() { results <- r.get("/x").status }()
	}
	for range 99 {
		if got := <-results; got != 200 {
			t.Errorf("answer %d, want 200", got)
		}
	}
	a.release()
	if got := <-results; got != 200 {
		t.Errorf("the trial = %d, want 200", got)
	}
}

func TestAStaleSiteInsteadOfA503(t *testing.T) {
	o := newOrigin(t)
	r := start(t, "", long(br(o, ""))+`
	handle_errors 503 {
		respond "stale {http.relay_breaker.state} {http.relay_breaker.code} {http.relay_breaker.path}" 200
	}`)
	trip(r, o, 3)
	got := r.want("/x", 200)
	v := r.path(o)
	if want := "stale OPEN CB.PATH_OPEN " + v.PathID; got.body != want {
		t.Errorf("body %q, want %q", got.body, want)
	}
}

func TestCaddysOwnHealthChecksPassUntouched(t *testing.T) {
	o := newOrigin(t)
	r := start(t, "", fmt.Sprintf(`reverse_proxy %s {
		health_uri /health
		health_interval 10ms
		transport relay_breaker {
			failure_threshold 1
			open_duration 1m
		}
	}`, o.addr()))
	o.status.Store(500)
	before := o.hits.Load()
	r.eventually("health checks", func() bool { return o.hits.Load() > before+5 })
	e := entryOf(t, r.path(o).PathID)
	if v := r.path(o); v.State != breaker.Closed || e.calls[breaker.Failure].Load() != 0 {
		t.Errorf("after failed health checks: %v, %d failures; want CLOSED, 0", v.State, e.calls[breaker.Failure].Load())
	}
	entryOf(t, r.path(o).PathID).breaker.ForceOpen(0)
	before = o.hits.Load()
	r.eventually("health checks while open", func() bool { return o.hits.Load() > before+5 })
}

// echoUpgraded takes the connection over, and sends back what comes until the other side has finished writing.
func echoUpgraded(w http.ResponseWriter) {
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	_ = rw.Flush()
	_, _ = io.Copy(conn, rw)
}

func TestAnUpgradedConnectionPassesBothWays(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { echoUpgraded(w) }))
	defer upstream.Close()
	addr := upstream.Listener.Addr().String()
	r := start(t, "", fmt.Sprintf("reverse_proxy %s {\n transport relay_breaker {\n max_concurrent 3\n}\n}", addr))
	for range 3 { // side by side
		conn, err := net.Dial("unix", r.socket)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		in := bufio.NewReader(conn)
		res, err := http.ReadResponse(in, nil)
		if err != nil || res.StatusCode != 101 {
			t.Fatalf("upgrade = %v, %v; want 101", res, err)
		}
		fmt.Fprint(conn, "hello")
		if err := conn.(*net.UnixConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if echo, err := io.ReadAll(in); string(echo) != "hello" {
			t.Errorf("echo after half-close = %q, %v; want hello", echo, err)
		}
	}
	e := entryOf(t, r.pathOf(addr).PathID)
	if n := e.calls[breaker.Success].Load(); n != 3 {
		t.Errorf("%d successes, want 3", n)
	}
}

func TestHTTPSAndH2CUpstreamsWorkAsWithoutTheWrapper(t *testing.T) {
	proto := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "X-End")
		fmt.Fprintf(w, "%s %s tls=%v", r.Proto, r.Host, r.TLS != nil)
		w.Header().Set("X-End", "yes")
	})
	secure := httptest.NewUnstartedServer(proto)
	secure.EnableHTTP2 = true
	secure.StartTLS()
	defer secure.Close()
	clear := httptest.NewUnstartedServer(proto)
	clear.Config.Protocols = new(http.Protocols)
	clear.Config.Protocols.SetUnencryptedHTTP2(true)
	clear.Start()
	defer clear.Close()

	secureAddr, clearAddr := secure.Listener.Addr().String(), clear.Listener.Addr().String()
	inner := "transport http {\n tls_insecure_skip_verify\n}"
	r := start(t, "", fmt.Sprintf(`
	handle /plain/* {
		reverse_proxy https://%[1]s {
			%[3]s
		}
	}
	handle /tls/* {
		reverse_proxy https://%[1]s {
			transport relay_breaker {
				%[3]s
			}
		}
	}
	handle /h2c/* {
		reverse_proxy h2c://%[2]s {
			transport relay_breaker
		}
	}`, secureAddr, clearAddr, inner))
	without, with := r.want("/plain/", 200), r.want("/tls/", 200)
	if with.body != without.body || !strings.Contains(with.body, "HTTP/2.0 "+secureAddr+" tls=true") {
		t.Errorf("https: with the wrapper %q, without %q", with.body, without.body)
	}
	if got := r.want("/h2c/", 200); !strings.HasPrefix(got.body, "HTTP/2.0") || !strings.HasSuffix(got.body, "tls=false") {
		t.Errorf("h2c: %q", got.body)
	}
}

func TestWeightsKeepTheirUpstreamsWhenOneIsLeftOut(t *testing.T) {
	a, b, c := newOrigin(t), newOrigin(t), newOrigin(t)
	r := start(t, "", fmt.Sprintf(`reverse_proxy %s %s %s {
		lb_policy relay_breaker weighted_round_robin 1 0 3
		transport relay_breaker {
			failure_threshold 1
			open_duration 1m
		}
	}`, a.addr(), b.addr(), c.addr()))
	for range 40 {
		r.want("/x", 200)
	}
	if a.hits.Load() != 10 || b.hits.Load() != 0 || c.hits.Load() != 30 {
		t.Errorf("hits %d %d %d, want 10 0 30", a.hits.Load(), b.hits.Load(), c.hits.Load())
	}
	entryOf(t, r.path(a).PathID).breaker.ForceOpen(0)
	for range 20 {
		r.want("/x", 200)
	}
	if a.hits.Load() != 10 || b.hits.Load() != 0 || c.hits.Load() != 50 {
		t.Errorf("with the first left out: hits %d %d %d, want 10 0 50", a.hits.Load(), b.hits.Load(), c.hits.Load())
	}
	entryOf(t, r.path(c).PathID).breaker.ForceOpen(0)
	r.want("/x", 503) // the one of weight 0 is not asked
}

func TestAnUpstreamsRetryAfterSetsTheOpenTime(t *testing.T) {
	o := newOrigin(t)
	r := start(t, "", long(br(o, "")))
	o.status.Store(503)
	o.header.Store(&http.Header{"Retry-After": {"7200"}})
	for range 3 {
		r.want("/x", 503)
	}
	v := r.path(o)
	if v.NextTrialAt == nil || v.NextTrialAt.Sub(v.Since).Round(time.Second) != 2*time.Hour {
		t.Errorf("next trial at %v after %v, want 2h later; %s", v.NextTrialAt, v.Since, v.Reason)
	}
}

// An outsider's 429 with a Retry-After of 0, and one of more seconds than fit,
// were successes.
func TestAnyValidRetryAfterMakesA429AFailure(t *testing.T) {
	for value, want := range map[string]struct {
		state breaker.State
		open  time.Duration
	}{
		"0":                             {breaker.Open, time.Minute},
		"99999999999999999999":          {breaker.Open, 2 * time.Minute},
		"Mon, 02 Jan 2006 15:04:05 GMT": {breaker.Open, time.Minute},
		"soon":                          {breaker.Closed, 0},
	} {
		t.Run(value, func(t *testing.T) {
			o := newOrigin(t)
			r := start(t, "", fmt.Sprintf("reverse_proxy %s {\n transport relay_breaker {\n failure_threshold 1\n open_duration 1m 2m\n}\n}", o.addr()))
			o.status.Store(429)
			o.header.Store(&http.Header{"Retry-After": {value}})
			r.want("/x", 429)
			v := r.path(o)
			if v.State != want.state {
				t.Fatalf("%v, want %v", v.State, want.state)
			}
			if v.NextTrialAt != nil && v.NextTrialAt.Sub(v.Since).Round(time.Second) != want.open {
				t.Errorf("open for %s, want %s", v.NextTrialAt.Sub(v.Since), want.open)
			}
		})
	}
}

func TestUpstreamsOverUnixSocketsHaveAPathEach(t *testing.T) {
	socket := t.TempDir() + "/u"
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	upstream := &httptest.Server{Listener: listener, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(500)
	})}}
	upstream.Start()
	defer upstream.Close()
	r := start(t, "", fmt.Sprintf("reverse_proxy unix/%s {\n lb_policy relay_breaker\n transport relay_breaker {\n failure_threshold 1\n open_duration 1h\n}\n}", socket))
	r.want("/x", 500)
	v := r.pathOf("unix/" + socket) // policy and transport must mean the same path
	if v.State != breaker.Open {
		t.Fatalf("%v, want OPEN", v.State)
	}
	r.wantRetryAfter(*v.NextTrialAt)
}
