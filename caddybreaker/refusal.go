package caddybreaker

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/suaveplan/caddy-storage-mux/muxcore/breaker"
)

// Placeholders, for later handlers, error routes and logs; spans use the same
// names without "http.".
const (
	placeholderPath  = "http.relay_breaker.path"
	placeholderState = "http.relay_breaker.state"
	placeholderCode  = "http.relay_breaker.code"
)

// retryAfterVar remembers that a Retry-After on the response is ours.
const retryAfterVar = "relay_breaker.retry_after"

// shortRetry is what a client is told to wait where no time is known: a trial is
// on its way, or there are too many calls.
const shortRetry = time.Second

// refusal is a call that was not made. To the reverse proxy it is a dial error,
// which is always safe to retry; to the client it is a 503.
type refusal struct{ cause *breaker.Error }

func (r refusal) Error() string { return r.cause.Error() }

// Unwrap lets errors.As find all that a refusal is.
func (r refusal) Unwrap() []error {
	return []error{
		r.cause,
		reverseproxy.NewDialError(r.cause),
		caddyhttp.HandlerError{Err: r.cause, StatusCode: http.StatusServiceUnavailable},
	}
}

// refused makes the error of a refusal, and leaves its code for others to see.
func refused(ctx context.Context, g *guard, err error) error {
	cause, ok := errors.AsType[*breaker.Error](err)
	if !ok {
		return err
	}
	note(ctx, g, string(cause.Code))
	return refusal{cause: cause}
}

// boxedStates are the states ready for a placeholder, which must not allocate.
var boxedStates = [...]any{
	breaker.Closed:   breaker.Closed.String(),
	breaker.Open:     breaker.Open.String(),
	breaker.HalfOpen: breaker.HalfOpen.String(),
}

// boxedNothing is the value of a placeholder of which there is nothing to say.
// It must have one: a header would show the name of one that is not set.
var boxedNothing any = ""

// noteNobody leaves the placeholders empty: no path was asked.
func noteNobody(ctx context.Context) { setPlaceholders(ctx, boxedNothing, boxedNothing, boxedNothing) }

func setPlaceholders(ctx context.Context, path, state, code any) {
	if repl, ok := ctx.Value(caddy.ReplacerCtxKey).(*caddy.Replacer); ok {
		repl.Set(placeholderPath, path)
		repl.Set(placeholderState, state)
		repl.Set(placeholderCode, code)
	}
}

// note leaves the path, its state and the code of a refusal ("": admitted) in
// the placeholders and on the span of the request.
func note(ctx context.Context, g *guard, code string) {
	state, boxedCode := boxedStates[g.entry.breaker.State()], boxedNothing
	if code != "" {
		boxedCode = code
	}
	setPlaceholders(ctx, g.boxedID, state, boxedCode)
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		span.SetAttributes(
			attribute.String("relay_breaker.path", g.entry.key.path),
			attribute.String("relay_breaker.state", state.(string)),
		)
		if code != "" {
			span.SetAttributes(attribute.String("relay_breaker.code", code))
		}
	}
}

// setRetryAfter tells the client when the first of the paths is due again.
func setRetryAfter(w http.ResponseWriter, r *http.Request, wait time.Duration) {
	if wait <= 0 {
		wait = shortRetry
	}
	seconds := (wait + time.Second - 1) / time.Second
	w.Header().Set("Retry-After", strconv.FormatInt(int64(seconds), 10))
	caddyhttp.SetVar(r.Context(), retryAfterVar, true)
}

// takeBackRetryAfter undoes setRetryAfter once a path was found after all.
func takeBackRetryAfter(w http.ResponseWriter, vars map[string]any) {
	if vars[retryAfterVar] != nil {
		w.Header().Del("Retry-After")
		delete(vars, retryAfterVar)
	}
}

// varsOf returns the variables of a request; nil for one that is not served. To
// find them takes a walk through all that a context holds, so they are looked up
// once.
func varsOf(ctx context.Context) map[string]any {
	vars, _ := ctx.Value(caddyhttp.VarsCtxKey).(map[string]any)
	return vars
}
