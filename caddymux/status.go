package caddymux

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // of the page
	"encoding/base64"
	"fmt"
	"html/template"
	"net/http"
	"strconv"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/suaveplan/caddy-storage-mux/muxcore/breaker"
)

const statusDirective = "storage_mux_status"

func init() {
	caddy.RegisterModule(new(Status))
}

const (
	// statusInterval is how often a live page is looked after.
	statusInterval = time.Second

	// statusPatience is how long a reader may take.
	statusPatience = 10 * time.Second

	// statusKeepAlive is how often something is sent if nothing changes.
	statusKeepAlive = 15 * time.Second
)

var (
	//go:embed status/page.html
	statusPageHTML string
	//go:embed status/main.html
	statusMainHTML string
	//go:embed status/page.css
	statusCSS string
	//go:embed status/page.js
	statusJS string

	statusPage = template.Must(template.New("page").Parse(statusPageHTML))
	statusMain = template.Must(template.New("main").Parse(statusMainHTML))

	// statusPolicy lets the page have its own style and script, events from where it came from, and nothing else.
	statusPolicy = fmt.Sprintf("default-src 'none'; style-src '%s'; script-src '%s'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
		sourceHash(statusCSS), sourceHash(statusJS))
)

func sourceHash(source string) string {
	sum := sha256.Sum256([]byte(source))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// Status serves one page that shows the storage trees and the breakers of the running config as they stand: each backend's state
// and why, when it is tried next, its latency, its share of the traffic and what it has yet to be brought, and each breaker's state
// and last outcomes. The page needs nothing from elsewhere, is live where scripts run and a plain table where not, and changes nothing. It
// has no access control of its own: put `basic_auth` or a matcher in front of it.
type Status struct{}

// CaddyModule returns the Caddy module information.
func (*Status) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.handlers.storage_mux_status",
		New: func() caddy.Module { return new(Status) },
	}
}

// Provision implements caddy.Provisioner.
func (*Status) Provision(ctx caddy.Context) error {
	_, err := appOf(ctx) // it knows the trees, also of a config without any
	return err
}

func parseStatusDirective(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	s := new(Status)
	return s, s.UnmarshalCaddyfile(h.Dispenser)
}

// UnmarshalCaddyfile sets up the handler from Caddyfile tokens:
//
//	storage_mux_status [<matcher>]
func (*Status) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	if d.NextArg() {
		return d.Errf("%s: unexpected word %q", statusDirective, d.Val())
	}
	if d.NextBlock(0) {
		return d.Errf("%s has no options, got %q", statusDirective, d.Val())
	}
	return nil
}

// ServeHTTP answers with the page, or with `?events` with what changes of it as server-sent events.
func (s *Status) ServeHTTP(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		return caddyhttp.Error(http.StatusMethodNotAllowed, fmt.Errorf("method %s is not allowed here", r.Method))
	}
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if r.Method == http.MethodGet && r.URL.Query().Has("events") {
		return s.events(w, r)
	}
	now := time.Now()
	main, err := statusNow(now).html()
	if err != nil {
		return caddyhttp.Error(http.StatusInternalServerError, err)
	}
	var page bytes.Buffer
	err = statusPage.Execute(&page, map[string]any{
		"Title": "Storage and breakers", "At": now.UTC().Format(timeLayout + " UTC"), "Main": main,
		"CSS": template.CSS(statusCSS), "JS": template.JS(statusJS), //nolint:gosec // our own files
	})
	if err != nil {
		return caddyhttp.Error(http.StatusInternalServerError, err)
	}
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(page.Len()))
	h.Set("Content-Security-Policy", statusPolicy)
	h.Set("Referrer-Policy", "no-referrer")
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodGet {
		_, _ = page.WriteTo(w) // the client may be gone
	}
	return nil
}

// events sends the page's content whenever it changes, until the client goes or the config does: a server that stops waits for its
// requests, so that none may go on for longer.
func (*Status) events(w http.ResponseWriter, r *http.Request) error {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	stream := http.NewResponseController(w)
	app := activeApp()
	ticker := time.NewTicker(statusInterval)
	defer ticker.Stop()
	var last template.HTML
	quiet := time.Duration(0)
	for {
		main, err := statusNow(time.Now()).html() //nolint:contextcheck // a tree outlives requests
		if err != nil {
			return err
		}
		// In place of the server's, which is for a whole answer: whoever stops reading must not keep the old config, or Caddy itself.
		_ = stream.SetWriteDeadline(time.Now().Add(statusPatience))
		switch {
		case main != last:
			_, err = fmt.Fprintf(w, "retry: 1000\ndata: %s\n\n", main)
			last, quiet = main, 0
		case quiet >= statusKeepAlive:
			_, err = fmt.Fprint(w, ": as before\n\n")
			quiet = 0
		}
		if err == nil {
			err = stream.Flush()
		}
		if err != nil {
			return nil // the client is gone
		}
		select {
		case <-r.Context().Done():
			return nil
		case <-ticker.C:
			quiet += statusInterval
		}
		if caddy.Exiting() || activeApp() != app {
			return nil
		}
	}
}

// statusNow is how everything stands.
func statusNow(now time.Time) *statusView {
	v := new(statusView)
	for _, t := range activeTrees() {
		if t = t.peek(); t != nil {
			stats := t.store.Stats()
			t.release()
			v.Trees = append(v.Trees, viewTree(t.name, &stats, now))
		}
	}
	snapshots := activeBreakers()
	for i := range snapshots {
		v.Breakers = append(v.Breakers, viewBreaker(&snapshots[i], now))
	}
	return v
}

// activeBreakers are those of the running config.
func activeBreakers() []breaker.Snapshot {
	ctx := caddy.ActiveContext()
	if ctx.Context == nil {
		return nil
	}
	app, err := ctx.AppIfConfigured("relay_breaker")
	if err != nil {
		return nil // a config without breakers
	}
	if shown, ok := app.(interface{ Snapshots() []breaker.Snapshot }); ok {
		return shown.Snapshots()
	}
	return nil
}

// Interface guards.
var (
	_ caddy.Provisioner           = (*Status)(nil)
	_ caddyfile.Unmarshaler       = (*Status)(nil)
	_ caddyhttp.MiddlewareHandler = (*Status)(nil)
)
