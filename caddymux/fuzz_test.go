package caddymux

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/suaveplan/caddy-storage-mux/internal/configfuzz"
	"github.com/suaveplan/caddy-storage-mux/internal/oracles"
	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

func FuzzCaddyfileOfAHandler(f *testing.F) {
	configfuzz.Caddyfile(f, "storage_mux", new(Handler), configfuzz.Unmarshal(new(Handler)))
}

func FuzzCaddyfileOfAFileSystem(f *testing.F) {
	configfuzz.Caddyfile(f, "storage_mux", new(FileSystem), configfuzz.Unmarshal(new(FileSystem)))
}

func FuzzCaddyfileOfTheCertificateStorage(f *testing.F) {
	configfuzz.Caddyfile(f, "storage_mux", new(CertStorage), configfuzz.Unmarshal(new(CertStorage)))
}

func FuzzJSONOfAHandler(f *testing.F) { configfuzz.JSON(f, new(Handler), "handler", "storage_mux") }

// A path is decoded once: what is taken for a key is what the path says, and nothing else says it.
func FuzzKeyOf(f *testing.F) {
	for _, path := range []string{
		"/", "/a", "/a/b/", "//a", "/a/../b", "/%2e%2e/a", "/a%2Fb", "/a%5cb", "/%252e", "/a%00", "/ü", "/%C3%BC", "/%ff", "/a+b", "/a;b", "/.storage-mux/x", "/a%", "/a\\b", "/a?b",
	} {
		f.Add(path)
	}
	f.Fuzz(func(t *testing.T, path string) {
		u, err := url.ParseRequestURI(path)
		if err != nil {
			return
		}
		key, err := keyOf(u)
		if err != nil {
			if muxcore.CodeOf(err) != muxcore.CodeInvalidKey {
				t.Errorf("keyOf(%q) = %v", path, err)
			}
			return
		}
		if key == "" || muxcore.CheckKey(key) != nil {
			return
		}
		if slices.ContainsFunc(strings.Split(key, "/"), func(s string) bool { return s == "" || s == "." || s == ".." }) {
			t.Errorf("keyOf(%q) = %q", path, key)
		}
		back := url.URL{Path: "/" + key}
		again, err := url.ParseRequestURI(back.EscapedPath())
		if err != nil {
			t.Fatal(err)
		}
		if same, err := keyOf(again); err != nil || same != key {
			t.Errorf("keyOf(%q) = %q, which is read back as %q, %v", path, key, same, err)
		}
	})
}

// Preconditions, alone and with a range, decide as those of http.ServeContent do.
func FuzzServePreconditions(f *testing.F) {
	for _, cond := range oracles.Conditions {
		var values [4]string
		for i, name := range []string{"If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since"} {
			if at := slices.Index(cond, name); at >= 0 {
				values[i] = cond[at+1]
			}
		}
		f.Add(values[0], values[1], values[2], values[3], true, true)
		f.Add(values[0], values[1], values[2], values[3], false, false)
	}
	o := newOracle(f, alphabet)
	f.Fuzz(func(t *testing.T, match, noneMatch, modified, unmodified string, get, part bool) {
		var fields []string
		for name, v := range map[string]string{"If-Match": match, "If-None-Match": noneMatch, "If-Modified-Since": modified, "If-Unmodified-Since": unmodified} {
			if strings.ContainsAny(v, "\r\n\x00") {
				t.Skip("no header has these")
			}
			if v != "" {
				fields = append(fields, name, v)
			}
		}
		if part {
			fields = append(fields, "Range", "bytes=5-9")
		}
		method := http.MethodHead
		if get {
			method = http.MethodGet
		}
		o.agree(t, method, fields...)
	})
}

// Any query gets a list or a 400; and a list that is gone through page by page has what it has in one.
func FuzzList(f *testing.F) {
	for _, query := range []string{
		"list", "list&limit=1", "list&limit=2&delimiter=/", "list&after=b", "list&after=b/", "list&delimiter=%2F&limit=1&after=a", "list&limit=0", "list&limit=x", "list&after=..%2F",
		"list&after=%00", "list&delimiter=%ff", "list&limit=99999999999999999999", "list&after=%F4%8F%BF%BF&limit=1", "list;x", "list&delimiter=e&limit=1",
	} {
		f.Add("", query)
		f.Add("b/", query)
	}
	h := provisioned(f, "storage_mux {\n list\n hide secret\n backend m memory\n}")
	tr, err := h.tree.acquire()
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(tr.release)
	for _, key := range []string{"a", "b/1", "b/2/x", "b/2/y", "b0", "secret", "b/secret", "ü", "\U0010FFFF", "e e", "e"} {
		if _, err := tr.store.Put(f.Context(), key, strings.NewReader("x"), 1, muxcore.PutOptions{}); err != nil {
			f.Fatal(err)
		}
	}
	f.Fuzz(func(t *testing.T, folder, query string) {
		u := url.URL{RawQuery: query}
		values := u.Query() // without what is malformed
		if !values.Has("list") {
			return
		}
		all, ok := listedBy(t, h, folder, query)
		if !ok {
			return
		}
		var paged listAnswer
		for next := values; ; {
			page, ok := listedBy(t, h, folder, next.Encode())
			if !ok {
				t.Fatalf("the list after %q of %q is refused", next.Get("after"), query)
			}
			paged.Objects, paged.Prefixes = append(paged.Objects, page.Objects...), append(paged.Prefixes, page.Prefixes...)
			if len(paged.Objects)+len(paged.Prefixes) > 20 {
				t.Fatalf("%q lists without end: %+v", query, paged)
			}
			if page.Next == "" {
				break
			}
			if all.Next == "" {
				t.Fatalf("%q ends, and goes on after %q", query, page.Next)
			}
			next.Set("after", page.Next)
		}
		values = u.Query()
		values.Set("limit", "1000")
		whole, _ := listedBy(t, h, folder, values.Encode())
		if diff := cmp.Diff(whole.Objects, paged.Objects, cmpopts.EquateEmpty()) + cmp.Diff(whole.Prefixes, paged.Prefixes, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%q below %q, whole and by pages:\n%s", query, folder, diff)
		}
	})
}

// listedBy asks for a list; false: it was refused.
func listedBy(t *testing.T, h *Handler, folder, query string) (answer listAnswer, ok bool) {
	t.Helper()
	r := request(t, http.MethodGet, "/", nil)
	r.URL.Path, r.URL.RawQuery = "/"+folder, query
	w := httptest.NewRecorder()
	err := h.ServeHTTP(w, r, caddyhttp.HandlerFunc(func(http.ResponseWriter, *http.Request) error { return nil }))
	if err != nil {
		var herr caddyhttp.HandlerError
		if !asHandlerError(err, &herr) || herr.StatusCode != http.StatusBadRequest && herr.StatusCode != http.StatusNotFound {
			t.Fatalf("%q below %q = %v", query, folder, err)
		}
		return answer, false
	}
	if w.Code != http.StatusOK || json.Unmarshal(w.Body.Bytes(), &answer) != nil || answer.Objects == nil {
		t.Fatalf("%q below %q = %d %s", query, folder, w.Code, w.Body)
	}
	return answer, true
}
