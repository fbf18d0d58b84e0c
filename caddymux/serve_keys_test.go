package caddymux

import (
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

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
	_, _ = io.WriteString(conn, request) // what was answered before a reset counts
	answer, _ := io.ReadAll(conn)
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
