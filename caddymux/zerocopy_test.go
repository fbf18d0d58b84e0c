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

// fromWriter notes what it is given to read from, and how often it is written to.
type fromWriter struct {
	discard
	files, writes int
}

func (w *fromWriter) ReadFrom(src io.Reader) (int64, error) {
	limited, ok := src.(*io.LimitedReader)
	if ok {
		if _, ok = limited.R.(*os.File); ok {
			w.files++
		}
	}
	return io.Copy(struct{ io.Writer }{w}, src)
}

func (w *fromWriter) Write(p []byte) (int, error) {
	w.writes++
	return w.discard.Write(p)
}

func TestLargeFilesGoOutByReadFromAndSmallBodiesInOneWrite(t *testing.T) {
	dir := t.TempDir()
	file := provisioned(t, "storage_mux file://"+dir)
	memory := provisioned(t, "storage_mux memory: {\n writable\n}")
	none := caddyhttp.HandlerFunc(func(http.ResponseWriter, *http.Request) error { return nil })
	serve := func(h *Handler, method, target, field string, body io.Reader) *fromWriter {
		w := &fromWriter{discard: discard{header: make(http.Header)}}
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
		what          string
		w             *fromWriter
		files, writes int // writes -1: any
	}{
		{"small file", serve(file, "GET", "/small", "", nil), 0, 1},
		{"large file", serve(file, "GET", "/large", "", nil), 1, -1},
		{"large part of a file", serve(file, "GET", "/large", "bytes=5-900000", nil), 1, -1},
		{"small part of a file", serve(file, "GET", "/large", "bytes=5-9", nil), 0, 1},
		{"small in memory", serve(memory, "GET", "/small", "", nil), 0, 1},
		{"large in memory", serve(memory, "GET", "/large", "", nil), 0, 1},
		{"part in memory", serve(memory, "GET", "/large", "bytes=5-900000", nil), 0, 1},
	} {
		if tt.w.files != tt.files || tt.writes >= 0 && tt.w.writes != tt.writes {
			t.Errorf("%s: %d files, %d writes, want %d and %d", tt.what, tt.w.files, tt.w.writes, tt.files, tt.writes)
		}
	}
}
