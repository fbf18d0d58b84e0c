package caddymux

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/storetest"
)

func TestOtherMethodsAre405WithAllow(t *testing.T) {
	for allow, option := range map[string]string{"GET, HEAD": "", "GET, HEAD, PUT, DELETE": "writable"} {
		c := run(t, "storage_mux memory: {\n"+option+"\n}")
		for _, method := range []string{"POST", "PATCH", "OPTIONS", "TRACE", "PROPFIND", "BREW"} {
			if got := c.expect(http.StatusMethodNotAllowed, method, "/x", ""); got.header.Get("Allow") != allow {
				t.Errorf("%s: Allow = %q, want %q", method, got.header.Get("Allow"), allow)
			}
		}
		if option == "" {
			c.expect(http.StatusMethodNotAllowed, "PUT", "/x", "")
			c.expect(http.StatusMethodNotAllowed, "DELETE", "/x", "")
		}
	}
}

func TestStatusReplaces200Only(t *testing.T) {
	c := run(t, `
	handle_path /203/* {
		storage_mux memory: {
			status 203
			writable
		}
	}
	storage_mux memory: {
		status 418
	}`)
	c.expect(http.StatusCreated, "PUT", "/203/x", "body")
	c.expect(http.StatusNonAuthoritativeInfo, "GET", "/203/x", "")
	c.expect(http.StatusPartialContent, "GET", "/203/x", "", "Range", "bytes=0-0")
	c.expect(http.StatusNotModified, "GET", "/203/x", "", "If-None-Match", "*")
	for _, fields := range [][]string{nil, {"Range", "bytes=0-0"}, {"If-None-Match", "*"}, {"If-Match", `"x"`}} {
		if got := c.expect(http.StatusTeapot, "GET", "/x", "", fields...); got.body != "body" || got.header.Get("Accept-Ranges") != "" {
			t.Errorf("GET with %v = %q, Accept-Ranges %q", fields, got.body, got.header.Get("Accept-Ranges"))
		}
	}
	c.expect(http.StatusNotFound, "GET", "/missing", "")
}

func TestPassThruCallsTheNextHandlerForAMissingObjectOnly(t *testing.T) {
	f := scripted(t, "passthru")
	c := run(t, `route {
		storage_mux {
			pass_thru
			writable
			backend f scripted passthru
			hide hidden
		}
		respond "next {http.storage_mux.error_code}" 203
	}`)
	c.expect(http.StatusCreated, "PUT", "/x", "body")
	c.expect(http.StatusOK, "GET", "/x", "")
	for _, target := range []string{"/missing", "/hidden", "/dir/"} {
		if got := c.expect(http.StatusNonAuthoritativeInfo, "GET", target, ""); got.body != "next STORAGE.KEY_NOT_FOUND" {
			t.Errorf("GET %s = %q", target, got.body)
		}
	}
	c.expect(http.StatusNonAuthoritativeInfo, "HEAD", "/missing", "")
	c.expect(http.StatusNotFound, "DELETE", "/missing", "")
	c.expect(http.StatusBadRequest, "GET", "/a%2Fb", "")
	f.Break(&muxcore.Error{Code: muxcore.CodeUnavailable})
	c.expect(http.StatusServiceUnavailable, "GET", "/missing", "")
}

func TestAnErrorRouteServesPagesAndWritesNothing(t *testing.T) {
	c := run(t, `
	route {
		error /fail* "broken" 502
		respond "fine"
	}
	handle_errors {
		rewrite * /page.html
		storage_mux {
			writable
			list
			backend d file {{dir}}/d
		}
	}`)
	c.file("d/page.html", "sorry")
	for _, method := range []string{"GET", "POST", "PUT", "DELETE", "OPTIONS"} {
		for _, fields := range [][]string{nil, {"Range", "bytes=0-1"}, {"If-None-Match", "*"}, {"If-Match", `"x"`}} {
			got := c.expect(http.StatusBadGateway, method, "/fail?list", "planted", fields...)
			if got.body != "sorry" || got.header.Get("Accept-Ranges") != "" {
				t.Errorf("%s = %q, Accept-Ranges %q", method, got.body, got.header.Get("Accept-Ranges"))
			}
		}
	}
	if got := c.expect(http.StatusBadGateway, "HEAD", "/fail", ""); got.length != 5 || got.body != "" {
		t.Errorf("HEAD = length %d, body %q", got.length, got.body)
	}
	c.expect(http.StatusOK, "GET", "/", "")
}

