package integration_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/chromedp"

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
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
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
	if status, answer := c.Admin("DELETE", "/storage_mux/site/backends/gone", ""); status != http.StatusOK {
		t.Fatalf("removing a backend: %d %s", status, answer)
	}
	until(`└─ </span>gone</td><td class="wide"><span class="state wait">removed</span><div class="why">at run time</div></td><td colspan="9" class="none"></td></tr>`)
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
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(browser), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.UserDataDir(t.TempDir()))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	ctx, cancel = chromedp.NewExecAllocator(ctx, options...)
	defer cancel()
	ctx, cancel = chromedp.NewContext(ctx)
	defer cancel()
	var mu sync.Mutex
	var broken []string
	err = chromedp.Listen(ctx, func(event any) {
		if entry, ok := event.(*log.EventEntryAdded); ok && strings.Contains(entry.Entry.Text, "Content Security Policy") {
			mu.Lock()
			defer mu.Unlock()
			broken = append(broken, entry.Entry.Text)
		}
	})
	if err == nil {
		err = chromedp.Do(ctx, chromedp.EmulateViewport(360, 800), chromedp.Navigate(c.URL("/status")))
	}
	if err != nil {
		t.Fatalf("chromium: %v", err)
	}
	shows := func(selector string) {
		t.Helper()
		c.Eventually(soon, "the page shows "+selector, func() error {
			there, err := chromedp.Run(ctx, chromedp.Evaluate[bool](fmt.Sprintf("document.querySelector(%q) !== null", selector)))
			if err == nil && !there {
				err = errors.New("not there")
			}
			return err
		})
	}
	shows("#live.on")
	c.Get("/nothing") // which finds a backend down
	shows("td .state.down")
	phone, err := chromedp.Run(ctx, chromedp.Evaluate[string]("document.querySelector('main').innerText"))
	if err != nil || !strings.Contains(phone, "next trial in") {
		t.Errorf("the page on a phone: %v\n%s", err, phone)
	}
	if width, err := chromedp.Run(ctx, chromedp.Evaluate[int]("document.documentElement.scrollWidth")); err != nil || width > 360 {
		t.Errorf("the page is %d wide on a phone, %v", width, err)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(broken) > 0 {
		t.Errorf("against the policy: %q", broken)
	}
}
