package caddymux

import (
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Whether a Caddy runs is one of three: yes, no, and not known.
func TestACommandKnowsWhetherACaddyRuns(t *testing.T) {
	says := func(status int, body string) func(*testing.T) string {
		return func(t *testing.T) string {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(status)
				_, _ = w.Write([]byte(body))
			}))
			t.Cleanup(server.Close)
			return server.Listener.Addr().String()
		}
	}
	for name, row := range map[string]struct {
		at           func(t *testing.T) string
		running      bool
		unsure, note string
	}{
		"nobody listens":          {at: func(*testing.T) string { return "127.0.0.1:1" }},
		"there is no socket":      {at: func(t *testing.T) string { return "unix/" + filepath.Join(socketDir(t), "none") }},
		"a Caddy without it":      {at: says(404, `{"error":"no storage tree"}`)},
		"a Caddy without trees":   {at: says(404, "404 page not found")},
		"another service":         {at: says(200, "<html>hello</html>"), note: "no Caddy"},
		"another service in JSON": {at: says(200, `{"hello":"there"}`), note: "no Caddy"},
		"the tree":                {at: says(200, `{"name":"t","mode":"failover","backends":[{"name":"m"},{"name":"x"}]}`), running: true},
		"a tree of that name":     {at: says(200, `{"name":"t","mode":"failover","backends":[{"name":"x"}]}`)},
		"it lets nobody in":       {at: says(403, `{"error":"host not allowed: x"}`), unsure: "HTTP 403: host not allowed: x"},
		"it fails":                {at: says(500, "oops"), unsure: "HTTP 500: oops"},
		"it hangs": {at: func(t *testing.T) string {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = listener.Close() })
			return listener.Addr().String() // nobody takes what comes
		}, unsure: "Client.Timeout"},
		"nonsense": {at: func(*testing.T) string { return "localhost:1-3" }, unsure: "a range of ports is no address"},
	} {
		t.Run(name, func(t *testing.T) {
			h := provisioned(t, "storage_mux {\n name t\n backend m memory\n}")
			one, err := h.tree.acquire()
			if err != nil {
				t.Fatal(err)
			}
			defer one.release()
			all := &commandTrees{admin: row.at(t), patience: time.Minute}
			if name == "it hangs" {
				all.patience = 100 * time.Millisecond
			}
			running, err := all.runs(t.Context(), one)
			if running != row.running || (err == nil) != (row.unsure == "") {
				t.Errorf("runs = %t, %v, want %t, %q", running, err, row.running, row.unsure)
			}
			if err != nil && (!strings.Contains(err.Error(), row.unsure) || !strings.Contains(err.Error(), "admin API at "+all.admin)) {
				t.Errorf("the error is %q, want %q", err, row.unsure)
			}
			if (all.note == nil) != (row.note == "") || all.note != nil && !strings.Contains(all.note.Error(), row.note) {
				t.Errorf("the note is %v, want %q", all.note, row.note)
			}
		})
	}
}
