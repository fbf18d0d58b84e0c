package caddymux

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyevents"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

func init() { caddy.RegisterModule(new(eventSink)) }

// eventSink is a subscriber of the events app.
type eventSink struct{}

var sunk struct {
	sync.Mutex
	events []string
}

func (*eventSink) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "events.handlers.mux_test_sink", New: func() caddy.Module { return new(eventSink) }}
}

func (*eventSink) Handle(_ context.Context, e caddy.Event) error {
	if !strings.HasPrefix(e.Name(), "storage-mux.") {
		return nil
	}
	data, err := json.Marshal(e.Data)
	if err != nil {
		return err
	}
	sunk.Lock()
	defer sunk.Unlock()
	sunk.events = append(sunk.events, e.Name()+" "+string(data))
	return nil
}

var _ caddyevents.Handler = (*eventSink)(nil)

func sunkEvents() []string {
	sunk.Lock()
	defer sunk.Unlock()
	return append([]string(nil), sunk.events...)
}

// forgetEvents makes sunkEvents begin anew.
func forgetEvents() {
	sunk.Lock()
	defer sunk.Unlock()
	sunk.events = nil
}

// loadJSON loads a site with changes to its JSON.
func (c *client) loadJSON(site string, change func(config map[string]any)) {
	c.t.Helper()
	text, err := adapt(c.t, c.config(site))
	if err != nil {
		c.t.Fatal(err)
	}
	var config map[string]any
	if err := json.Unmarshal(text, &config); err != nil {
		c.t.Fatal(err)
	}
	change(config)
	if text, err = json.Marshal(config); err != nil {
		c.t.Fatal(err)
	}
	if err := c.give(text); err != nil {
		c.t.Fatal(err)
	}
}

func TestChangesAreToldToTheEventsAppAndTheLogOnce(t *testing.T) {
	f := scripted(t, "told")
	forgetEvents()
	c := idle(t)
	log := filepath.Join(c.dir, "log")
	site := "storage_mux {\n name t\n cooldown 1ms\n backend eu mux {\n cooldown 1ms\n backend f scripted told\n backend m memory\n }\n}"
	c.loadJSON(site, func(config map[string]any) {
		config["logging"] = map[string]any{"logs": map[string]any{"default": map[string]any{
			"writer": map[string]any{"output": "file", "filename": log}, "level": "INFO", "encoder": map[string]any{"format": "json"},
		}}}
		config["apps"].(map[string]any)["events"] = map[string]any{"subscriptions": []any{map[string]any{
			"handlers": []any{map[string]any{"handler": "mux_test_sink"}},
		}}}
	})
	f.Break(&muxcore.Error{Code: muxcore.CodeUnavailable, Key: "private-key"})
	for range 5 {
		c.expect(http.StatusNotFound, "GET", "/private-key", "")
	}
	f.Mend()
	c.eventually("f has recovered", func() bool {
		c.do("GET", "/private-key", "")
		return strings.Contains(strings.Join(sunkEvents(), "\n"), "storage-mux.backend.recovered")
	})
	var downs, recoveries, failovers int
	for _, e := range sunkEvents() {
		switch {
		case strings.HasPrefix(e, `storage-mux.backend.down {"cause":"`) && strings.Contains(e, `"code":"STORAGE.UNAVAILABLE","name":"f","tree":"t.eu"`):
			downs++
		case strings.HasPrefix(e, `storage-mux.backend.recovered {"downForMs":`) && strings.Contains(e, `"name":"f","tree":"t.eu"`):
			recoveries++
		case strings.HasPrefix(e, `storage-mux.failover {"attemptIndex":1,"cause":"`) && strings.Contains(e, `"from":"f","to":"m"`):
			failovers++
		default:
			t.Errorf("event %s", e)
		}
	}
	if downs != 1 || recoveries != 1 || failovers == 0 {
		t.Errorf("%d down, %d recovered, %d failovers, want 1, 1 and some", downs, recoveries, failovers)
	}
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), `"msg":"backend down"`); n != 1 {
		t.Errorf("%d lines of \"backend down\", want 1:\n%s", n, text)
	}
	if !strings.Contains(string(text), `"msg":"backend recovered"`) || strings.Contains(string(text), "private-key") {
		t.Errorf("log:\n%s", text)
	}
}

