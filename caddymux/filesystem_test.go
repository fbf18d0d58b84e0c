package caddymux

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

func TestFileServerServesATree(t *testing.T) {
	f := scripted(t, "fs-serves")
	c := runWith(t, "storage_mux site {\n cooldown 1ms\n backend f scripted fs-serves\n}\nfilesystem site storage_mux site",
		"handle_path /w/* {\n storage_mux {\n use site\n writable\n }\n}\nfs site\n@there file {\n try_files {path}.html\n}\nheader @there X-There yes\n"+
			"handle {\n file_server {\n fs site\n browse\n precompressed gzip\n hide secret\n }\n}")
	for key, body := range map[string]string{
		"a.txt": "0123456789", "a.txt.gz": "zipped", "page.html": "page", "secret": "s", "dir/index.html": "index", "more/x y": "x", ".well/b": "b",
	} {
		c.expect(http.StatusCreated, "PUT", "/w/"+strings.ReplaceAll(key, " ", "%20"), body)
	}
	for target, want := range map[string]string{"/a.txt": "0123456789", "/dir/": "index", "/more/x%20y": "x", "/.well/b": "b"} {
		if got := c.expect(http.StatusOK, "GET", target, ""); got.body != want {
			t.Errorf("GET %s = %q, want %q", target, got.body, want)
		}
	}
	if got := c.expect(http.StatusPartialContent, "GET", "/a.txt", "", "Range", "bytes=4-6"); got.body != "456" {
		t.Errorf("range = %q", got.body)
	}
	if got := c.expect(http.StatusOK, "GET", "/a.txt", "", "Accept-Encoding", "gzip"); got.body != "zipped" {
		t.Errorf("precompressed = %q", got.body)
	}
	if got := c.expect(http.StatusOK, "GET", "/more/", "", "Accept", "application/json"); !strings.Contains(got.body, `"x y"`) {
		t.Errorf("browse = %q", got.body)
	}
	if got := c.expect(http.StatusOK, "GET", "/", ""); strings.Contains(got.body, "secret") || !strings.Contains(got.body, "page.html") {
		t.Errorf("browse of the root = %q", got.body)
	}
	if got := c.do("GET", "/page", ""); got.header.Get("X-There") != "yes" {
		t.Error("the file matcher does not find page.html")
	}
	for target, status := range map[string]int{
		"/missing": 404, "/a.txt/below": 404, "/missing/": 404, "/secret": 404, "/dir": 308, "/.storage_mux/storage/x": 400, "/a%5Cb": 400, "/a%00b": 400,
	} {
		c.expect(status, "GET", target, "")
	}
	f.Break(&muxcore.Error{Code: muxcore.CodeUnavailable})
	for _, target := range []string{"/", "/a.txt", "/dir/", "/deep/er/x"} {
		c.expect(http.StatusServiceUnavailable, "GET", target, "")
	}
	if n := f.OpenBodies(); n != 0 {
		t.Errorf("%d bodies are open", n)
	}
}

func TestAFileSystemMayHaveATreeOfItsOwn(t *testing.T) {
	c := runWith(t, "filesystem own storage_mux failover memory: {\n name own\n}", "file_server {\n fs own\n}")
	c.expect(http.StatusNotFound, "GET", "/x", "")
	if err := c.loadWith("filesystem own storage_mux missing", "file_server {\n fs own\n}"); err == nil || !strings.Contains(err.Error(), `unknown storage tree "missing"`) {
		t.Errorf("an unknown tree: %v", err)
	}
}

func TestTheFileMatcherFindsFoldersOfATree(t *testing.T) {
	c := runWith(t, "storage_mux site memory:\nfilesystem site storage_mux site",
		"handle_path /w/* {\n storage_mux {\n use site\n writable\n }\n}\nhandle {\n fs site\n try_files {path} {path}/ /fallback.txt\n file_server browse\n}")
	for key, body := range map[string]string{"dir/sub/x": "x", "dir/file": "file", "with/index.html": "index", "fallback.txt": "fallback"} {
		c.expect(http.StatusCreated, "PUT", "/w/"+key, body)
	}
	for target, want := range map[string]string{
		"/dir/file": "file", "/with/": "index", "/dir/file/": "fallback", "/missing": "fallback", "/missing/": "fallback", "/dir/./sub/x": "x",
	} {
		if got := c.expect(http.StatusOK, "GET", target, ""); got.body != want {
			t.Errorf("GET %s = %q, want %q", target, got.body, want)
		}
	}
	for target, want := range map[string]string{"/dir/": "file", "/dir/sub/": "x"} {
		if got := c.expect(http.StatusOK, "GET", target, "", "Accept", "application/json"); !strings.Contains(got.body, `"`+want+`"`) {
			t.Errorf("GET %s = %q, want a list with %q", target, got.body, want)
		}
	}
}

// A request of the old config comes to file_server only after Caddy has cleaned that config up.
func TestALateRequestFindsTheFileSystemOfItsConfig(t *testing.T) {
	asked, proceed := make(chan struct{}), make(chan struct{})
	first := sync.OnceFunc(func() { close(asked) })
	gate := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		first()
		<-proceed
	}))
	defer gate.Close()
	const options = "storage_mux site memory:\nfilesystem site storage_mux site"
	const write = "handle_path /w/* {\n storage_mux {\n use site\n writable\n }\n}\n"
	c := runWith(t, options, write+"reverse_proxy "+gate.URL+" {\n @ok status 200\n handle_response @ok {\n file_server {\n fs site\n }\n }\n}")
	c.expect(http.StatusCreated, "PUT", "/w/x", "body")
	late, failure := make(chan answer, 1), make(chan error, 1)
	go func() {
		got, err := c.try("GET", "/x", strings.NewReader(""))
		late <- got
		failure <- err
	}()
	<-asked
	err := c.loadWith(options, write+"respond \"the new one\"")
	close(proceed)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := <-late, <-failure; err != nil || got.status != http.StatusOK || got.body != "body" {
		t.Errorf("the late request got %d %q, %v", got.status, got.body, err)
	}
	// The old server hears that it is to stop a moment later than we do.
	c.eventually("the new config answers", func() bool {
		got, err := c.try("GET", "/x", strings.NewReader(""), "Connection", "close")
		return err == nil && got.body == "the new one"
	})
}
