package integration_test

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/integration/rig"
)

// raw sends a request line as it is, with a small body for PUT.
func raw(t *testing.T, c *rig.Caddy, method, target string) rig.Response {
	t.Helper()
	body := ""
	if method == http.MethodPut {
		body = "body"
	}
	r, err := c.Raw(fmt.Sprintf("%s %s HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", method, target, len(body), body), false)
	if err != nil {
		t.Fatalf("%s %s: %v", method, target, err)
	}
	return r
}

// badTargets are request targets whose path is no key.
var badTargets = map[string][]string{
	"case 75: empty segment":         {"/a//b", "//a", "/a///b"},
	"case 76: dot segment":           {"/../x", "/a/../b", "/a/./b", "/./a", "/a/..", "/a/.", "/..", "/."},
	"case 76: encoded dot segment":   {"/%2e%2e/x", "/.%2e/x", "/%2e./x", "/a/%2e/b", "/%2E%2E"},
	"case 77: way out of the root":   {"/..%2fetc/passwd", "/..%2f..%2fetc%2fpasswd", "/%5c..%5c..%5cetc%5cpasswd", "/a/..%5c..%5cx"},
	"case 78: encoded slash":         {"/a%2Fb", "/a%2fb", "/%2F", "/a/%2Fb"},
	"case 82: backslash":             {"/a%5Cb", "/a%5cb", `/a\b`},
	"control character":              {"/a%00b", "/a%0Ab", "/a%0db", "/a%1Fb", "/a%7Fb"},
	"no UTF-8":                       {"/%ff", "/a%C3", "/%ed%a0%80"},
	"reserved":                       {"/.storage_mux", "/.storage_mux/x", "/a/.storage_mux-x/b", "/.storage_muxed", "/%2Estorage_mux/x"},
	"longer than 1024 bytes":         {"/" + strings.Repeat("a/", 512) + "b", "/" + strings.Repeat("%61", 1025)},
	"way out after a harmless start": {"/ok/%2e%2e/%2e%2e/x"},
}

func TestCase075To082BadKeysAre400(t *testing.T) {
	t.Parallel()
	eachStore(t, stores(t, ""), func(t *testing.T, s store) {
		for name, targets := range badTargets {
			for _, target := range targets {
				for _, method := range []string{"GET", "HEAD", "PUT", "DELETE"} {
					if r := raw(t, s.Caddy, method, target); r.Status != http.StatusBadRequest {
						t.Errorf("%s: %s %.60s = %d, want 400", name, method, target, r.Status)
					}
				}
			}
		}
		for _, target := range []string{"/", "/a/"} { // reading tries the index there
			if r := raw(t, s.Caddy, "PUT", target); r.Status != http.StatusBadRequest {
				t.Errorf("PUT %s = %d, want 400", target, r.Status)
			}
		}
		if s.origin != nil && s.origin.Hits() > 0 {
			t.Errorf("a bad key reached the origin: %v", s.origin.Log()[0].Line)
		}
		// Nothing of it counted against the backend.
		wantStatus(t, "PUT afterwards", s.Put("/fine", "body"), http.StatusCreated)
	})
}

func TestTheLongestKeyIsStored(t *testing.T) {
	t.Parallel()
	eachStore(t, stores(t, ""), func(t *testing.T, s store) {
		path := "/" + strings.Repeat("abc/", 255) + "abcd" // 1024 bytes
		wantStatus(t, "PUT", s.Put(path, "body"), http.StatusCreated)
		wantBody(t, "GET", s.Get(path), http.StatusOK, []byte("body"))
	})
}

// oddKeys are keys that must come out as they went in, each an object of its own.
var oddKeys = []string{
	"a b", "a+b", "a%2Bb", "a%20b", "100%", "a&b", "a;b=c", "a,b", "a'b", "a@b", "a$b", "a!b", "a(b)", "[a]", "{a}", "{env.HOME}",
	"a=b", "~a", "^a", "`a", "h#x", "..a", "a..b", ".hidden", "\u00e9", "e\u0301", "\u65e5\u672c", "\U0001f600", "a\u00a0b", "-", "_", "a/b c/d+e",
}

// windowsForms are keys that the file backend may refuse, as Windows would.
var windowsForms = []string{"...", "q?x", `a"b`, "a<b>", "a|b", "a*b", "c:d"}

