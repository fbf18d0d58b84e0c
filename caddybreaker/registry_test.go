package caddybreaker

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/muxcore/breaker"
)

// to asks for a page at an upstream of the client's choice.
func (r *rig) to(ctx context.Context, path string, o *origin) int {
	r.t.Helper()
	return r.toAddress(ctx, path, o.addr())
}

func (r *rig) toAddress(ctx context.Context, path, upstream string) int {
	r.t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://caddy.test"+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("X-Up", upstream)
	res, err := r.client.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	res.Body.Close()
	return res.StatusCode
}

func placeholderSite(options string) string {
	return fmt.Sprintf(`reverse_proxy {http.request.header.X-Up} {
		lb_policy relay_breaker
		transport relay_breaker {
			%s
		}
	}`, options)
}

func TestAnUpstreamWithAPlaceholderIsAPathPerValue(t *testing.T) {
	a, b := newOrigin(t), newOrigin(t)
	r := start(t, "", placeholderSite("failure_threshold 2\nopen_duration 1m"))
	a.status.Store(500)
	for range 2 {
		r.to(t.Context(), "/x", a)
	}
	if code := r.to(t.Context(), "/x", a); code != 503 || a.hits.Load() != 2 {
		t.Errorf("the sick one = %d with %d hits, want 503 with 2", code, a.hits.Load())
	}
	if code := r.to(t.Context(), "/x", b); code != 200 {
		t.Errorf("the other = %d, want 200", code)
	}
	if r.path(a).State != breaker.Open || r.path(b).State != breaker.Closed {
		t.Errorf("%v and %v, want OPEN and CLOSED", r.path(a).State, r.path(b).State)
	}
}

func TestAPathFirstSeenInTrafficKeepsItsFirstDefinitionAndSaysSoOnce(t *testing.T) {
	o := newOrigin(t)
	file := filepath.Join(t.TempDir(), "log")
	r := start(t, fmt.Sprintf("log breakers {\noutput file %s\ninclude relay_breaker\n}", file), fmt.Sprintf(`
	handle /one/* {
		%s
	}
	handle /two/* {
		%s
	}`, placeholderSite("failure_threshold 2"), placeholderSite("failure_threshold 9")))
	o.status.Store(500)
	r.to(t.Context(), "/one/", o)
	r.to(t.Context(), "/two/", o)
	for range 3 {
		if code := r.to(t.Context(), "/two/", o); code != 503 {
			t.Errorf("answer %d, want 503: the first definition has a threshold of 2", code)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), "defined twice"); n != 1 || !strings.Contains(string(text), "failure_threshold: 2 and 9") {
		t.Errorf("%d lines about it, want 1 that names the option:\n%s", n, text)
	}
}

func TestMorePathsThanThereIsRoomForPassUnguarded(t *testing.T) {
	a, b := newOrigin(t), newOrigin(t)
	r := start(t, "", placeholderSite("failure_threshold 1"))
	r.to(t.Context(), "/x", a)
	reg, err := entryOf(t, r.path(a).PathID).observer().registry("")
	if err != nil {
		t.Fatal(err)
	}
	reg.mu.Lock()
	reg.dynamic = maxDynamic
	reg.mu.Unlock()
	b.status.Store(500)
	for range 5 {
		if code := r.to(t.Context(), "/x", b); code != 500 {
			t.Errorf("answer %d, want the upstream's own 500", code)
		}
	}
	if len(views()) != 1 {
		t.Errorf("%d paths, want 1", len(views()))
	}
}

// Nor is there room for names that no upstream has: a client could fill the memory with them.
func TestNamesThatNoUpstreamHasAreNoPaths(t *testing.T) {
	r := start(t, "", placeholderSite("failure_threshold 1"))
	for range 3 {
		if code := r.toAddress(t.Context(), "/x", strings.Repeat("a", maxUpstream)+":80"); code != http.StatusBadGateway {
			t.Errorf("answer %d, want that it could not be dialled", code)
		}
	}
	if n := len(views()); n != 0 {
		t.Errorf("%d paths, want none", n)
	}
}

func TestTheHandlerPassesFilesOnWhole(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "f.txt"), []byte(strings.Repeat("file ", 100000)), 0o600); err != nil {
		t.Fatal(err)
	}
	r := start(t, "", handlerSite("slow_call 1h\nmax_concurrent 1")+fmt.Sprintf("root %s\nfile_server", root))
	for range 3 {
		if got := r.want("/f.txt", 200); len(got.body) != 500000 {
			t.Fatalf("%d bytes, want 500000", len(got.body))
		}
		r.want("/missing", 404)
	}
	if v := r.pathOf("app"); v.State != breaker.Closed || v.Failures != 0 {
		t.Errorf("%v with %d failures, want CLOSED with 0", v.State, v.Failures)
	}
}
