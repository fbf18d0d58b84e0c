package caddymux

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// countingWriter notes how often it is written to.
type countingWriter struct {
	discard
	writes int
}

func (w *countingWriter) Write(p []byte) (int, error) {
	w.writes++
	return w.discard.Write(p)
}

// What a body costs beyond its bytes is the writes, of which there are few.
func TestBodiesGoOutInFewLargeWrites(t *testing.T) {
	dir := t.TempDir()
	file := provisioned(t, "storage_mux file://"+dir)
	memory := provisioned(t, "storage_mux memory: {\n writable\n}")
	none := caddyhttp.HandlerFunc(func(http.ResponseWriter, *http.Request) error { return nil })
	serve := func(h *Handler, method, target, field string, body io.Reader) *countingWriter {
		w := &countingWriter{discard: discard{header: make(http.Header)}}
		r := request(t, method, target, body)
		if field != "" {
			r.Header.Set("Range", field)
		}
		if err := h.ServeHTTP(w, r, none); err != nil {
			t.Fatal(err)
		}
		return w
	}
	for _, name := range []string{"small", "large"} {
		body := strings.Repeat("x", map[string]int{"small": 1000, "large": 1 << 20}[name])
		if err := os.WriteFile(filepath.Join(dir, name), []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
		serve(memory, "PUT", "/"+name, "", strings.NewReader(body))
	}
	for _, tt := range []struct {
		what   string
		w      *countingWriter
		writes int // at the most
	}{
		{"small file", serve(file, "GET", "/small", "", nil), 1},
		{"large file", serve(file, "GET", "/large", "", nil), 9},
		{"large part of a file", serve(file, "GET", "/large", "bytes=5-900000", nil), 8},
		{"small part of a file", serve(file, "GET", "/large", "bytes=5-9", nil), 1},
		{"small in memory", serve(memory, "GET", "/small", "", nil), 1},
		{"large in memory", serve(memory, "GET", "/large", "", nil), 1},
		{"part in memory", serve(memory, "GET", "/large", "bytes=5-900000", nil), 1},
	} {
		if tt.w.writes < 1 || tt.w.writes > tt.writes {
			t.Errorf("%s: %d writes, want %d at the most", tt.what, tt.w.writes, tt.writes)
		}
	}
}