func TestErrorsAreCaddyErrors(t *testing.T) {
	f := scripted(t, "errors")
	c := run(t, `
	storage_mux {
		writable
		cooldown 1ms
		backend f scripted errors
	}
	handle_errors {
		header X-Code {http.storage_mux.error_code}
		header X-Outcome {http.storage_mux.outcome}
		respond "handled {err.status_code}" {err.status_code}
	}`)
	c.expect(http.StatusCreated, "PUT", "/x", "body")
	for _, tt := range []struct {
		code    muxcore.Code
		status  int
		outcome string
	}{
		{muxcore.CodeUnavailable, 503, "transient"},
		{muxcore.CodeBackendTimeout, 504, "timeout"},
		{muxcore.CodeKeyNotFound, 404, "semantic"},
		{muxcore.CodeInvalidKey, 400, "semantic"},
		{muxcore.CodeKeyConflict, 409, "semantic"},
		{muxcore.CodeTooLarge, 413, "semantic"},
		{muxcore.CodeUnsupported, 501, "semantic"},
		{muxcore.CodeDenied, 502, "semantic"},
		{muxcore.CodeCredentialExpired, 502, "semantic"},
		{muxcore.CodeReadOnly, 405, "semantic"},
	} {
		f.Mend()
		c.eventually("the backend is back", func() bool { return c.do("GET", "/x", "").status == http.StatusOK })
		f.Break(&muxcore.Error{Code: tt.code})
		for _, method := range []string{"GET", "HEAD"} {
			got := c.do(method, "/x", "")
			if got.status != tt.status || got.header.Get("X-Outcome") != tt.outcome {
				t.Errorf("%s: %s = %d %s, want %d %s", tt.code, method, got.status, got.header.Get("X-Outcome"), tt.status, tt.outcome)
			}
			if (tt.status == 503) != (got.header.Get("Retry-After") != "") {
				t.Errorf("%s: Retry-After = %q", tt.code, got.header.Get("Retry-After"))
			}
			if tt.status == 405 && got.header.Get("Allow") != "GET, HEAD" {
				t.Errorf("Allow = %q", got.header.Get("Allow"))
			}
			if got.header.Get("ETag") != "" || got.header.Get("Accept-Ranges") != "" {
				t.Errorf("%s: the error page has the object's fields: %v", tt.code, got.header)
			}
			if tt.outcome == "transient" || tt.outcome == "timeout" {
				break // the backend is down now: the next answer is another one
			}
		}
	}
}

func TestPlaceholdersTellWhoAnswered(t *testing.T) {
	c := run(t, `
	header {
		>X-Got "{http.storage_mux.tree} {http.storage_mux.backend} {http.storage_mux.attempts} {http.storage_mux.outcome} {http.storage_mux.error_code}"
		>X-Latency {http.storage_mux.latency_ms}
	}
	storage_mux {
		name tree
		cooldown 1h
		backend gone file {{dir}}/gone
		backend eu mux {
			backend d file {{dir}}/d
		}
	}`)
	c.file("d/x", "body")
	got := c.expect(http.StatusOK, "GET", "/x", "")
	if want := "tree eu.d 2 ok "; got.header.Get("X-Got") != strings.TrimSpace(want) {
		t.Errorf("placeholders = %q, want %q", got.header.Get("X-Got"), want)
	}
	if got.header.Get("X-Latency") == "" {
		t.Error("latency is missing")
	}
}

func TestABodyThatBreaksBeforeItsFirstByteIsAnError(t *testing.T) {
	f := scripted(t, "first")
	f.SetWaits(muxcore.WaitsNever) // the core does not read ahead
	c := run(t, "storage_mux {\n writable\n backend f scripted first\n}")
	c.expect(http.StatusCreated, "PUT", "/x", strings.Repeat("x", 100_000))
	f.From(muxcore.OpGet, 1, storetest.Cut(0, &muxcore.Error{Code: muxcore.CodeUnavailable}))
	got := c.expect(http.StatusServiceUnavailable, "GET", "/x", "")
	if got.header.Get("ETag") != "" {
		t.Errorf("the error has the object's ETag %q", got.header.Get("ETag"))
	}
}

func TestABodyThatBreaksLaterAbortsTheConnection(t *testing.T) {
	f := scripted(t, "later")
	c := run(t, "storage_mux {\n writable\n cooldown 1ms\n backend f scripted later\n}")
	c.expect(http.StatusCreated, "PUT", "/x", strings.Repeat("x", 100_000))
	for name, fault := range map[string]storetest.Fault{
		"error":     storetest.Cut(70_000, io.ErrUnexpectedEOF),
		"clean end": storetest.CutClean(70_000),
	} {
		f.Mend()
		c.eventually("the backend is back", func() bool { return c.do("HEAD", "/x", "").status == http.StatusOK })
		f.From(muxcore.OpGet, 1, fault)
		got, err := c.try("GET", "/x", nil)
		if err == nil || len(got.body) >= 100_000 || got.status != http.StatusOK {
			t.Errorf("%s: GET = %d, %d bytes, %v, want 200 and a broken body", name, got.status, len(got.body), err)
		}
	}
	if n := f.OpenBodies(); n != 0 {
		t.Errorf("%d bodies are still open", n)
	}
}