func TestCase080And081OddKeysRoundTrip(t *testing.T) {
	t.Parallel()
	eachStore(t, stores(t, ""), func(t *testing.T, s store) {
		keys := slices.Clone(oddKeys)
		if s.name != "file" {
			keys = append(keys, windowsForms...)
		}
		for _, key := range keys {
			path := (&url.URL{Path: "/" + key}).EscapedPath()
			wantStatus(t, fmt.Sprintf("PUT of %q", key), s.Put(path, key), http.StatusCreated)
		}
		for _, key := range keys {
			path := (&url.URL{Path: "/" + key}).EscapedPath()
			wantBody(t, fmt.Sprintf("GET of %q", key), s.Get(path), http.StatusOK, []byte(key))
		}
		if s.origin == nil {
			want := slices.Sorted(slices.Values(keys))
			if got := list(t, s.Caddy, "/?list").keys(); !slices.Equal(got, want) {
				t.Errorf("listed keys\n%q, want\n%q", got, want)
			}
			return
		}
		for _, req := range s.origin.Log() {
			if req.Method != http.MethodGet && req.Method != http.MethodPut {
				continue
			}
			if !slices.Contains(keys, strings.TrimPrefix(req.Path, "/")) || strings.ContainsAny(req.Target, "?# \"<>") {
				t.Errorf("request line %q stands for the key %q", req.Line, req.Path)
			}
		}
	})
}

func TestCase083NoKeyIsNormalized(t *testing.T) {
	t.Parallel()
	eachStore(t, stores(t, ""), func(t *testing.T, s store) {
		wantStatus(t, "PUT", s.Put("/caf%C3%A9", "composed"), http.StatusCreated)
		wantMissing(t, s.Caddy, "/cafe%CC%81")
		if s.name == "file" && runtime.GOOS != "linux" {
			return // other systems' file systems fold case
		}
		wantMissing(t, s.Caddy, "/CAF%C3%A9")
	})
}

// Names that Windows reads in its own way are refused by the file backend on
// every system, and are ordinary keys elsewhere.
func TestCase082WindowsFormsAreNoKeysOfTheFileBackend(t *testing.T) {
	t.Parallel()
	targets := []string{
		"/x.txt::$DATA", "/x.txt.", "/x.txt%20", "/CON", "/con", "/nul.txt", "/COM1", "/lpt9.x", "/aux/x", "/a/PRN", "/c:x",
		"/" + strings.Repeat("n", 256),
	}
	eachStore(t, stores(t, ""), func(t *testing.T, s store) {
		for _, target := range targets {
			put, get := raw(t, s.Caddy, "PUT", target), raw(t, s.Caddy, "GET", target)
			if s.name != "file" {
				if put.Status != http.StatusCreated || get.Status != http.StatusOK {
					t.Errorf("%s: PUT = %d, GET = %d, want 201 and 200", target, put.Status, get.Status)
				}
				continue
			}
			if put.Status != http.StatusBadRequest {
				t.Errorf("PUT %.40s = %d, want 400", target, put.Status)
			}
			if get.Status != http.StatusBadRequest && get.Status != http.StatusNotFound {
				t.Errorf("GET %.40s = %d, want 400 or 404", target, get.Status)
			}
		}
	})
}

func TestAKeyBelowAnObjectIsAConflict(t *testing.T) {
	t.Parallel()
	c := rig.Start(t, oneDirectory)
	wantStatus(t, "PUT", c.Put("/x", "body"), http.StatusCreated)
	wantStatus(t, "PUT below an object", c.Put("/x/y", "body"), http.StatusConflict)
	wantStatus(t, "PUT far below an object", c.Put("/x/y/z", "body"), http.StatusConflict)
	wantStatus(t, "PUT of another", c.Put("/d/e/f", "body"), http.StatusCreated)
	wantStatus(t, "PUT above keys", c.Put("/d", "body"), http.StatusConflict)
	wantMissing(t, c, "/x/y")
	wantMissing(t, c, "/d/e")
	wantStatus(t, "DELETE above keys", c.Delete("/d"), http.StatusNotFound)
	wantBody(t, "GET", c.Get("/x"), http.StatusOK, []byte("body"))
	// Where nothing is left, the folders are no obstacle either.
	wantStatus(t, "DELETE", c.Delete("/d/e/f"), http.StatusNoContent)
	wantStatus(t, "PUT above what was", c.Put("/d", "body"), http.StatusCreated)
}

