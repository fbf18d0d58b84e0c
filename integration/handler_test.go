package integration_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/integration/origin"
	"github.com/suaveplan/caddy-storage-mux/integration/rig"
)

func TestOneLinersServeLocations(t *testing.T) {
	t.Parallel()
	f1 := origin.New(t)
	f1.Put("/base/x", origin.Object{Body: []byte("http")})
	c := rig.Start(t, `
http://:{$PORT} {
	header >X-Backend {http.storage_mux.backend}
	storage_mux * {$DIR}/a {$DIR}/b
}
http://:{$PORT2} {
	header >X-Backend {http.storage_mux.backend}
	storage_mux failover {$F1}/base memory:
}
http://:{$PORT3} {
	header >X-Backend {http.storage_mux.backend}
	storage_mux ./a
}
`, rig.Env("F1", f1.URL()))
	writeFile(t, c.Dir, "b/x", []byte("b"))
	for _, tt := range []struct{ port, backend, body string }{
		{"PORT", "b", "b"}, // the first directory does not exist, which is a failure
		{"PORT2", "", "http"},
	} {
		r := c.On(tt.port).Get("/x")
		wantBody(t, "GET on "+tt.port, r, http.StatusOK, []byte(tt.body))
		if got := r.Header.Get("X-Backend"); tt.backend != "" && got != tt.backend {
			t.Errorf("%s: answered by %q, want %q", tt.port, got, tt.backend)
		}
	}
	writeFile(t, c.Dir, "a/x", []byte("a"))
	wantBody(t, "GET of a relative location", c.On("PORT3").Get("/x"), http.StatusOK, []byte("a"))
}

func TestMatchersAndOrderAreThoseOfFileServer(t *testing.T) {
	t.Parallel()
	c := rig.Start(t, `
		storage_mux /files/* {
			backend d file {$DIR}
		}
		respond /api/* "api"
		file_server {
			root {$DIR}/other
		}`)
	writeFile(t, c.Dir, "files/x", []byte("files"))
	writeFile(t, c.Dir, "other/y", []byte("other"))
	for path, want := range map[string]string{"/files/x": "files", "/api/x": "api", "/y": "other"} {
		wantBody(t, "GET "+path, c.Get(path), http.StatusOK, []byte(want))
	}
}

func TestPrefixIsPutBeforeEveryKey(t *testing.T) {
	t.Parallel()
	for _, prefix := range []string{"assets/v1", "/assets/v1/"} {
		t.Run(prefix, func(t *testing.T) {
			t.Parallel()
			c := rig.Start(t, `
				storage_mux {
					prefix `+prefix+`
					writable
					list
					backend d file {$DIR}
				}`)
			wantStatus(t, "PUT", c.Put("/x", "body"), http.StatusCreated)
			if got := fmt.Sprint(filesBelow(t, c.Dir)); got != "[assets/v1/x]" {
				t.Errorf("stored files: %s", got)
			}
			wantBody(t, "GET", c.Get("/x"), http.StatusOK, []byte("body"))
			writeFile(t, c.Dir, "outside", []byte("body"))
			wantStatus(t, "GET of a way out", raw(t, c, "GET", "/../../outside"), http.StatusBadRequest)
			wantStatus(t, "DELETE", c.Delete("/x"), http.StatusNoContent)
		})
	}
}

func TestPrefixAndIndexTakePlaceholders(t *testing.T) {
	t.Parallel()
	c := rig.Start(t, `
		storage_mux {
			prefix sites/{http.request.host}
			index {query.page}.html index.html
			backend d file {$DIR}
		}`)
	writeFile(t, c.Dir, "sites/a.example/x", []byte("of a"))
	writeFile(t, c.Dir, "sites/b.example/x", []byte("of b"))
	writeFile(t, c.Dir, "sites/a.example/two.html", []byte("page two"))
	for host, want := range map[string]string{"a.example": "of a", "b.example": "of b"} {
		wantBody(t, "GET for "+host, c.Get("/x", "Host", host), http.StatusOK, []byte(want))
	}
	wantStatus(t, "GET for another host", c.Get("/x", "Host", "c.example"), http.StatusNotFound)
	wantBody(t, "GET of the index", c.Get("/?page=two", "Host", "a.example"), http.StatusOK, []byte("page two"))
	if r, err := c.Raw("GET /x HTTP/1.1\r\nHost: ..\r\nConnection: close\r\n\r\n", false); err != nil || r.Status != http.StatusBadRequest {
		t.Errorf("GET with a host that is a dot segment = %d, %v, want 400", r.Status, err)
	}
}

func TestIndexFilesAreTriedForAPathThatEndsInASlash(t *testing.T) {
	t.Parallel()
	c := rig.Start(t, `
http://:{$PORT} {
	storage_mux {
		backend d file {$DIR}
	}
}
http://:{$PORT2} {
	storage_mux {
		index first.html second.html
		backend d file {$DIR}
	}
}
http://:{$PORT3} {
	storage_mux {
		index off
		backend d file {$DIR}
	}
}
`)
	writeFile(t, c.Dir, "index.html", []byte("top"))
	writeFile(t, c.Dir, "sub/index.html", []byte("sub"))
	writeFile(t, c.Dir, "sub/second.html", []byte("second"))
	wantBody(t, "GET /", c.Get("/"), http.StatusOK, []byte("top"))
	r := c.Get("/sub/")
	wantBody(t, "GET /sub/", r, http.StatusOK, []byte("sub"))
	if got := r.Header.Get("Content-Type"); got != "text/html; charset=utf-8" {
		t.Errorf("Content-Type of the index = %q", got)
	}
	wantBody(t, "GET /sub/ with two names", c.On("PORT2").Get("/sub/"), http.StatusOK, []byte("second"))
	wantMissing(t, c.On("PORT2"), "/")
	for _, path := range []string{"/", "/sub/"} {
		if r := c.On("PORT3").Get(path); r.Status != http.StatusNotFound && r.Status != http.StatusBadRequest {
			t.Errorf("GET %s with index off = %d", path, r.Status)
		}
	}
}

