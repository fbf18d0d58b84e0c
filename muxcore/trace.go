package muxcore

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
)

// Names of spans and of their attributes.
const (
	scopeName   = "github.com/suaveplan/caddy-storage-mux/muxcore"
	spanPrefix  = "storage-mux."
	spanAttempt = spanPrefix + "attempt"

	attrMode    = attribute.Key("mux.mode")
	attrKey     = attribute.Key("mux.key")
	attrPolicy  = attribute.Key("mux.policy")
	attrBackend = attribute.Key("mux.backend.name")
	attrIndex   = attribute.Key("mux.attempt.index")
	attrOutcome = attribute.Key("mux.outcome")
	attrLatency = attribute.Key("mux.latency.ms")
)

// startSpan begins the span of an operation as a child of the one in ctx, from its tracer provider. Where nothing
// records, nothing is made, and the span is nil.
func (m *Mux) startSpan(ctx context.Context, op Op, key string) (context.Context, trace.Span) {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		return ctx, nil
	}
	return parent.TracerProvider().Tracer(scopeName).Start(ctx, spanPrefix+op.String(),
		trace.WithAttributes(attrMode.String(string(m.set.Mode)), attrKey.String(key), attrPolicy.String(m.policy())))
}

// policy is the rule beyond the mode that decides what a miss means.
func (m *Mux) policy() string {
	if m.set.OnMissNext {
		return "on_miss next"
	}
	return "on_miss stop"
}

func endSpan(span trace.Span) {
	if span != nil {
		span.End()
	}
}

func (m *Mux) startAttempt(ctx context.Context, b *backend, index int) (context.Context, trace.Span) {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		return ctx, nil
	}
	return parent.TracerProvider().Tracer(scopeName).Start(ctx, spanAttempt,
		trace.WithAttributes(attrBackend.String(b.Name), attrIndex.Int(index), attrMode.String(string(m.set.Mode))))
}

func endAttempt(span trace.Span, class Class, took time.Duration) {
	if span == nil {
		return
	}
	span.SetAttributes(attrOutcome.String(class.Outcome()), attrLatency.Float64(milliseconds(took)))
	span.End()
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
