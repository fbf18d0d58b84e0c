package caddybreaker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/suaveplan/caddy-storage-mux/muxcore/breaker"
)

func TestARefusalIsWhatEachReaderNeeds(t *testing.T) {
	b, err := breaker.New("here→there", breaker.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	b.ForceOpen(0)
	_, refusedErr := b.Allow()
	err = refused(t.Context(), &guard{entry: &entry{breaker: b}}, refusedErr)
	if _, ok := errors.AsType[reverseproxy.DialError](err); !ok {
		t.Error("the proxy sees no dial error, so it would not retry a POST")
	}
	if he, ok := errors.AsType[caddyhttp.HandlerError](err); !ok || he.StatusCode != http.StatusServiceUnavailable {
		t.Error("the server sees no 503")
	}
	if !errors.Is(err, breaker.ErrPathOpen) {
		t.Error("errors.Is does not find CB.PATH_OPEN")
	}
	if err.Error() != "CB.PATH_OPEN: here→there" {
		t.Errorf("message %q", err)
	}
}

func TestTheSpanOfARequestSaysWhatTheBreakerDid(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)).Tracer("test")
	ctx, span := tracer.Start(context.Background(), "request")
	b, err := breaker.New("here→there", breaker.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	note(ctx, &guard{entry: &entry{breaker: b, key: entryKey{path: "here→there"}}}, "CB.PATH_OPEN")
	span.End()
	got := fmt.Sprint(recorder.Ended()[0].Attributes())
	for _, want := range []string{"relay_breaker.path", "here→there", "relay_breaker.state", "CLOSED", "relay_breaker.code", "CB.PATH_OPEN"} {
		if !strings.Contains(got, want) {
			t.Errorf("attributes %s lack %s", got, want)
		}
	}
}

func TestLogLinesAreOnChangeOnlyAndWarningsNameTheRemedy(t *testing.T) {
	a, b := newOrigin(t), newOrigin(t)
	file := filepath.Join(t.TempDir(), "log")
	global := fmt.Sprintf("log breakers {\noutput file %s\ninclude relay_breaker http.reverse_proxy.transport.relay_breaker\n}", file)
	r := start(t, global, fmt.Sprintf(`reverse_proxy %s %s {
		lb_policy first
		transport relay_breaker {
			failure_threshold 3
			open_duration 1m
		}
	}`, a.addr(), b.addr()))
	trip(r, a, 3)
	for range 10 {
		r.want("/x", 503)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), `"path opened"`); n != 1 || !strings.Contains(string(text), `"level":"warn"`) {
		t.Errorf("%d lines say it opened, want 1 warning:\n%s", n, text)
	}
	if !strings.Contains(string(text), "without lb_policy relay_breaker") {
		t.Errorf("no warning about the policy:\n%s", text)
	}
}

func TestStatusWordsAndRetryAfterAreReadStrictly(t *testing.T) {
	for word, want := range map[string][2]int{
		"503": {503, 503}, "5xx": {500, 599}, "1XX": {100, 199},
		"": {}, "xx": {}, "55xx": {}, "0xx": {}, "6xx": {}, "99": {}, "600": {}, "-5xx": {}, "+503": {}, "5x": {}, "5xxx": {},
	} {
		first, last, err := parseStatus(word)
		if first != want[0] || last != want[1] || (err == nil) != (want[0] != 0) {
			t.Errorf("parseStatus(%q) = %d, %d, %v; want %v", word, first, last, err, want)
		}
	}
	const longest = math.MaxInt64 / time.Second * time.Second
	for value, want := range map[string]time.Duration{
		"0": 0, "000": 0, "12": 12 * time.Second, "4294967296": 4294967296 * time.Second,
		"9999999999999": longest, "99999999999999999999": longest, "Mon, 02 Jan 2006 15:04:05 GMT": 0,
	} {
		if got, ok := parseRetryAfter(value); got != want || !ok {
			t.Errorf("parseRetryAfter(%q) = %s, %v, want %s", value, got, ok, want)
		}
	}
	for _, value := range []string{"", "-1", "+1", "1.5", "1 2", "soon", "0x1", "\u0661"} {
		if got, ok := parseRetryAfter(value); ok {
			t.Errorf("parseRetryAfter(%q) = %s, want it to be nothing", value, got)
		}
	}
	future := time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)
	if got, ok := parseRetryAfter(future); !ok || got < 59*time.Minute || got > time.Hour {
		t.Errorf("parseRetryAfter(%q) = %s, want an hour", future, got)
	}
}

func TestAStatusThatIsNotHTTPIsAFailure(t *testing.T) {
	c := newClasses(Options{}.effective())
	for status, want := range map[int]breaker.Outcome{
		-1: breaker.Failure, 0: breaker.Failure, 99: breaker.Failure, 100: breaker.Success, 599: breaker.Failure, 600: breaker.Success, 999: breaker.Success,
	} {
		if got := c.status(status, nil); got.outcome != want {
			t.Errorf("status %d is a %v, want %v", status, got.outcome, want)
		}
	}
}

func TestPlaceholdersAreEmptyWhereNoUpstreamCanBeCalled(t *testing.T) {
	r := start(t, "", `
		reverse_proxy {header.X-Up} {
			lb_policy relay_breaker
			transport relay_breaker
		}
		handle_errors {
			respond "[{http.relay_breaker.path}{http.relay_breaker.state}{http.relay_breaker.code}]"
		}`)
	if got := r.want("/x", 502); strings.Contains(got.body, "{") {
		t.Errorf("without an upstream: %s", got.body)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://caddy.test/x", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Up", "127.0.0.1:1-3")
	res, err := r.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if body, _ := io.ReadAll(res.Body); string(body) != "[]" {
		t.Errorf("with an upstream of several ports: %s", body)
	}
}
