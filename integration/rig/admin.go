package rig

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/suaveplan/caddy-storage-mux/internal/acceptors"
)

// Admin calls Caddy's admin API and returns the status and the body.
func (c *Caddy) Admin(method, path, body string, header ...string) (int, string) {
	c.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), AnswerWithin)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://127.0.0.1:"+c.env["ADMIN"]+path, strings.NewReader(body))
	if err != nil {
		c.tb.Fatalf("admin %s %s: %v", method, path, err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := c.client.Do(req)
	for try := 1; err != nil && try < 5; try++ { // each reload starts the admin server anew
		<-time.After(50 * time.Millisecond)
		req.Body, _ = req.GetBody()
		resp, err = c.client.Do(req)
	}
	if err != nil {
		c.tb.Fatalf("admin %s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		c.tb.Fatalf("admin %s %s: %v", method, path, err)
	}
	return resp.StatusCode, string(answer)
}

// Load gives the process another Caddyfile and returns the error it answers with, or "".
func (c *Caddy) Load(config string) string {
	c.tb.Helper()
	return c.load(c.Document(config))
}

func (c *Caddy) load(document string) string {
	c.tb.Helper()
	status, body := c.Admin(http.MethodPost, "/load", document, "Content-Type", "text/caddyfile", "Cache-Control", "must-revalidate")
	if status == http.StatusOK {
		return ""
	}
	var answer struct {
		Error string `json:"error"`
	}
	if err := json.Unmarshal([]byte(body), &answer); err != nil || answer.Error == "" {
		return fmt.Sprintf("%d: %s", status, body)
	}
	return answer.Error
}

// Reload gives the process another Caddyfile, which must load.
func (c *Caddy) Reload(config string) {
	c.tb.Helper()
	old := c.accepting()
	if msg := c.Load(config); msg != "" {
		c.tb.Fatalf("reloading: %s", msg)
	}
	// While the servers of the old config shut down they still take some new
	// connections and close them unanswered, with any handler.
	c.Eventually(AnswerWithin, "the end of the old servers", func() error {
		for id := range c.accepting() {
			if old[id] {
				return fmt.Errorf("goroutine %s still takes connections", id)
			}
		}
		return nil
	})
	c.client.CloseIdleConnections()
}

// accepting returns the goroutines of the process that take connections.
func (c *Caddy) accepting() map[string]bool {
	c.tb.Helper()
	status, trace := c.Admin(http.MethodGet, "/debug/pprof/goroutine?debug=2", "")
	if status != http.StatusOK {
		c.tb.Fatalf("the goroutines of Caddy: %d", status)
	}
	return acceptors.In(trace)
}

// Goroutines returns how many goroutines the process has.
func (c *Caddy) Goroutines() int {
	c.tb.Helper()
	status, body := c.Admin(http.MethodGet, "/debug/pprof/goroutine?debug=1", "")
	var n int
	if _, err := fmt.Sscanf(body, "goroutine profile: total %d", &n); err != nil {
		c.tb.Fatalf("the goroutine profile is %d: %.100s", status, body)
	}
	return n
}

// Eventually calls check until it returns nil, or fails the test after within.
func (c *Caddy) Eventually(within time.Duration, what string, check func() error) {
	c.tb.Helper()
	deadline := time.Now().Add(within)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			c.tb.Fatalf("%s did not happen within %v: %v", what, within, err)
		}
		<-time.After(20 * time.Millisecond)
	}
}

// Descriptors returns how many files and connections the process has open whose name has that in it, or -1 where the system
// does not tell.
func (c *Caddy) Descriptors(name string) int {
	c.tb.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", c.cmd.Process.Pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return -1
	}
	n := 0
	for _, e := range entries {
		if target, err := os.Readlink(filepath.Join(dir, e.Name())); name == "" || err == nil && strings.Contains(target, name) {
			n++
		}
	}
	return n
}
