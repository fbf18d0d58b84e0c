package caddybreaker

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/suaveplan/caddy-storage-mux/internal/reload"
	"github.com/suaveplan/caddy-storage-mux/muxcore/breaker"
)

func handlerSite(more string) string {
	return `relay_breaker app {
		failure_threshold 2
		success_threshold 1
		open_duration 200ms
		` + more + `
	}
	`
}

func TestTheHandlerGuardsAChainAsOnePath(t *testing.T) {
	r := start(t, "", handlerSite("")+`
	error /error 500
	respond /status "sick" 502
	test_panic /panic
	respond "well"`)
	for _, failing := range []struct {
		path   string
		status int // 0: the connection breaks
	}{{"/error", 500}, {"/status", 502}, {"/panic", 0}} {
		for range 2 {
			got := r.get(failing.path)
			if got.status != failing.status && (failing.status != 0 || got.err == nil) {
				t.Fatalf("GET %s = %d, %v", failing.path, got.status, got.err)
			}
		}
		r.whileOpen("app", failing.path, func() string {
			if got := r.get("/"); got.status != 503 || got.header.Get("Retry-After") != "1" {
				return fmt.Sprintf("GET / = %d, %v, Retry-After %q after %s; want 503 and 1", got.status, got.err, got.header.Get("Retry-After"), failing.path)
			}
			return ""
		})
		r.eventually("half-open", func() bool { return r.pathOf("app").State == breaker.HalfOpen })
		if got := r.want("/", 200); got.body != "well" || got.header.Get("Retry-After") != "" {
			t.Errorf("GET / = %q, Retry-After %q", got.body, got.header.Get("Retry-After"))
		}
		if v := r.pathOf("app"); v.State != breaker.Closed {
			t.Fatalf("after a good trial: %v, want CLOSED", v.State)
		}
	}
	for range 10 {
		r.want("/nothing/here", 200)
	}
}

func TestTheHandlerSeesNeitherClientsNorRefusalsFurtherOnAsFailures(t *testing.T) {
	o := newOrigin(t)
	r := start(t, "", handlerSite("")+long(br(o, "")))
	o.delay.Store(int64(2 * time.Second))
	for range 5 {
		r.cancelled(20 * time.Millisecond)
	}
	o.delay.Store(0)
	entryOf(t, r.path(o).PathID).breaker.ForceOpen(0)
	for range 5 {
		r.want("/x", 503)
	}
	if v := r.pathOf("app"); v.State != breaker.Closed || v.Failures != 0 {
		t.Errorf("%v with %d failures, want CLOSED with 0: %+v", v.State, v.Failures, v.Recent)
	}
}

func TestTheHandlerLetsTheErrorRouteAnswer(t *testing.T) {
	r := start(t, "", strings.Replace(handlerSite(""), "200ms", "1h", 1)+`
	error /error 500
	handle_errors 503 {
		respond "stale {http.relay_breaker.code}" 200
	}`)
	r.want("/error", 500)
	r.want("/error", 500)
	if got := r.want("/", 200); got.body != "stale CB.PATH_OPEN" {
		t.Errorf("body %q", got.body)
	}
}

func TestTheSlotGuardsAWholeProxy(t *testing.T) {
	o := newOrigin(t)
	r := start(t, "", "respond later")
	cfg := fmt.Sprintf(`{
		"admin": {"disabled": true, "config": {"persist": false}},
		"storage": {"module": "file_system", "root": %q},
		"logging": {"logs": {"default": {"writer": {"output": "discard"}}}},
		"apps": {"http": {"servers": {"s": {"listen": ["unix/%s"], "routes": [{"handle": [{
			"handler": "reverse_proxy",
			"upstreams": [{"dial": %q}],
			"circuit_breaker": {"type": "relay_breaker", "path_id": "pool", "failure_threshold": 2, "success_threshold": 1, "open_duration": "150ms", "slow_call": "1h"}
		}]}]}}}}
	}`, t.TempDir(), r.socket, o.addr())
	if err := reload.Load([]byte(cfg)); err != nil {
		t.Fatal(err)
	}
	r.client.CloseIdleConnections()
	o.status.Store(500)
	r.want("/x", 500)
	r.want("/x", 500)
	r.whileOpen("pool", "/x", func() string {
		hits := o.hits.Load()
		if got := r.get("/x"); got.status != 503 || o.hits.Load() != hits {
			return fmt.Sprintf("GET /x = %d, %v, with %d hits more; want 503 with 0", got.status, got.err, o.hits.Load()-hits)
		}
		return ""
	})
	o.status.Store(200)
	r.eventually("half-open", func() bool { return r.pathOf("pool").State == breaker.HalfOpen })
	r.want("/x", 200)
	if v := r.pathOf("pool"); v.State != breaker.Closed {
		t.Errorf("after a good trial: %v, want CLOSED", v.State)
	}
}

