package integration_test

import (
	"compress/gzip"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/suaveplan/caddy-storage-mux/integration/origin"
	"github.com/suaveplan/caddy-storage-mux/integration/rig"
)

// span is a span as a receiver got it.
type span struct {
	scope, name, trace, id, parent string
	attributes                     map[string]*commonpb.AnyValue
}

// str gives an attribute that is text.
func (s span) str(name string) string { return s.attributes[name].GetStringValue() }

// receiver takes traces by OTLP over HTTP with protobuf.
type receiver struct {
	*httptest.Server

	mu       sync.Mutex
	spans    []span
	trouble  []error
	requests int
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := new(receiver)
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if err := r.take(req); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/x-protobuf") // an empty message: all was taken
	}))
	t.Cleanup(r.Close)
	return r
}

// take reads one export. TracesData is on the wire what ExportTraceServiceRequest is.
func (r *receiver) take(req *http.Request) (err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests++
	defer func() {
		if err != nil {
			r.trouble = append(r.trouble, err)
		}
	}()
	if req.URL.Path != "/v1/traces" || req.Header.Get("Content-Type") != "application/x-protobuf" {
		return fmt.Errorf("%s %s with %s", req.Method, req.URL, req.Header.Get("Content-Type"))
	}
	body := io.Reader(req.Body)
	if req.Header.Get("Content-Encoding") == "gzip" {
		if body, err = gzip.NewReader(req.Body); err != nil {
			return err
		}
	}
	text, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	var data tracepb.TracesData
	if err := proto.Unmarshal(text, &data); err != nil {
		return err
	}
	for _, resource := range data.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				got := span{
					scope: scope.GetScope().GetName(), name: s.GetName(), trace: hex.EncodeToString(s.GetTraceId()),
					id: hex.EncodeToString(s.GetSpanId()), parent: hex.EncodeToString(s.GetParentSpanId()), attributes: make(map[string]*commonpb.AnyValue),
				}
				for _, a := range s.GetAttributes() {
					got.attributes[a.GetKey()] = a.GetValue()
				}
				r.spans = append(r.spans, got)
			}
		}
	}
	return nil
}

// of gives the spans of a trace by a name, in the order of their attempts.
func (r *receiver) of(trace, name string) (all []span) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.spans {
		if s.trace == trace && s.name == name {
			all = append(all, s)
		}
	}
	slices.SortStableFunc(all, func(a, b span) int {
		return int(a.attributes["mux.attempt.index"].GetIntValue() - b.attributes["mux.attempt.index"].GetIntValue())
	})
	return all
}