// Case 41: after a reload the same series have the same values.
func TestMetricsAreTheSameAfterAReload(t *testing.T) {
	const tree = "storage_mux {\n name t\n writable\n backend eu mux {\n backend m memory\n }\n backend gone file {{dir}}/gone\n}\n"
	c := run(t, tree)
	c.expect(http.StatusCreated, "PUT", "/x", "body")
	for range 3 {
		c.expect(http.StatusOK, "GET", "/x", "")
	}
	c.expect(http.StatusNotFound, "GET", "/missing", "")
	before := gathered(t)
	for series, want := range map[string]float64{
		"requests_total{backend=eu,op=get,outcome=ok,tree=t}":         3,
		"requests_total{backend=eu.m,op=get,outcome=ok,tree=t}":       3,
		"requests_total{backend=eu.m,op=get,outcome=semantic,tree=t}": 1,
		"requests_total{backend=eu.m,op=put,outcome=ok,tree=t}":       1,
		"request_duration_seconds{backend=eu.m,op=get,tree=t}":        4,
		"backend_up{backend=eu,tree=t}":                               1,
		"backend_up{backend=eu.m,tree=t}":                             1,
		"backend_up{backend=gone,tree=t}":                             1,
		"in_flight{backend=eu.m,tree=t}":                              0,
		"failovers_total{tree=t}":                                     0,
		"fanout_partials_total{tree=t}":                               0,
		"resumes_total{tree=t}":                                       0,
	} {
		if got, ok := before[series]; !ok || got != want {
			t.Errorf("%s = %v (%v), want %v", series, got, ok, want)
		}
	}
	c.load("header X-Other config\n" + tree)
	if after := gathered(t); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("before the reload %v\nafter it %v", before, after)
	}
	// Case 95: nobody outside can make series.
	for i := range 50 {
		c.do("GET", fmt.Sprintf("/random-%d", i), "", "Host", fmt.Sprintf("h%d", i))
		c.do(fmt.Sprintf("M%d", i), "/x", "")
	}
	if after := gathered(t); len(after) != len(before) {
		t.Errorf("%d series, were %d", len(after), len(before))
	}
}

// gathered reads our series from the registry of the running config.
func gathered(t *testing.T) map[string]float64 {
	t.Helper()
	ctx := caddy.ActiveContext()
	families, err := ctx.GetMetricsRegistry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	series := map[string]float64{}
	for _, family := range families {
		name, ours := strings.CutPrefix(family.GetName(), "caddy_storage_mux_")
		if !ours {
			continue
		}
		for _, m := range family.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			series[name+"{"+strings.Join(labels, ",")+"}"] = valueOf(m)
		}
	}
	return series
}

func valueOf(m *dto.Metric) float64 {
	switch {
	case m.GetCounter() != nil:
		return m.GetCounter().GetValue()
	case m.GetGauge() != nil:
		return m.GetGauge().GetValue()
	}
	return float64(m.GetHistogram().GetSampleCount())
}

func TestTheCollectorKeepsToWhatItDescribes(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(&collector{&App{}}); err != nil {
		t.Fatal(err)
	}
	if got, err := registry.Gather(); err != nil || len(got) != 0 {
		t.Errorf("without trees: %v, %v", got, err)
	}
}

func TestTheAdminAPIShowsTrees(t *testing.T) {
	c := run(t, "route {\nstorage_mux {\n name b\n writable\n backend eu mux weighted {\n backend m memory {\n weight 3\n }\n }\n}\nstorage_mux {\n name a\n backend m memory\n}\n}")
	c.expect(http.StatusNotFound, "GET", "/x", "")
	ask := func(method, target string) (int, string) {
		w := httptest.NewRecorder()
		err := (&adminAPI{}).serve(w, httptest.NewRequestWithContext(t.Context(), method, target, nil))
		if err != nil {
			return err.(caddy.APIError).HTTPStatus, err.Error() //nolint:errorlint // Caddy looks at the outermost as well
		}
		return w.Code, w.Body.String()
	}
	status, body := ask("GET", "/storage_mux")
	var all []treeStats
	if err := json.Unmarshal([]byte(body), &all); status != 200 || err != nil || len(all) != 2 || all[0].Name != "a" || all[1].Name != "b" {
		t.Fatalf("all = %d %s", status, body)
	}
	status, body = ask("GET", "/storage_mux/b")
	var one treeStats
	if err := json.Unmarshal([]byte(body), &one); status != 200 || err != nil {
		t.Fatalf("b = %d %s", status, body)
	}
	inner := one.Backends[0].Mux
	if one.Name != "b" || one.Mode != muxcore.Failover || inner == nil || inner.Mode != muxcore.Weighted || inner.Backends[0].Weight != 3 || inner.Backends[0].Misses != 1 {
		t.Errorf("b = %s", body)
	}
	if status, _ = ask("GET", "/storage_mux/none"); status != http.StatusNotFound {
		t.Errorf("unknown tree = %d, want 404", status)
	}
	if status, _ = ask("POST", "/storage_mux"); status != http.StatusMethodNotAllowed {
		t.Errorf("POST = %d, want 405", status)
	}
	c.load(`respond "no tree"`)
	if status, body = ask("GET", "/storage_mux"); status != 200 || strings.TrimSpace(body) != "[]" {
		t.Errorf("without trees = %d %s, want []", status, body)
	}
}
