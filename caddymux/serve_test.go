package caddymux

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/storetest"
)

func TestAnUploadIsReadBack(t *testing.T) {
	c := run(t, "storage_mux memory: {\n writable\n list\n}")
	put := c.expect(http.StatusCreated, "PUT", "/a/b.txt", "hello", "Cache-Control", "max-age=5", "X-Meta-Colour", "Red")
	etag := put.header.Get("ETag")
	if etag == "" {
		t.Error("PUT gave no ETag")
	}
	got := c.expect(http.StatusOK, "GET", "/a/b.txt", "")
	if got.body != "hello" {
		t.Errorf("body = %q, want hello", got.body)
	}
	for name, want := range map[string]string{
		"ETag": etag, "Cache-Control": "max-age=5", "X-Meta-Colour": "Red", "Content-Length": "5", "Accept-Ranges": "bytes",
		"Content-Type": "text/plain; charset=utf-8", "Vary": "Accept-Encoding",
	} {
		if got.header.Get(name) != want {
			t.Errorf("%s = %q, want %q", name, got.header.Get(name), want)
		}
	}
	c.expect(http.StatusNoContent, "PUT", "/a/b.txt", "again")
	c.expect(http.StatusNoContent, "DELETE", "/a/b.txt", "")
	c.expect(http.StatusNotFound, "GET", "/a/b.txt", "")
	c.expect(http.StatusNotFound, "DELETE", "/a/b.txt", "")
}

func TestHeadHasTheFieldsOfGet(t *testing.T) {
	c := run(t, "storage_mux {\n writable\n backend m memory\n backend d file {{dir}}/d {\n create_root\n }\n}")
	c.expect(http.StatusCreated, "PUT", "/x", strings.Repeat("x", 1000), "Content-Language", "de", "X-Meta-A-B", "c")
	c.expect(http.StatusCreated, "PUT", "/empty.html", "")
	for _, path := range []string{"/x", "/empty.html", "/missing"} {
		for _, fields := range [][]string{nil, {"Range", "bytes=1-5"}, {"Range", "bytes=1-5,7-8"}, {"Range", "bytes=9999-"}, {"If-None-Match", "*"}, {"If-Match", `"x"`}} {
			get, head := c.do("GET", path, "", fields...), c.do("HEAD", path, "", fields...)
			for _, h := range []http.Header{get.header, head.header} {
				h.Del("Date")
				if get.status >= 400 {
					h.Del("Content-Length") // of the error's answer, which is Caddy's
				}
				if strings.HasPrefix(h.Get("Content-Type"), "multipart/") {
					h.Set("Content-Type", "multipart")
				}
			}
			if fmt.Sprint(get.status, get.header) != fmt.Sprint(head.status, head.header) {
				t.Errorf("%s %v\nHEAD = %d %v\nGET  = %d %v", path, fields, head.status, head.header, get.status, get.header)
			}
			if head.body != "" {
				t.Errorf("HEAD %s has the body %q", path, head.body)
			}
		}
	}
}

func TestBadKeysAre400(t *testing.T) {
	c := run(t, "storage_mux memory: {\n writable\n}")
	for _, target := range []string{
		"/a//b", "//a", "/../x", "/a/../b", "/a/./b", "/a/..", "/.", "/%2e%2e/x", "/.%2E/x", "/..%2fetc", "/%5c..%5c", "/a%2Fb", "/a%5Cb",
		"/a%00b", "/a%0Ab", "/%ff", "/.storage_mux/x", "/a/.storage_mux", "/%2Estorage_mux/x", "/" + strings.Repeat("a", 1025),
	} {
		for _, method := range []string{"GET", "HEAD", "PUT", "DELETE"} {
			// http.Client would clean the path.
			if got := c.raw(method + " " + target + " HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 400 ") {
				t.Errorf("%s %.40s = %.60q, want 400", method, target, got)
			}
		}
	}
	for _, target := range []string{"/", "/a/"} {
		c.expect(http.StatusBadRequest, "PUT", target, "x")
		c.expect(http.StatusBadRequest, "DELETE", target, "")
		c.expect(http.StatusNotFound, "GET", target, "")
	}
}

// raw sends bytes and reads the answer to its end.
func (c *client) raw(request string) string {
	c.t.Helper()
	conn, err := net.Dial("unix", c.socket)
	if err != nil {
		c.t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, request); err != nil {
		c.t.Fatal(err)
	}
	answer, _ := io.ReadAll(conn) // what came before a reset counts as well
	return string(answer)
}

func TestKeysAreDecodedOnce(t *testing.T) {
	c := run(t, "storage_mux memory: {\n writable\n list\n}")
	for target, key := range map[string]string{
		"/a+b": "a+b", "/a%20b": "a b", "/a%2Bb%2B": "a+b+", "/100%25": "100%", "/%2525": "%25", "/%E2%82%AC": "\u20ac", "/a%3Fb": "a?b", "/a%26b;c": "a&b;c",
	} {
		c.expect(http.StatusCreated, "PUT", target, key)
		if got := c.expect(http.StatusOK, "GET", target, ""); got.body != key {
			t.Errorf("GET %s = %q, want %q", target, got.body, key)
		}
		if list := c.expect(http.StatusOK, "GET", "/?list", ""); !strings.Contains(list.body, `"key":"`+key+`"`) {
			t.Errorf("list lacks %q: %s", key, list.body)
		}
	}
}

