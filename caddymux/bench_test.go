package caddymux

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// discard is a writer like that of net/http, without a connection.
type discard struct {
	header http.Header
	n      int64
}

func (d *discard) Header() http.Header { return d.header }
func (d *discard) WriteHeader(int)     {}
func (d *discard) Write(p []byte) (int, error) {
	d.n += int64(len(p))
	return len(p), nil
}

func (d *discard) ReadFrom(r io.Reader) (int64, error) {
	n, err := io.Copy(struct{ io.Writer }{d}, r)
	return n, err
}

// BenchmarkServe is the handler alone, without a server around it. The replacer and the context that a server makes for
// each request are made outside of what is measured, as far as a request can be used again.
func BenchmarkServe(b *testing.B) {
	none := caddyhttp.HandlerFunc(func(http.ResponseWriter, *http.Request) error { return nil })
	for _, kind := range []string{"memory", "file"} {
		for _, size := range []int{1 << 10, 1 << 20} {
			directive := "storage_mux memory:"
			if kind == "file" {
				directive = "storage_mux file://" + b.TempDir()
			}
			h := provisioned(b, directive)
			t, err := h.tree.acquire()
			if err != nil {
				b.Fatal(err)
			}
			_, err = t.store.Put(b.Context(), "x.txt", strings.NewReader(strings.Repeat("x", size)), int64(size), muxcore.PutOptions{})
			t.release()
			if err != nil {
				b.Fatal(err)
			}
			for name, fields := range map[string]string{"get": "", "range": "bytes=10-99", "head": ""} {
				b.Run(fmt.Sprintf("%s/%d/%s", kind, size, name), func(b *testing.B) {
					method := http.MethodGet
					if name == "head" {
						method = http.MethodHead
					}
					r := httptest.NewRequestWithContext(b.Context(), method, "/x.txt", nil)
					if fields != "" {
						r.Header.Set("Range", fields)
					}
					r = r.WithContext(context.WithValue(r.Context(), caddy.ReplacerCtxKey, caddy.NewReplacer()))
					w := &discard{header: make(http.Header)}
					b.ReportAllocs()
					for b.Loop() {
						clear(w.header)
						if err := h.ServeHTTP(w, r, none); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		}
	}
}

// BenchmarkPlaceholders compares what it costs to offer the placeholders to a request that asks for none of them: by a
// function, as exchange.begin does, or by six values.
func BenchmarkPlaceholders(b *testing.B) {
	res := &result{tree: "tree", via: muxcore.Via{Backend: "a", Attempts: 1}}
	p := &placeholders{of: res}
	for name, offer := range map[string]func(*caddy.Replacer){
		"none": func(*caddy.Replacer) {},
		"map": func(repl *caddy.Replacer) {
			if _, ok := repl.Get(resultKey); !ok {
				repl.Map((&placeholders{of: res}).value)
			}
		},
		"set": func(repl *caddy.Replacer) {
			for _, field := range []string{"tree", "backend", "attempts", "outcome", "error_code", "latency_ms"} {
				value, _ := p.value(resultKey + "." + field)
				repl.Set(resultKey+"."+field, value)
			}
		},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				offer(caddy.NewReplacer())
			}
		})
	}
}
