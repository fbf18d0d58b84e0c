package caddybreaker

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"

	"github.com/suaveplan/caddy-storage-mux/muxcore/breaker"
)

// origin is an upstream that does as it is told.
type origin struct {
	*httptest.Server

	hits    atomic.Int64
	status  atomic.Int64
	delay   atomic.Int64 // before the header
	hang    atomic.Pointer[chan struct{}]
	cut     atomic.Bool // declare more than is sent, then break the connection
	stall   atomic.Bool // declare more than is sent, then be silent
	header  atomic.Pointer[http.Header]
	body    atomic.Pointer[string]
	lastReq atomic.Pointer[http.Request]
	gotBody atomic.Pointer[string]
}

func newOrigin(t *testing.T) *origin {
	t.Helper()
	o := new(origin)
	o.status.Store(200)
	o.Server = httptest.NewServer(o)
	t.Cleanup(func() {
		o.release()
		o.CloseClientConnections()
		o.Close()
	})
	return o
}

func (o *origin) addr() string { return o.Listener.Addr().String() }

func (o *origin) pause() {
	gate := make(chan struct{})
	o.hang.Store(&gate)
}

func (o *origin) release() {
	if gate := o.hang.Swap(nil); gate != nil {
		close(*gate)
	}
}

func (o *origin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o.hits.Add(1)
	o.lastReq.Store(r)
	got, _ := io.ReadAll(r.Body)
	text := string(got)
	o.gotBody.Store(&text)
	if gate := o.hang.Load(); gate != nil {
		select {
		case <-*gate:
		case <-r.Context().Done():
			return
		}
	}
	if d := time.Duration(o.delay.Load()); d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-r.Context().Done():
			return
		}
	}
	if h := o.header.Load(); h != nil {
		maps.Copy(w.Header(), *h)
	}
	switch {
	case o.cut.Load():
		w.Header().Set("Content-Length", "1000")
		_, _ = w.Write(make([]byte, 500))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	case o.stall.Load():
		w.Header().Set("Content-Length", "1000")
		_, _ = w.Write(make([]byte, 500))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	default:
		w.WriteHeader(int(o.status.Load()))
		if b := o.body.Load(); b != nil {
			_, _ = io.WriteString(w, *b)
		}
	}
}

// rig is a Caddy in this process, and a client for it.
type rig struct {
	t      testing.TB
	socket string
	client *http.Client
}

// start runs Caddy with a site of the given body, and global options.
func start(t testing.TB, global, site string) *rig {
	t.Helper()
	r := &rig{t: t, socket: filepath.Join(t.TempDir(), "s")}
	t.Cleanup(func() {
		if err := caddy.Stop(); err != nil {
			t.Errorf("stopping Caddy: %v", err)
		}
	})
	r.load(global, site)
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", r.socket)
		},
		MaxIdleConnsPerHost: 100,
	}
	r.client = &http.Client{Transport: transport, Timeout: 20 * time.Second}
	t.Cleanup(transport.CloseIdleConnections)
	return r
}

// startTCP is start for upstreams that need to know an IP address of the client.
func startTCP(t testing.TB, site string) *rig {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := free.Addr().String()
	free.Close()
	r := start(t, "", "respond never")
	_, port, _ := strings.Cut(addr, ":")
	text := fmt.Sprintf("{\nadmin off\npersist_config off\nstorage file_system %q\nlog {\noutput discard\n}\n}\nhttp://:%s {\nbind 127.0.0.1\n%s\n}",
		t.TempDir(), port, site)
	cfg, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(text), map[string]any{"filename": "Caddyfile"})
	if err != nil {
		t.Fatal(err)
	}
	if err := caddy.Load(cfg, true); err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", addr)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	r.client = &http.Client{Transport: transport, Timeout: 20 * time.Second}
	return r
}

