package caddybreaker

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/suaveplan/caddy-storage-mux/internal/reload"
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

// patience is for what comes at once where nothing is wrong: a test waits for it on the busiest of machines.
const patience = 2 * time.Minute

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
	r.client = &http.Client{Transport: transport, Timeout: patience}
	t.Cleanup(transport.CloseIdleConnections)
	return r
}

// startTCP is start for upstreams that need to know an IP address of the client.
func startTCP(t testing.TB, site string) *rig {
	t.Helper()
	r := start(t, "", "respond never")
	text := fmt.Sprintf("{\nadmin off\npersist_config off\nstorage file_system %q\nlog {\noutput discard\n}\n}\nhttp://:0 {\nbind 127.0.0.1\n%s\n}",
		t.TempDir(), site)
	cfg, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(text), map[string]any{"filename": "Caddyfile"})
	if err != nil {
		t.Fatal(err)
	}
	if err := reload.Load(cfg); err != nil {
		t.Fatal(err)
	}
	addr := listening(t)
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", addr)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	r.client = &http.Client{Transport: transport, Timeout: patience}
	return r
}

// listening is the address that the only server of the running config was given.
func listening(t testing.TB) string {
	t.Helper()
	app, err := caddy.ActiveContext().AppIfConfigured("http")
	if err != nil {
		t.Fatal(err)
	}
	var addrs []string
	for _, server := range app.(*caddyhttp.App).Servers {
		for _, listener := range server.Listeners() {
			addrs = append(addrs, listener.Addr().String())
		}
	}
	if len(addrs) != 1 {
		t.Fatalf("Caddy listens on %v, want one address", addrs)
	}
	return addrs[0]
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
	%s
}
`, r.t.TempDir(), global, r.socket, site)
	cfg, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(text), map[string]any{"filename": "Caddyfile"})
	if err != nil {
		r.t.Fatalf("adapting: %v\n%s", err, text)
	}
	if err := reload.Load(cfg); err != nil {
		r.t.Fatalf("loading: %v\n%s", err, text)
	}
	if r.client != nil {
		r.client.CloseIdleConnections() // they lead to the servers of the config before
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

// wantRetryAfter wants a refusal that says how many seconds are left until a time.
func (r *rig) wantRetryAfter(due time.Time) {
	r.t.Helper()
	most := time.Until(due)
	got := r.want("/x", http.StatusServiceUnavailable).header.Get("Retry-After")
	least := time.Until(due)
	if n, err := strconv.Atoi(got); err != nil || float64(n) < math.Ceil(least.Seconds()) || float64(n) > math.Ceil(most.Seconds()) {
		r.t.Errorf("Retry-After = %q, want the seconds to the first trial: %s to %s", got, least, most)
	}
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
	deadline := time.After(patience)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			r.t.Fatalf("waited %s for %s; paths: %s", patience, what, dump(r.t))
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

// whileOpen has ask find out how an open path is: "" or what is wrong with it. Where
// its time was over before ask was done, on a busy machine, that says nothing: the path
// is opened again by what fails there, and it is asked again.
func (r *rig) whileOpen(upstream, failing string, ask func() string) {
	r.t.Helper()
	for {
		r.eventually("the path to open", func() bool {
			if r.pathOf(upstream).State == breaker.Open {
				return true
			}
			r.get(failing)
			return false
		})
		before := r.pathOf(upstream)
		wrong := ask()
		if after := r.pathOf(upstream); after.State != breaker.Open || after.OpenedTotal != before.OpenedTotal {
			continue
		}
		if wrong != "" {
			r.t.Fatalf("while the path is open: %s", wrong)
		}
		return
	}
}

// br is the breaker of the cases: 3 failures, a short open time, 1 half-open
// call, 2 successes. For a case that asks while it is open, see long.
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

// long makes the open time of br's site longer than any test.
func long(site string) string { return strings.Replace(site, "150ms", "1h", 1) }

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