func TestRewritesCountNotTheOriginalPath(t *testing.T) {
	c := run(t, `
	handle_path /files/* {
		storage_mux memory: {
			writable
		}
	}
	handle /v1/* {
		uri strip_prefix /v1
		storage_mux memory: {
			writable
		}
	}`)
	c.expect(http.StatusCreated, "PUT", "/files/a%20b", "body")
	if got := c.expect(http.StatusOK, "GET", "/v1/a%20b", ""); got.body != "body" {
		t.Errorf("body = %q", got.body)
	}
	c.expect(http.StatusBadRequest, "GET", "/files/a%2Fb", "")
}

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

func TestIndexFilesAreTriedInOrder(t *testing.T) {
	c := run(t, `
	handle_path /off/* {
		storage_mux {
			name tree
			backend d file {{dir}}/d
			index off
		}
	}
	handle_path /two/* {
		storage_mux {
			name tree
			backend d file {{dir}}/d
			index {http.request.uri.query}.html second.html
		}
	}
	storage_mux {
		name tree
		backend d file {{dir}}/d
	}`)
	c.file("d/index.html", "top")
	c.file("d/sub/index.html", "sub")
	c.file("d/sub/second.html", "second")
	c.file("d/sub/asked.html", "asked")
	for target, want := range map[string]string{"/": "top", "/sub/": "sub", "/two/sub/": "second", "/two/sub/?asked": "asked"} {
		got := c.expect(http.StatusOK, "GET", target, "")
		if got.body != want || got.header.Get("Content-Type") != "text/html; charset=utf-8" {
			t.Errorf("GET %s = %q %q, want %q", target, got.header.Get("Content-Type"), got.body, want)
		}
	}
	for _, target := range []string{"/two/", "/off/", "/off/sub/", "/nowhere/", "/sub", "/index.html/"} {
		c.expect(http.StatusNotFound, "GET", target, "")
	}
}

// file writes a file below the test's folder.
func (c *client) file(name, body string) {
	c.t.Helper()
	full := filepath.Join(c.dir, name)
	if err := os.MkdirAll(filepath.Dir(full), 0o700); err != nil {
		c.t.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(body), 0o600); err != nil {
		c.t.Fatal(err)
	}
}

func TestPrefixIsPutBeforeEveryKey(t *testing.T) {
	c := run(t, `
	handle_path /all/* {
		storage_mux memory: {
			list
		}
	}
	storage_mux memory: {
		prefix /sites/{http.request.header.X-Site}/
		writable
		list
	}`)
	c.expect(http.StatusCreated, "PUT", "/x", "of a", "X-Site", "a")
	c.expect(http.StatusCreated, "PUT", "/x", "of b", "X-Site", "b")
	if got := c.expect(http.StatusOK, "GET", "/all/?list", ""); !strings.Contains(got.body, `"sites/a/x"`) || !strings.Contains(got.body, `"sites/b/x"`) {
		t.Errorf("all keys: %s", got.body)
	}
	if got := c.expect(http.StatusOK, "GET", "/?list", "", "X-Site", "a"); !strings.Contains(got.body, `"objects":[{"key":"x"`) {
		t.Errorf("keys of a: %s", got.body)
	}
	if got := c.expect(http.StatusOK, "GET", "/x", "", "X-Site", "b"); got.body != "of b" {
		t.Errorf("GET of b = %q", got.body)
	}
	// Whatever the client sends, it stays below the prefix.
	for _, site := range []string{"", "/", "/a", "..", ".", "a//b", "a/../b", ".storage_mux"} {
		for _, method := range []string{"GET", "PUT", "DELETE"} {
			if got := c.do(method, "/x", "", "X-Site", site); got.status != http.StatusBadRequest {
				t.Errorf("%s with the site %q = %d, want 400", method, site, got.status)
			}
		}
	}
	c.expect(http.StatusBadRequest, "GET", "/x", "")
	c.expect(http.StatusBadRequest, "GET", "/?list", "")
}