// load makes Caddy run this config instead, as a reload does.
func (r *rig) load(global, site string) {
	r.t.Helper()
	text := fmt.Sprintf(`{
	admin off
	persist_config off
	storage file_system %q
	log {
		output discard
	}
	%s
}
http:// {
	bind unix/%s
	respond /_ready 204
	%s
}
`, r.t.TempDir(), global, r.socket, site)
	cfg, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(text), map[string]any{"filename": "Caddyfile"})
	if err != nil {
		r.t.Fatalf("adapting: %v\n%s", err, text)
	}
	if err := caddy.Load(cfg, true); err != nil {
		r.t.Fatalf("loading: %v\n%s", err, text)
	}
	if r.client != nil {
		// The old server may still take a connection, only to close it.
		for streak := 0; streak < 3; streak++ {
			r.client.CloseIdleConnections()
			if r.get("/_ready").status != http.StatusNoContent {
				streak = 0
			}
		}
	}
}

type reply struct {
	status int
	header http.Header
	body   string
	err    error // of the request, or of reading the body
}

func (r *rig) get(path string) reply { return r.do(r.t.Context(), http.MethodGet, path, nil) }

func (r *rig) do(ctx context.Context, method, path string, body io.Reader) reply {
	req, err := http.NewRequestWithContext(ctx, method, "http://caddy.test"+path, body)
	if err != nil {
		return reply{err: err}
	}
	res, err := r.client.Do(req)
	if err != nil {
		return reply{err: err}
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return reply{status: res.StatusCode, header: res.Header, body: string(text), err: err}
}

// cancelled makes a request and leaves after a while.
func (r *rig) cancelled(after time.Duration) {
	ctx, cancel := context.WithTimeout(r.t.Context(), after)
	defer cancel()
	if got := r.do(ctx, http.MethodGet, "/x", nil); got.err == nil {
		r.t.Errorf("a request cancelled after %s was answered with %d", after, got.status)
	}
}

func (r *rig) want(path string, status int) reply {
	r.t.Helper()
	got := r.get(path)
	if got.err != nil || got.status != status {
		r.t.Fatalf("GET %s = %d, %v; want %d", path, got.status, got.err, status)
	}
	return got
}

// path is what operators see of the path to o, in whatever registry.
func (r *rig) path(o *origin) pathView { r.t.Helper(); return r.pathOf(o.addr()) }

func (r *rig) pathOf(upstream string) pathView {
	r.t.Helper()
	for _, v := range views() {
		if strings.HasSuffix(v.PathID, "→"+upstream) {
			return v
		}
	}
	r.t.Fatalf("no path to %s in %v", upstream, views())
	return pathView{}
}

// becomes waits until the path to o is in a state.
func (r *rig) becomes(o *origin, want breaker.State) pathView {
	r.t.Helper()
	var v pathView
	r.eventually(fmt.Sprintf("path to be %v", want), func() bool {
		v = r.path(o)
		return v.State == want
	})
	return v
}

func (r *rig) eventually(what string, ok func() bool) {
	r.t.Helper()
	deadline := time.After(10 * time.Second)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			r.t.Fatalf("waited 10s for %s; paths: %s", what, dump(r.t))
		case <-tick.C:
		}
	}
}

func dump(t testing.TB) string {
	t.Helper()
	text, err := json.Marshal(views())
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// br is the breaker of the cases: 3 failures, a short open time, 1 half-open
// call, 2 successes.
func br(o *origin, more string) string {
	return fmt.Sprintf(`reverse_proxy %s {
		transport relay_breaker {
			failure_threshold 3
			success_threshold 2
			half_open_max_calls 1
			open_duration 150ms
			%s
		}
	}`, o.addr(), more)
}

func admin(t *testing.T, method, body string) (int, string) {
	t.Helper()
	rec := httptest.NewRecorder()
	err := AdminAPI{}.serve(rec, httptest.NewRequestWithContext(t.Context(), method, "/relay_breaker", bytes.NewBufferString(body)))
	if err != nil {
		apiErr, ok := err.(caddy.APIError) //nolint:errorlint // Caddy asserts it the same way
		if !ok {
			t.Fatalf("admin API returned %T: %v", err, err)
		}
		return apiErr.HTTPStatus, apiErr.Err.Error()
	}
	return rec.Code, rec.Body.String()
}