// Row 77: no symbolic link leads out of the root.
func TestCase077SymlinksDoNotLeadOut(t *testing.T) {
	t.Parallel()
	c := rig.Start(t, oneDirectory)
	writeFile(t, c.Dir, "outside/secret", []byte("secret"))
	writeFile(t, c.Dir, "d/x", []byte("body"))
	for name, target := range map[string]string{
		"dirlink": filepath.Join(c.Dir, "outside"), "filelink": filepath.Join(c.Dir, "outside", "secret"),
		"rellink": "../outside", "etc": "/etc", "loop": "loop",
	} {
		if err := os.Symlink(target, filepath.Join(c.Dir, "d", name)); err != nil {
			t.Skipf("no symbolic links here: %v", err)
		}
	}
	for _, path := range []string{"/dirlink/secret", "/filelink", "/rellink/secret", "/etc/passwd", "/loop", "/loop/x"} {
		if r := c.Get(path); r.Status != http.StatusNotFound && r.Status != http.StatusBadRequest {
			t.Errorf("GET %s = %d %q, want 404", path, r.Status, r.Body)
		}
	}
	for _, path := range []string{"/dirlink/new", "/rellink/new", "/filelink"} {
		c.Put(path, "planted")
	}
	if got := filesBelow(t, filepath.Join(c.Dir, "outside")); !slices.Equal(got, []string{"secret"}) {
		t.Errorf("outside the root there are %v", got)
	}
	if b, err := os.ReadFile(filepath.Join(c.Dir, "outside", "secret")); err != nil || string(b) != "secret" {
		t.Errorf("the file outside is now %q, %v", b, err)
	}
	wantBody(t, "GET afterwards", c.Get("/x"), http.StatusOK, []byte("body"))
}

// Row 86: no answer of the object store redirects.
func TestCase086NothingRedirects(t *testing.T) {
	t.Parallel()
	eachStore(t, stores(t, ""), func(t *testing.T, s store) {
		s.Put("/noext", "body")
		s.Put("/dir/index.html", "index")
		for path, want := range map[string]int{"/noext": 200, "/dir": 404, "/noext/": 404, "/dir/index.html": 200, "/dir/": 200} {
			wantStatus(t, "GET "+path, s.Get(path), want)
		}
	})
}

func TestOddRequestsAreNever500(t *testing.T) {
	t.Parallel()
	eachStore(t, stores(t, ""), func(t *testing.T, s store) {
		s.Put("/x", "body")
		for _, request := range []string{
			"GET http://a/x HTTP/1.1\r\nHost: a\r\n",
			"GET /x?a=%zz&list=1;b HTTP/1.1\r\nHost: a\r\n",
			"GET /x%zz HTTP/1.1\r\nHost: a\r\n",
			"GET /%u0041 HTTP/1.1\r\nHost: a\r\n",
			"OPTIONS * HTTP/1.1\r\nHost: a\r\n",
			"CONNECT a:80 HTTP/1.1\r\nHost: a\r\n",
			"GET /x HTTP/1.0\r\n",
			"PRI * HTTP/2.0\r\n\r\nSM\r\n",
			"get /x HTTP/1.1\r\nHost: a\r\n",
			"PUT /y HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n",
			"PUT /y HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n",
			"PUT /y HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n",
			"GET /x HTTP/1.1\r\nHost: a\r\nIf-Modified-Since: \r\nRange: bytes=\r\nIf-None-Match: \"\r\n",
			"GET /x HTTP/1.1\r\nHost: a\r\nRange: bytes=0-1\r\nRange: bytes=2-3\r\n",
			"GET /x HTTP/1.1\r\nHost: a\r\nRange: bytes=" + strings.Repeat("0-0,", 5000) + "1-1\r\n",
		} {
			r, err := s.Raw(request+"Connection: close\r\n\r\n", true)
			// 501 is net/http's own word about codings it does not know.
			if err != nil || r.Status >= 500 && r.Status != http.StatusNotImplemented {
				t.Errorf("%.60q = %d, %v", request, r.Status, err)
			}
		}
		wantBody(t, "GET afterwards", s.Get("/x"), http.StatusOK, []byte("body"))
		wantMissing(t, s.Caddy, "/y")
	})
}
