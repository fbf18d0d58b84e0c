package caddybreaker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore/breaker"
)

func TestABodyThatBreaksOffIsAFailure(t *testing.T) {
	o := newOrigin(t)
	r := start(t, "", br(o, ""))
	o.cut.Store(true)
	for range 3 {
		if got := r.get("/x"); got.err == nil {
			t.Fatalf("a truncated body was passed on as whole: %d bytes under %d", len(got.body), got.status)
		}
	}
	v := r.path(o)
	if v.OpenedTotal != 1 || !strings.HasPrefix(v.Recent[0].Cause, "body: ") {
		t.Errorf("after 3 truncated bodies: opened %d times, recent %+v; want 1, with the cause", v.OpenedTotal, v.Recent)
	}
}

func TestAStalledBodyIsAFailure(t *testing.T) {
	for name, more := range map[string]string{
		"by the timeout of the inner transport":   "transport http {\nread_timeout 50ms\n}",
		"by trial_timeout while it is waited for": "trial_timeout 50ms",
	} {
		t.Run(name, func(t *testing.T) {
			o := newOrigin(t)
			r := start(t, "", br(o, more))
			o.stall.Store(true)
			for n := range 3 {
				r.askUntil("the stall to be found out", func() bool { return len(r.path(o).Recent) == n+1 })
			}
			if v := r.path(o); v.OpenedTotal != 1 {
				t.Errorf("after 3 stalls: opened %d times, %+v; want 1", v.OpenedTotal, v.Recent)
			}
		})
	}
}

func TestAClientThatLeavesInMidBodyIsNoFailure(t *testing.T) {
	o := newOrigin(t)
	r := start(t, "", strings.Replace(br(o, ""), "transport", "flush_interval -1\ntransport", 1))
	o.stall.Store(true)
	for range 5 {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://caddy.test/x", nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := r.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.CopyN(io.Discard, res.Body, 500); err != nil {
			t.Errorf("the half that is there: %v", err)
		}
		res.Body.Close()
	}
	e := entryOf(t, r.path(o).PathID)
	r.eventually("the calls to end", func() bool { return e.calls[breaker.Neutral].Load() == 5 })
	if v := r.path(o); v.State != breaker.Closed || v.Failures != 0 {
		t.Errorf("%v with %d failures, want CLOSED with 0", v.State, v.Failures)
	}
}

func TestARequestBodyThatBreaksOffIsNoFailure(t *testing.T) {
	o := newOrigin(t)
	r := start(t, "", br(o, ""))
	for range 5 {
		body := io.MultiReader(strings.NewReader("begin"), errReader{})
		r.do(t.Context(), http.MethodPut, "/x", body)
	}
	if v := r.path(o); v.State != breaker.Closed || v.Failures != 0 {
		t.Errorf("%v with %d failures, want CLOSED with 0: %+v", v.State, v.Failures, v.Recent)
	}
}

func TestARequestBodyOverTheLimitIsNoFailure(t *testing.T) {
	o := newOrigin(t)
	r := start(t, "", "request_body {\nmax_size 10\n}\n"+br(o, ""))
	for range 5 {
		// Of unknown length, so that the limit is found while it is on its way.
		body := io.MultiReader(strings.NewReader(strings.Repeat("x", 1<<20)))
		// A client that is still sending may find the connection closed before it reads the answer.
		if got := r.do(t.Context(), http.MethodPut, "/x", body); got.err == nil && got.status != http.StatusRequestEntityTooLarge && got.status != http.StatusBadGateway {
			t.Errorf("answer %d", got.status)
		}
	}
	if v := r.path(o); v.State != breaker.Closed || v.Failures != 0 {
		t.Errorf("%v with %d failures, want CLOSED with 0: %+v", v.State, v.Failures, v.Recent)
	}
}

func TestATrialCountsWhenItsBodyHasEnded(t *testing.T) {
	o := newOrigin(t)
	r := start(t, "", br(o, ""))
	trip(r, o, 3)
	r.becomes(o, breaker.HalfOpen)
	o.status.Store(200)
	o.stall.Store(true)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.do(ctx, http.MethodGet, "/x", nil)
	}()
	hits := o.hits.Load()
	r.eventually("the trial to arrive", func() bool { return o.hits.Load() > hits || r.path(o).HalfOpenInFlight == 1 })
	r.want("/x", 503) // its body is still on its way
	cancel()
	<-ended
	r.eventually("its place to be free", func() bool { return r.path(o).HalfOpenInFlight == 0 })
	if v := r.path(o); v.State != breaker.HalfOpen || v.Successes != 0 {
		t.Errorf("%v with %d successes, want HALF_OPEN with 0", v.State, v.Successes)
	}
}

func TestAnEventStreamIsJudgedByItsHeader(t *testing.T) {
	o := newOrigin(t)
	r := start(t, "", br(o, "max_concurrent 3"))
	o.header.Store(&http.Header{"Content-Type": {"text/event-stream; charset=utf-8"}})
	o.stall.Store(true)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 3 {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://caddy.test/events", nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := r.client.Do(req)
		if err != nil || res.StatusCode != 200 {
			t.Fatalf("a stream beside others = %v, %v; want 200", res, err)
		}
		defer res.Body.Close()
	}
	e := entryOf(t, r.path(o).PathID)
	if n := e.calls[breaker.Success].Load(); n != 3 {
		t.Errorf("%d successes while the streams last, want 3", n)
	}
}

