package integration_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/integration/origin"
	"github.com/suaveplan/caddy-storage-mux/integration/rig"
)

// staleSite is a proxy whose error route answers from a mirror on disk: on
// {$PORT} as if nothing had happened, on {$PORT2} with the error's status.
const staleSite = `
(app) {
	reverse_proxy {$F1} {$F2} {
		lb_policy relay_breaker round_robin
		lb_retries 1
		transport relay_breaker {
			failure_threshold 3
			open_duration 1h
		}
	}
}
http://:{$PORT} {
	import app
	handle_errors 502 503 {
		@read method GET HEAD
		storage_mux @read {$DIR} {
			status 200
			pass_thru
		}
	}
}
http://:{$PORT2} {
	import app
	handle_errors 502 503 {
		storage_mux failover {$DIR}
	}
}
`

// A stale site instead of a 503: with every path open, the mirror answers.
func TestAStaleSiteInsteadOfA503(t *testing.T) {
	t.Parallel()
	f1, f2 := origin.New(t), origin.New(t)
	c := rig.Start(t, staleSite, rig.Env("F1", f1.Addr()), rig.Env("F2", f2.Addr()))
	page, index := []byte("<p>of yesterday</p>"), []byte("<p>start</p>")
	writeFile(t, c.Dir, "page.html", page)
	writeFile(t, c.Dir, "index.html", index)
	for _, f := range []*origin.Origin{f1, f2} {
		f.Put("/page.html", origin.Object{Body: []byte("<p>of today</p>")})
	}
	wantBody(t, "GET while the app is well", c.Get("/page.html"), http.StatusOK, []byte("<p>of today</p>"))

	f1.Refuse()
	f2.Refuse()
	for i := range 6 { // the first errors are the dial errors themselves
		wantBody(t, "GET while the app goes down", c.Get("/page.html"), http.StatusOK, page)
		if v := pathTo(t, c, f2); v.State == "OPEN" && i < 2 {
			t.Errorf("the second path opened at request %d", i+1)
		}
	}
	for _, f := range []*origin.Origin{f1, f2} {
		if v := pathTo(t, c, f); v.State != "OPEN" {
			t.Fatalf("a path is %s, want both OPEN", v.State)
		}
	}

	stale, plain := c, c.On("PORT2")
	wantBody(t, "GET", stale.Get("/page.html"), http.StatusOK, page)
	wantBody(t, "GET of the folder", stale.Get("/"), http.StatusOK, index)
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete} {
		r := stale.Do(rig.Request{Method: method, Path: "/page.html"})
		if r.Status != http.StatusServiceUnavailable || r.Header.Get("Retry-After") == "" || len(r.Body) != 0 {
			t.Errorf("%s = %d %q, Retry-After %q; nobody did what it asks for", method, r.Status, r.Body, r.Header.Get("Retry-After"))
		}
	}
	if r := stale.Head("/page.html"); r.Status != http.StatusOK || r.Header.Get("Content-Length") != "19" {
		t.Errorf("HEAD = %d, length %s", r.Status, r.Header.Get("Content-Length"))
	}
	if r := stale.Get("/page.html"); r.Header.Get("Retry-After") != "" {
		t.Errorf("the stale page says to come back after %s", r.Header.Get("Retry-After"))
	}
	if r := stale.Get("/page.html"); r.Header.Get("Content-Type") != "text/html; charset=utf-8" || r.Header.Get("ETag") == "" {
		t.Errorf("the stale page is sent with %v", r.Header)
	}
	// Nothing is made up: an error route that fails, too, leaves the error as it was.
	missing := stale.Get("/missing")
	wantStatus(t, "GET of what the mirror lacks", missing, http.StatusServiceUnavailable)
	if missing.Header.Get("Retry-After") == "" {
		t.Error("the 503 of what the mirror lacks has no Retry-After")
	}
	if log := c.Log.String(); strings.Contains(log, "KEY_NOT_FOUND") {
		t.Errorf("what the mirror lacks is an error in the log:\n%s", log)
	}

	r := plain.Get("/page.html")
	wantBody(t, "GET without the option", r, http.StatusServiceUnavailable, page)
	if r.Header.Get("Retry-After") == "" {
		t.Error("the 503 lacks Retry-After")
	}
	wantBody(t, "POST where the route is for all methods", plain.Do(rig.Request{Method: http.MethodPost, Path: "/page.html"}), http.StatusServiceUnavailable, page)
	if f1.Hits()+f2.Hits() != 1 {
		t.Errorf("%d requests reached the app, want the one before it went down", f1.Hits()+f2.Hits())
	}
}