func TestHiddenKeysAreNotThere(t *testing.T) {
	t.Parallel()
	c := rig.Start(t, `
		storage_mux {
			hide *.secret private .git
			writable
			list
			backend d file {$DIR}
		}`)
	for _, name := range []string{"a.secret", "private/x", "sub/private/x", ".git/config", "sub/b.secret", "open", "privately"} {
		writeFile(t, c.Dir, name, []byte("body"))
	}
	for _, path := range []string{"/a.secret", "/private/x", "/sub/private/x", "/.git/config", "/sub/b.secret"} {
		wantMissing(t, c, path)
		wantStatus(t, "DELETE "+path, c.Delete(path), http.StatusNotFound)
		if r := c.Put(path, "planted"); r.Status < 400 || r.Status >= 500 {
			t.Errorf("PUT %s = %d", path, r.Status)
		}
	}
	for _, path := range []string{"/open", "/privately"} {
		wantBody(t, "GET "+path, c.Get(path), http.StatusOK, []byte("body"))
	}
	if got := fmt.Sprint(keysIn(t, c, "/?list")); got != "[open privately]" {
		t.Errorf("listed keys: %s", got)
	}
}

// Like file_server, the handler never gives away the Caddyfile in use.
func TestTheCaddyfileInUseIsHidden(t *testing.T) {
	t.Parallel()
	c := rig.Start(t, `
		storage_mux {
			backend d file {$HOME}
		}`)
	writeFile(t, c.Word("HOME"), "open", []byte("body"))
	wantMissing(t, c, "/Caddyfile")
	wantBody(t, "GET", c.Get("/open"), http.StatusOK, []byte("body"))
}

func TestPassThruHandsAMissingKeyOn(t *testing.T) {
	t.Parallel()
	f1 := origin.New(t)
	f1.Put("/x", origin.Object{Body: []byte("body")})
	c := rig.Start(t, `
		route {
			storage_mux {
				pass_thru
				cooldown 1h
				backend f1 http {$F1}
			}
			respond "the next one" 203
		}`, rig.Env("F1", f1.URL()))
	wantBody(t, "GET", c.Get("/x"), http.StatusOK, []byte("body"))
	wantBody(t, "GET of a missing key", c.Get("/missing"), http.StatusNonAuthoritativeInfo, []byte("the next one"))
	f1.Refuse()
	wantStatus(t, "GET with the origin down", c.Get("/x"), http.StatusServiceUnavailable)
}

func TestStatusReplaces200(t *testing.T) {
	t.Parallel()
	c := rig.Start(t, `
		storage_mux {
			status 418
			backend d file {$DIR}
		}`)
	writeFile(t, c.Dir, "x", []byte("body"))
	wantBody(t, "GET", c.Get("/x"), http.StatusTeapot, []byte("body"))
	wantMissing(t, c, "/missing")
}

func TestErrorsReachHandleErrors(t *testing.T) {
	t.Parallel()
	f1 := origin.New(t)
	c := rig.Start(t, `
		storage_mux {
			writable
			backend f1 http {$F1}
		}
		handle_errors {
			respond "handled {err.status_code}" {err.status_code}
		}`, rig.Env("F1", f1.URL()))
	wantBody(t, "GET of a missing key", c.Get("/missing"), http.StatusNotFound, []byte("handled 404"))
	wantBody(t, "GET of a bad key", raw(t, c, "GET", "/a//b"), http.StatusBadRequest, []byte("handled 400"))
	r := c.Do(rig.Request{Method: "POST", Path: "/x"})
	wantBody(t, "POST", r, http.StatusMethodNotAllowed, []byte("handled 405"))
	if r.Header.Get("Allow") == "" {
		t.Error("no Allow")
	}
	f1.Refuse()
	r = c.Get("/x")
	wantBody(t, "GET with the origin down", r, http.StatusServiceUnavailable, []byte("handled 503"))
	if r.Header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
}

// In an error route the store serves the error page: the error's status, the
// whole page, and nothing is written.
func TestAnErrorRouteServesPages(t *testing.T) {
	t.Parallel()
	c := rig.Start(t, `
		route {
			error /fail* "broken" 502
			respond "fine"
		}
		handle_errors {
			rewrite * /{err.status_code}.html
			storage_mux {
				writable
				backend d file {$DIR}
			}
		}`)
	page := []byte("<h1>sorry</h1>")
	writeFile(t, c.Dir, "502.html", page)
	tag := c.Get("/fail").Header.Get("ETag")
	for _, r := range []rig.Request{
		{Method: "GET", Path: "/fail"},
		{Method: "POST", Path: "/fail"},
		{Method: "PUT", Path: "/fail"},
		{Method: "DELETE", Path: "/fail"},
		{Method: "GET", Path: "/fail", Header: []string{"Range", "bytes=0-1"}},
		{Method: "GET", Path: "/fail", Header: []string{"If-None-Match", tag}},
		{Method: "GET", Path: "/fail", Header: []string{"If-Match", `"other"`}},
	} {
		wantBody(t, fmt.Sprint(r.Method, r.Header), c.Do(r), http.StatusBadGateway, page)
	}
	wantStatus(t, "HEAD", c.Head("/fail"), http.StatusBadGateway)
	if got := fmt.Sprint(filesBelow(t, c.Dir)); got != "[502.html]" {
		t.Errorf("files: %s", got)
	}
	wantBody(t, "GET without an error", c.Get("/"), http.StatusOK, []byte("fine"))
}
