package caddybreaker

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/suaveplan/caddy-storage-mux/muxcore/breaker"
)

// BenchmarkProxy compares a proxied request with the wrapper and without, over
// the same sockets: A B A B, so that a drift of the machine shows.
func BenchmarkProxy(b *testing.B) {
	body := make([]byte, 4096)
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(body)
	}))
	defer upstream.Close()
	addr := upstream.Listener.Addr().String()
	sites := []struct{ name, more string }{
		{"without", ""},
		{"with", "lb_policy relay_breaker\ntransport relay_breaker"},
	}
	for range 2 {
		for _, site := range sites {
			b.Run(site.name, func(b *testing.B) {
				r := start(b, "", fmt.Sprintf("reverse_proxy %s {\n%s\n}", addr, site.more))
				b.ReportAllocs()
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						res, err := r.client.Get("http://caddy.test/")
						if err != nil {
							b.Error(err)
							return
						}
						_, _ = io.Copy(io.Discard, res.Body)
						res.Body.Close()
					}
				})
			})
		}
	}
}

// static makes a registry with one path, whose breaker is closed when the benchmark ends.
func static(b testing.TB, id string) (*registry, *definition) {
	b.Helper()
	path := "here→" + id
	br, err := breaker.New(path, breaker.Settings{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(br.Close)
	def, err := newDefinition(Options{})
	if err != nil {
		b.Fatal(err)
	}
	r := newRegistry(nil, "default", Options{})
	r.snapshot.Store(&map[string]*guard{id: {
		entry: &entry{breaker: br, key: entryKey{path: path}}, def: def, static: true, boxedID: path,
	}})
	return r, def
}

// BenchmarkHandlerOverhead is what the handler adds to a chain that does nothing.
func BenchmarkHandlerOverhead(b *testing.B) {
	r, def := static(b, "there")
	p := &namedPath{registry: r, def: def, id: "there"}
	h := &Handler{path: p}
	next := caddyhttp.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) error {
		w.WriteHeader(http.StatusNoContent)
		return nil
	})
	req := caddyhttp.PrepareRequest(httptest.NewRequestWithContext(b.Context(), http.MethodGet, "/", nil), caddy.NewReplacer(), nil, &caddyhttp.Server{})
	w := httptest.NewRecorder()
	b.ReportAllocs()
	for b.Loop() {
		if err := h.ServeHTTP(w, req, next); err != nil {
			b.Fatal(err)
		}
	}
}