func TestHiddenKeysAreNotThereForAnyone(t *testing.T) {
	c := run(t, `storage_mux {
		hide *.secret .git private/*/x {{dir}}/d/abs {http.request.header.X-Hide}
		writable
		list
		backend d file {{dir}}/d
	}`)
	hidden := []string{"a.secret", "sub/b.secret", ".git/config", "sub/.git/x", "private/1/x", "private/2/x/deep", "abs/in", "dyn/in"}
	open := []string{"open", "secret", "private/1/y", "private/x", "sub/abs", "gitx"}
	for _, key := range append(hidden, open...) {
		c.file("d/"+key, "body")
	}
	for _, key := range hidden {
		for _, method := range []string{"GET", "HEAD", "PUT", "DELETE"} {
			c.expect(http.StatusNotFound, method, "/"+key, "x", "X-Hide", "dyn")
		}
	}
	for _, key := range open {
		c.expect(http.StatusOK, "GET", "/"+key, "", "X-Hide", "dyn")
	}
	list := c.expect(http.StatusOK, "GET", "/?list", "", "X-Hide", "dyn").body
	for _, key := range hidden {
		if strings.Contains(list, `"`+key+`"`) {
			t.Errorf("%s is listed", key)
		}
	}
	for _, key := range open {
		if !strings.Contains(list, `"`+key+`"`) {
			t.Errorf("%s is not listed: %s", key, list)
		}
	}
	c.expect(http.StatusOK, "GET", "/dyn/in", "")
}

func TestTheCaddyfileInUseIsHidden(t *testing.T) {
	dir := socketDir(t)
	if err := os.Symlink(dir, dir+"-link"); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = os.Remove(dir + "-link") })
	for _, root := range []string{dir, filepath.Dir(dir), dir + "-link"} {
		h := &Handler{Hide: []string{filepath.Join(dir, "Caddyfile")}}
		list, err := newHideList(h.Hide, []string{root})
		if err != nil {
			t.Fatal(err)
		}
		key := "Caddyfile"
		if root == filepath.Dir(dir) {
			key = filepath.Base(dir) + "/Caddyfile"
		}
		if root == dir+"-link" {
			if err := os.WriteFile(filepath.Join(dir, "Caddyfile"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			list, _ = newHideList(h.Hide, []string{root})
		}
		if !list.hides(key, nil) || list.hides("other/Caddyfile", nil) || list.hides("Caddyfile2", nil) {
			t.Errorf("root %s: hides(%q) = %v, others %v", root, key, list.hides(key, nil), list)
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

func TestSeveralRangesOfAnObjectWithoutAStrongValidatorAreTheWhole(t *testing.T) {
	f := scripted(t, "weak")
	c := run(t, "storage_mux {\n writable\n backend f scripted weak\n}")
	c.expect(http.StatusCreated, "PUT", "/x", alphabet)
	f.From(muxcore.OpStat, 1, storetest.ETag(`W/"weak"`))
	f.From(muxcore.OpGet, 1, storetest.ETag(`W/"weak"`))
	for _, method := range []string{"GET", "HEAD"} {
		if got := c.expect(http.StatusOK, method, "/x", "", "Range", "bytes=0-1,3-4"); got.length != 26 {
			t.Errorf("%s: length = %d, want 26", method, got.length)
		}
	}
}

func TestAnObjectReplacedBetweenItsRangesIsNeverMixed(t *testing.T) {
	f := scripted(t, "mixed")
	c := run(t, "storage_mux {\n writable\n backend f scripted mixed\n}")
	c.expect(http.StatusCreated, "PUT", "/x", alphabet)
	// Replaced after the Stat: the whole of the new one.
	f.On(muxcore.OpStat, 1, storetest.ETag(`"old"`))
	if got := c.expect(http.StatusOK, "GET", "/x", "", "Range", "bytes=0-1,3-4"); got.body != alphabet {
		t.Errorf("body = %q", got.body)
	}
	// Replaced after the first part: broken off.
	f.Mend()
	f.On(muxcore.OpGet, 2, storetest.FailCode(muxcore.CodePreconditionFailed))
	got := c.raw("GET /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\nRange: bytes=0-1,3-4\r\n\r\n") // a client would try again
	if strings.Contains(got, "--\r\n") || f.Calls(muxcore.OpGet) < 2 {
		t.Errorf("answer = %q after %d reads, want a broken one", got, f.Calls(muxcore.OpGet))
	}
}

func TestALengthThatNobodyKnowsIsNotAnnounced(t *testing.T) {
	f := scripted(t, "nolength")
	c := run(t, "storage_mux {\n writable\n backend f scripted nolength\n}")
	c.expect(http.StatusCreated, "PUT", "/x", strings.Repeat("x", 100_000))
	unknown := storetest.Describe(func(i *muxcore.Info) { i.Size = -1 })
	f.From(muxcore.OpStat, 1, unknown)
	f.From(muxcore.OpGet, 1, unknown, storetest.Answer(func(o *muxcore.Object) { o.Length = -1 }), storetest.IgnoreRange())
	for _, fields := range [][]string{nil, {"Range", "bytes=0-1"}, {"Range", "bytes=0-1,3-4"}} {
		got := c.expect(http.StatusOK, "GET", "/x", "", fields...)
		if got.length != -1 || len(got.body) != 100_000 || got.header.Get("Accept-Ranges") != "" {
			t.Errorf("%v: length %d, %d bytes, Accept-Ranges %q", fields, got.length, len(got.body), got.header.Get("Accept-Ranges"))
		}
		if head := c.expect(http.StatusOK, "HEAD", "/x", "", fields...); head.header.Get("Content-Length") != "" {
			t.Errorf("HEAD: Content-Length = %q", head.header.Get("Content-Length"))
		}
	}
}
