// Package fake is what the fakes of services have in common: where they listen, what came to them, and how they give bodies out.
package fake

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"
)

// Server is where a fake listens, and what came to it. It is safe for concurrent use.
type Server struct {
	URL string

	mu    sync.Mutex
	lines []string
}

// Listen serves h until the test ends.
func (s *Server) Listen(tb testing.TB, h http.Handler) {
	tb.Helper()
	server := httptest.NewServer(h)
	tb.Cleanup(server.Close)
	s.URL = server.URL
}

// Note keeps the request line.
func (s *Server) Note(r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, r.Method+" "+r.RequestURI)
}

// Lines are the request lines that were noted, undecoded.
func (s *Server) Lines() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.lines)
}

// Set changes a field that mu guards.
func Set[T any](mu sync.Locker, field *T, value T) {
	mu.Lock()
	defer mu.Unlock()
	*field = value
}

// JSON answers with a value.
func JSON(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(value)
}

// Keep copies the fields that object stores keep with an object, besides their own metadata.
func Keep(to, from http.Header) {
	for _, name := range []string{"Content-Type", "Cache-Control", "Content-Disposition", "Content-Encoding", "Content-Language", "Expires"} {
		if v := from.Values(name); len(v) > 0 {
			to[name] = v[:1]
		}
	}
}

// Content answers with a body, or a range of it, as http.ServeContent does, which gives no length beside a Content-Encoding.
func Content(w http.ResponseWriter, r *http.Request, at time.Time, body []byte) {
	coded := &encoded{ResponseWriter: w, coding: w.Header().Get("Content-Encoding")}
	w.Header().Del("Content-Encoding")
	http.ServeContent(coded, r, "", at, bytes.NewReader(body))
}

// encoded gives the coding back when the length is there.
type encoded struct {
	http.ResponseWriter
	coding string
}

// WriteHeader implements http.ResponseWriter.
func (w *encoded) WriteHeader(status int) {
	if w.coding != "" {
		w.Header().Set("Content-Encoding", w.coding)
	}
	w.ResponseWriter.WriteHeader(status)
}
