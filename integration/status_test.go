package integration_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/suaveplan/caddy-storage-mux/integration/rig"
)

const statusConfig = `
	storage_mux_status /status
	reverse_proxy /api/* 127.0.0.1:1 {
		lb_policy relay_breaker
		transport relay_breaker {
			failure_threshold 1
		}
	}
	storage_mux failover {
		name site
		cooldown 1h 1h
		on_miss next
		backend gone http http://127.0.0.1:1
		backend eu mux mirror {
			backend here memory
		}
	}`

// statusSite is a site with a status page.
func statusSite(t *testing.T) *rig.Caddy {
	t.Helper()
	return rig.Start(t, "http://:{$PORT} {\n"+statusConfig+"\n}\n")
}

// The page is whole in itself: what it may load is its own style and script, by their hashes, and events from where it came from.
func TestTheStatusPageStandsAlone(t *testing.T) {
	t.Parallel()
	c := statusSite(t)
	r := c.Get("/status")
	wantStatus(t, "GET", r, http.StatusOK)
	page, policy := string(r.Body), r.Header.Get("Content-Security-Policy")
	for tag, directive := range map[string]string{"style": "style-src", "script": "script-src"} {
		parts := regexp.MustCompile("(?s)<"+tag+">(.*?)</"+tag+">").FindAllStringSubmatch(page, -1)
		if len(parts) != 1 {
			t.Fatalf("%d elements %s", len(parts), tag)
		}
		sum := sha256.Sum256([]byte(parts[0][1]))
		if want := directive + " 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"; !strings.Contains(policy, want) {
			t.Errorf("the policy %q lacks %q", policy, want)
		}
	}
	if !strings.HasPrefix(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
		t.Errorf("policy = %q", policy)
	}
	for _, outside := range []string{"http://", "https://", " src=", " style=", " onload="} {
		if strings.Contains(strings.ReplaceAll(page, "http://127.0.0.1", ""), outside) {
			t.Errorf("the page has %q in it", outside)
		}
	}
	wantStatus(t, "HEAD", c.Head("/status"), http.StatusOK)
	wantStatus(t, "PUT", c.Put("/status", "x"), http.StatusMethodNotAllowed)
	wantStatus(t, "GET below it", c.Get("/status/x"), http.StatusServiceUnavailable) // a key, which one backend could not be asked for
}

func TestTheStatusPageShowsHowThingsStand(t *testing.T) {
	t.Parallel()
	c := statusSite(t)
	for range 3 {
		c.Get("/nothing")
		c.Get("/api/")
	}
	page := string(c.Get("/status").Body)
	for _, want := range []string{
		">site <", "├─ </span>gone", "<span class=\"state down\">down</span>", "connection refused", "next trial in", "└─ </span>eu <span class=\"twig\">mirror</span>",
		"   └─ </span>here", "→127.0.0.1:", ">OPEN</span>", "<title>failure",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
}

// What changes arrives as an event, and no open page holds up a reload or the end of Caddy.
func TestTheStatusPageIsLive(t *testing.T) {
	t.Parallel()
	c := statusSite(t)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	res, err := c.Open(ctx, rig.Request{Method: "GET", Path: "/status?events"})
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if got := res.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Fatalf("Content-Type = %q", got)
	}
	events := bufio.NewReader(res.Body)
	until := func(word string) {
		t.Helper()
		for {
			line, err := events.ReadString('\n')
			if err != nil {
				t.Fatalf("waiting for %q: %v", word, err)
			}
			if strings.HasPrefix(line, "data: ") && strings.Contains(line, word) {
				return
			}
		}
	}
	until(`<span class="state up">up</span>`)
	c.Get("/nothing")
	until(`<span class="state down">down</span>`)
	c.Reload("http://:{$PORT} {\n" + strings.Replace(statusConfig, "name site", "name other", 1) + "\n}\n")
	if _, err := events.WriteTo(new(strings.Builder)); err != nil {
		t.Errorf("the stream of the old config ends with %v", err)
	}
	res, err = c.Open(ctx, rig.Request{Method: "GET", Path: "/status?events"})
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	events.Reset(res.Body)
	until(">other <")
	if code := c.Stop(); code != 0 {
		t.Errorf("Caddy exits with %d while a page is open", code)
	}
}

// In a browser the page's own script runs under its policy, and says that it is live.
func TestTheStatusPageInABrowser(t *testing.T) {
	t.Parallel()
	browser, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("optional: there is no chromium here")
	}
	c := statusSite(t)
	c.Get("/nothing")
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-dev-shm-usage",
		"--user-data-dir="+t.TempDir(), "--timeout=8000", "--dump-dom", c.URL("/status")).Output()
	if err != nil {
		t.Fatalf("chromium: %v", err)
	}
	for _, want := range []string{`<span id="live" class="on">live</span>`, "gone", `<span class="state down">down</span>`} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the page in the browser lacks %q:\n%s", want, out)
		}
	}
}