// What JSON can say and a Caddyfile cannot must be refused by name, too.
func TestJSONThatMakesNoSenseIsNamed(t *testing.T) {
	t.Setenv("NOT_UTF8", "a\xff")
	slot := func(more string) string {
		return `{"handler": "reverse_proxy", "upstreams": [{"dial": "a:80"}], "circuit_breaker": {"type": "relay_breaker"` + more + `}}`
	}
	transport := func(more string) string {
		return `{"handler": "reverse_proxy", "upstreams": [{"dial": "a:80"}], "transport": {"protocol": "relay_breaker"` + more + `}}`
	}
	handler := func(more string) string { return `{"handler": "relay_breaker"` + more + `}` }
	for _, row := range []struct{ handler, want string }{
		{slot(``), "path_id: missing or empty"},
		{slot(`,"path_id":"p","max_concurrent":3`), "max_concurrent: Caddy's circuit_breaker cannot limit calls"},
		{slot(`,"path_id":"p","probe_uri":"/x"`), "probe_uri: only a transport"},
		{slot(`,"path_id":"p","failure_threshold":-1`), "failure_threshold: must be positive, got -1"},
		{handler(``), "path_id: missing or empty"},
		{handler(`,"path_id":"p","registry":"a b"`), "registry 'a b': a name is 1 to 64"},
		{handler(`,"path_id":"p","nonsense":1`), `unknown field "nonsense"`},
		{transport(`,"failure_ratio":1.5`), "failure_ratio: must be above 0 and at most 1, got 1.5"},
		{transport(`,"open_duration":"-1s"`), "open_duration: must be positive, got -1s"},
		{transport(`,"open_duration":"1m","open_duration_max":"1s"`), "open_duration: max 1s is below the open time 1m0s"},
		{transport(`,"failure_status":["7xx"]`), "failure_status: must be a status"},
		{transport(`,"ignore_status":[""]`), "ignore_status: must be a status"},
		{transport(`,"open_duration":"x"`), `open_duration: must be a duration such as 30s, got "x"`},
		{handler(`,"path_id":"p","max_concurrent":"9"`), "max_concurrent: must be a whole number, got string"},
		{slot(`,"path_id":"p","failure_ratio":"5%"`), "failure_ratio: must be a number, got string"},
		{transport(`,"probe_only":"yes"`), "probe_only: must be true or false, got string"},
		{transport(`,"failure_threshold":3,"failure_ratio":0.5`), "failure_threshold and failure_ratio: a path opens by one of the two"},
		{transport(`,"min_available":-1`), "min_available: must be positive, got -1"},
		{transport(`,"probe_uri":"//host/x"`), "probe_uri: must be a path"},
		{transport(`,"probe_uri":"/x","probe_interval":"-1s"`), "probe_interval: must be positive"},
		{transport(`,"failure_ratio_window":"10s"`), "failure_ratio_window: needs failure_ratio"},
		{handler(`,"path_id":"p","failure_ratio_min_calls":20`), "failure_ratio_min_calls: needs failure_ratio"},
		{transport(`,"probe_interval":"1s"`), "probe_interval: needs probe_uri"},
		{transport(`,"probe_timeout":"1s"`), "probe_timeout: needs probe_uri"},
		{transport(`,"probe_only":true`), "probe_only: needs probe_uri"},
		{slot(`,"path_id":"{env.NOT_UTF8}"`), `path_id: must be UTF-8, got "a\xff"`},
		{handler(`,"path_id":"p","local_id":"{env.NOT_UTF8}"`), `local_id: must be UTF-8, got "a\xff"`},
		{transport(`,"transport":{"protocol":"relay_breaker"}`), "relay_breaker cannot wrap itself"},
		{transport(`,"transport":{"protocol":"pigeon"}`), "loading inner transport"},
	} {
		cfg := new(caddy.Config)
		text := fmt.Sprintf(`{"admin": {"disabled": true}, "storage": {"module": "file_system", "root": %q},
			"apps": {"http": {"servers": {"s": {"listen": [":0"], "routes": [{"handle": [%s]}]}}}}}`, t.TempDir(), row.handler)
		if err := json.Unmarshal([]byte(text), cfg); err != nil {
			t.Fatal(err)
		}
		if err := caddy.Validate(cfg); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v, want %q", row.handler, err, row.want)
		}
	}
	if got := views(); len(got) != 0 {
		t.Errorf("configs that were refused left %v behind", got)
	}
}