func TestASlowAnswerIsAFailureAndASlowBodyIsNot(t *testing.T) {
	o := newOrigin(t)
	r := start(t, "", br(o, "slow_call 60ms"))
	o.delay.Store(int64(80 * time.Millisecond))
	for range 3 {
		r.want("/x", 200)
	}
	if v := r.path(o); v.OpenedTotal != 1 || !strings.HasPrefix(v.Recent[0].Cause, "slow: ") {
		t.Errorf("after 3 slow answers: opened %d times, %+v", v.OpenedTotal, v.Recent)
	}
}

func TestATrackedBodyKeepsWriterToAndBlamesTheRightSide(t *testing.T) {
	for name, row := range map[string]struct {
		inner io.Reader
		out   io.Writer
		want  breaker.Outcome
	}{
		"whole":                {strings.NewReader("0123456789"), io.Discard, breaker.Success},
		"the client is gone":   {strings.NewReader("0123456789"), errWriter{}, breaker.Neutral},
		"the upstream is gone": {brokenWriterTo{}, io.Discard, breaker.Failure},
	} {
		t.Run(name, func(t *testing.T) {
			c, e := testCall(t)
			res := &http.Response{ContentLength: -1, Body: struct {
				io.Reader
				io.WriterTo
				io.Closer
			}{row.inner, row.inner.(io.WriterTo), io.NopCloser(nil)}}
			c.track(res, time.Minute)
			_, _ = res.Body.(io.WriterTo).WriteTo(row.out)
			_ = res.Body.Close()
			for o := range e.calls {
				want := uint64(0)
				if breaker.Outcome(o) == row.want {
					want = 1
				}
				if got := e.calls[o].Load(); got != want {
					t.Errorf("%v counted %d times, want %d", breaker.Outcome(o), got, want)
				}
			}
		})
	}
}

func TestABodyShorterThanDeclaredIsAFailureEvenIfItEndsCleanly(t *testing.T) {
	c, e := testCall(t)
	res := &http.Response{ContentLength: 100, Body: io.NopCloser(strings.NewReader("short"))}
	c.track(res, time.Minute)
	_, _ = io.Copy(io.Discard, res.Body)
	_ = res.Body.Close()
	if e.calls[breaker.Failure].Load() != 1 {
		t.Error("not counted as a failure")
	}
}

func TestAnUnreadBodyThatIsClosedIsASuccess(t *testing.T) {
	c, e := testCall(t)
	res := &http.Response{ContentLength: 5, Body: io.NopCloser(strings.NewReader("12345"))}
	c.track(res, time.Minute)
	_ = res.Body.Close()
	if e.calls[breaker.Success].Load() != 1 {
		t.Error("not counted as a success: the header was all that was wanted")
	}
}

func testCall(t *testing.T) (*trackedBody, *entry) {
	t.Helper()
	b, err := breaker.New("test", breaker.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	e := &entry{breaker: b}
	permit, err := b.Allow()
	if err != nil {
		t.Fatal(err)
	}
	return &trackedBody{call: call{guard: &guard{entry: e}, permit: permit}, ctx: t.Context()}, e
}

type errReader struct{}

func (errReader) Read([]byte) (int, error) { return 0, errors.New("the client is gone") }

type errWriter struct{}

func (errWriter) Write([]byte) (int, error) { return 0, errors.New("the client is gone") }

type brokenWriterTo struct{}

func (brokenWriterTo) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func (brokenWriterTo) WriteTo(w io.Writer) (int64, error) {
	n, err := fmt.Fprint(w, "half")
	if err == nil {
		err = io.ErrUnexpectedEOF
	}
	return int64(n), err
}

// askUntil asks a path that hangs until something is known of it, and then leaves.
func (r *rig) askUntil(what string, known func() bool) reply {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.t.Context())
	defer cancel()
	left := make(chan reply, 1)
	go func() { left <- r.do(ctx, http.MethodGet, "/x", nil) }()
	r.eventually(what, known)
	cancel()
	return <-left
}

// A path that hangs looks well to whoever counts results only: its clients give
// up, and that is neutral. Here they give up once the breaker knows better.
func TestAPathThatHangsIsFoundOutBySlowCallAndByItsTrials(t *testing.T) {
	o := newOrigin(t)
	r := start(t, "", br(o, "slow_call 40ms\ntrial_timeout 1m"))
	o.pause()
	for n := range 3 {
		if got := r.askUntil("a slow call", func() bool { return len(r.path(o).Recent) == n+1 }); got.err == nil {
			t.Errorf("a path that hangs answered %d", got.status)
		}
	}
	if v := r.path(o); v.OpenedTotal != 1 || v.Recent[0].Cause != "slow: no answer within 40ms" {
		t.Errorf("after 3 clients gave up: opened %d times, %+v; want 1", v.OpenedTotal, v.Recent)
	}

	hung := newOrigin(t)
	r = start(t, "", br(hung, "trial_timeout 40ms"))
	trip(r, hung, 3)
	hung.pause()
	r.becomes(hung, breaker.HalfOpen)
	if got := r.askUntil("the failure of the trial", func() bool { return r.path(hung).OpenedTotal == 2 }); got.err == nil {
		t.Errorf("a trial that hangs answered %d", got.status)
	}
}