// otlp tells a Caddy to send its spans there, at once.
func otlp(r *receiver) []rig.Option {
	return []rig.Option{
		rig.Env("OTEL_EXPORTER_OTLP_ENDPOINT", r.URL), rig.Env("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
		rig.Env("OTEL_TRACES_EXPORTER", "otlp"), rig.Env("OTEL_BSP_SCHEDULE_DELAY", "50"), rig.Env("OTEL_TRACES_SAMPLER", "parentbased_always_on"),
	}
}

// A request that fails over, seen by a real receiver of traces: its operation and each attempt, one below the other, in the trace of the client.
func TestSpansReachAReceiverBelowThatOfTheRequest(t *testing.T) {
	t.Parallel()
	traces, f1, f2 := newReceiver(t), origin.New(t), origin.New(t)
	f2.Put("/x", origin.Object{Body: []byte("x")})
	f1.Script(origin.Faults{Status: http.StatusInternalServerError})
	c := rig.Start(t, `
		tracing {
			span request
		}
		storage_mux failover {
			name site
			backend f1 http {$F1}
			backend f2 http {$F2}
			writable
		}`, append(otlp(traces), rig.Env("F1", f1.URL()), rig.Env("F2", f2.URL()))...)

	const client, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	sent := []string{"Traceparent", "00-" + client + "-" + parent + "-01"}
	wantBody(t, "GET", c.Get("/x", sent...), http.StatusOK, []byte("x"))
	var request, get span
	var attempts []span
	c.Eventually(soon, "the arrival of the spans", func() error {
		all := traces.of(client, "request")
		attempts = traces.of(client, "storage-mux.attempt")
		gets := traces.of(client, "storage-mux.get")
		if len(all) != 1 || len(gets) != 1 || len(attempts) != 2 {
			traces.mu.Lock()
			defer traces.mu.Unlock()
			return fmt.Errorf("%d of the request, %d of the operation, %d attempts; %d exports, trouble: %v", len(all), len(gets), len(attempts), traces.requests, traces.trouble)
		}
		request, get = all[0], gets[0]
		return nil
	})
	if request.parent != parent {
		t.Errorf("the span of the request is a child of %q, want that of the client, %q", request.parent, parent)
	}
	if get.parent != request.id {
		t.Errorf("the operation is a child of %q, want that of the request, %q", get.parent, request.id)
	}
	if got := fmt.Sprint(get.str("mux.mode"), " ", get.str("mux.key"), " ", get.str("mux.policy")); got != "failover x on_miss stop" {
		t.Errorf("attributes of the operation: %s", got)
	}
	for i, want := range []struct{ backend, outcome string }{{"f1", "transient"}, {"f2", "ok"}} {
		a := attempts[i]
		if a.parent != get.id {
			t.Errorf("attempt %d is a child of %q, want the operation, %q", i, a.parent, get.id)
		}
		if a.str("mux.backend.name") != want.backend || a.str("mux.outcome") != want.outcome || a.str("mux.mode") != "failover" {
			t.Errorf("attempt %d: %v", i, a.attributes)
		}
		if got := a.attributes["mux.latency.ms"].GetDoubleValue(); got <= 0 {
			t.Errorf("attempt %d took %v ms", i, a.attributes["mux.latency.ms"])
		}
		if _, ok := a.attributes["mux.attempt.index"].GetValue().(*commonpb.AnyValue_IntValue); !ok {
			t.Errorf("attempt %d has no index: %v", i, a.attributes)
		}
		if !strings.Contains(a.scope, "caddy-storage-mux") {
			t.Errorf("attempt %d is of the scope %q", i, a.scope)
		}
	}
	if first, second := attempts[0].attributes["mux.attempt.index"].GetIntValue(), attempts[1].attributes["mux.attempt.index"].GetIntValue(); second != first+1 {
		t.Errorf("attempts %d and %d", first, second)
	}

	// Each backend got the trace, below its own attempt.
	for i, f := range []*origin.Origin{f1, f2} {
		want := "00-" + client + "-" + attempts[i].id + "-01"
		if got := f.Log()[len(f.Log())-1].Header.Get("Traceparent"); got != want {
			t.Errorf("traceparent at f%d = %q, want %q", i+1, got, want)
		}
	}
}

// Each operation has a span of its own name, and a write to mirrors an attempt for each.
func TestEachOperationHasASpan(t *testing.T) {
	t.Parallel()
	traces := newReceiver(t)
	c := rig.Start(t, `
		tracing
		storage_mux mirror {
			name site
			backend a memory
			backend b memory
			writable
			list
		}`, otlp(traces)...)
	for i, op := range []struct{ name, method, path, body string }{
		{"put", http.MethodPut, "/x", "x"}, {"stat", http.MethodHead, "/x", ""}, {"list", http.MethodGet, "/?list", ""}, {"delete", http.MethodDelete, "/x", ""},
	} {
		trace := fmt.Sprintf("%032x", i+1)
		c.Do(rig.Request{Method: op.method, Path: op.path, Body: strings.NewReader(op.body), Header: []string{"Traceparent", "00-" + trace + "-00f067aa0ba902b7-01"}})
		c.Eventually(soon, "the span of "+op.name, func() error {
			spans, attempts := traces.of(trace, "storage-mux."+op.name), traces.of(trace, "storage-mux.attempt")
			if len(spans) != 1 || len(attempts) == 0 || (op.name == "put" || op.name == "delete") && len(attempts) < 2 {
				return fmt.Errorf("%d spans, %d attempts", len(spans), len(attempts))
			}
			return nil
		})
	}
}

// A client that is not to be traced is not: nothing of its requests is sent.
func TestRequestsThatAreNotSampledHaveNoSpans(t *testing.T) {
	t.Parallel()
	traces, f := newReceiver(t), origin.New(t)
	f.Put("/x", origin.Object{Body: []byte("x")})
	c := rig.Start(t, `
		tracing
		storage_mux {
			name site
			backend f http {$F1}
		}`, append(otlp(traces), rig.Env("F1", f.URL()))...)
	const quiet, loud = "11111111111111111111111111111111", "22222222222222222222222222222222"
	c.Get("/x", "Traceparent", "00-"+quiet+"-00f067aa0ba902b7-00")
	c.Get("/x", "Traceparent", "00-"+loud+"-00f067aa0ba902b7-01")
	c.Eventually(soon, "the span of the second request", func() error {
		if n := len(traces.of(loud, "storage-mux.get")); n != 1 {
			return fmt.Errorf("%d spans", n)
		}
		return nil
	})
	if n := len(traces.of(quiet, "storage-mux.get")) + len(traces.of(quiet, "storage-mux.attempt")); n > 0 {
		t.Errorf("%d spans of a request that is not sampled", n)
	}
}
