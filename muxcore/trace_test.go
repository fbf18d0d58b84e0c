package muxcore_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// Spans have the names and attributes of the seeds, as children of the caller's span.
func TestSpans(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))
	ctx, request := provider.Tracer("test").Start(t.Context(), "request")
	m, _ := two(t, muxcore.Settings{}, fails)
	if _, _, err := read(ctx, m, "k", muxcore.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	request.End()
	byName := make(map[string][]sdktrace.ReadOnlySpan)
	for _, s := range recorder.Ended() {
		byName[s.Name()] = append(byName[s.Name()], s)
	}
	op, attempts := byName["storage-mux.get"], byName["storage-mux.attempt"]
	if len(op) != 1 || len(attempts) != 2 {
		t.Fatalf("spans = %v", byName)
	}
	if op[0].Parent().SpanID() != request.SpanContext().SpanID() {
		t.Error("the operation is no child of the request")
	}
	wantAttributes(t, op[0], "mux.mode=failover", "mux.key=k", "mux.policy=on_miss stop")
	for i, want := range []string{"transient", "ok"} {
		if attempts[i].Parent().SpanID() != op[0].SpanContext().SpanID() {
			t.Error("an attempt is no child of the operation")
		}
		wantAttributes(t, attempts[i], fmt.Sprint("mux.backend.name=", string("ab"[i])), fmt.Sprint("mux.attempt.index=", i), "mux.mode=failover", "mux.outcome="+want)
		if !slices.ContainsFunc(attempts[i].Attributes(), func(kv attribute.KeyValue) bool { return kv.Key == "mux.latency.ms" }) {
			t.Error("an attempt has no latency")
		}
	}
}

func wantAttributes(tb testing.TB, s sdktrace.ReadOnlySpan, want ...string) {
	tb.Helper()
	var got []string
	for _, kv := range s.Attributes() {
		got = append(got, string(kv.Key)+"="+kv.Value.String())
	}
	for _, w := range want {
		if !slices.Contains(got, w) {
			tb.Errorf("span %s has %v, want %s", s.Name(), got, w)
		}
	}
}

// Where nothing records, nothing is made.
func TestNoSpansWithoutARecorder(t *testing.T) {
	m, _ := two(t, muxcore.Settings{}, nil)
	withSpan := testing.AllocsPerRun(100, func() { _, _ = m.Stat(context.Background(), "k", muxcore.Conditions{}) })
	if withSpan > 8 {
		t.Errorf("%v allocations for a Stat that nobody traces", withSpan)
	}
}
