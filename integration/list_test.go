package integration_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/integration/rig"
)

// listing is the answer to ?list.
type listing struct {
	Objects []struct {
		Key          string `json:"key"`
		Size         int64  `json:"size"`
		ETag         string `json:"etag"`
		LastModified string `json:"last_modified"`
		ContentType  string `json:"content_type"`
	} `json:"objects"`
	Prefixes []string `json:"prefixes"`
	Next     string   `json:"next"`
	Degraded []string `json:"degraded"`
}

func (l listing) keys() []string {
	keys := make([]string, 0, len(l.Objects))
	for _, o := range l.Objects {
		keys = append(keys, o.Key)
	}
	return keys
}

// listableStores are the backends that can always list.
func listableStores(t *testing.T, options string) []store {
	t.Helper()
	return slices.DeleteFunc(stores(t, options), func(s store) bool { return s.name == "http" })
}

func list(t *testing.T, c *rig.Caddy, path string) listing {
	t.Helper()
	r := c.Get(path)
	var l listing
	if err := json.Unmarshal(r.Body, &l); r.Status != http.StatusOK || err != nil {
		t.Fatalf("GET %s = %d %q: %v", path, r.Status, r.Body, err)
	}
	return l
}

func TestAListIsSortedAndPaged(t *testing.T) {
	t.Parallel()
	keys := []string{"a", "a/b", "a-b", "b/c/d", "b/c/e", "b/f", "z", "é", "Z"}
	keys = slices.DeleteFunc(keys, func(k string) bool { return k == "a" }) // "a" stands above "a/b"
	sorted := slices.Sorted(slices.Values(keys))
	eachStore(t, listableStores(t, ""), func(t *testing.T, s store) {
		for _, k := range keys {
			wantStatus(t, "PUT", s.Put((&url.URL{Path: "/" + k}).EscapedPath(), k, "Content-Type", "text/plain"), http.StatusCreated)
		}
		all := list(t, s.Caddy, "/?list")
		if got := all.keys(); !slices.Equal(got, sorted) || all.Next != "" {
			t.Errorf("all keys: %q, next %q, want %q", got, all.Next, sorted)
		}
		for _, o := range all.Objects {
			if o.Size != int64(len(o.Key)) || o.LastModified == "" || o.ETag == "" {
				t.Errorf("entry %+v", o)
			}
		}
		if all.Prefixes == nil || all.Degraded == nil {
			t.Errorf("prefixes %v and degraded %v must be lists", all.Prefixes, all.Degraded)
		}
		if got := list(t, s.Caddy, "/b/?list").keys(); !slices.Equal(got, []string{"b/c/d", "b/c/e", "b/f"}) {
			t.Errorf("keys under b/: %q", got)
		}
		top := list(t, s.Caddy, "/?list&delimiter=/")
		if got := fmt.Sprint(top.keys(), top.Prefixes); got != "[Z a-b z é] [a/ b/]" {
			t.Errorf("with a delimiter: %s", got)
		}
		var paged []string
		for after, n := "", 0; ; n++ {
			page := list(t, s.Caddy, "/?list&limit=3&after="+url.QueryEscape(after))
			paged = append(paged, page.keys()...)
			if len(page.Objects) > 3 || n > len(keys) {
				t.Fatalf("page of %d, page number %d", len(page.Objects), n)
			}
			if after = page.Next; after == "" {
				break
			}
		}
		if !slices.Equal(paged, sorted) {
			t.Errorf("page by page: %q, want %q", paged, sorted)
		}
		if got := list(t, s.Caddy, "/nowhere/?list").keys(); len(got) != 0 {
			t.Errorf("keys under a prefix that is not there: %q", got)
		}
	})
}

func TestBadListRequests(t *testing.T) {
	t.Parallel()
	eachStore(t, listableStores(t, ""), func(t *testing.T, s store) {
		for _, path := range []string{"/?list&limit=x", "/?list&limit=-1", "/a?list", "/a//?list", "/../?list"} {
			r, err := s.Raw("GET "+path+" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", false)
			if err != nil || r.Status != http.StatusBadRequest {
				t.Errorf("GET %s = %d %q, %v, want 400", path, r.Status, r.Body, err)
			}
		}
	})
}

func TestWithoutListTheQueryIsIgnored(t *testing.T) {
	t.Parallel()
	c := rig.Start(t, `
		storage_mux {
			backend m memory
			writable
		}`)
	c.Put("/x", "body")
	wantBody(t, "GET /x?list", c.Get("/x?list"), http.StatusOK, []byte("body"))
	wantMissing(t, c, "/?list")
}

// A list over several backends names each key once, and says whose part is missing.
func TestAListMergesBackendsAndNamesTheMissing(t *testing.T) {
	t.Parallel()
	c := rig.Start(t, `
		storage_mux {
			list
			on_miss next
			cooldown 1h
			backend a file {$DIR}/a
			backend b file {$DIR}/b
			backend gone file {$DIR}/gone
		}`)
	for _, name := range []string{"a/1", "a/2", "b/2", "b/3"} {
		writeFile(t, c.Dir, name, []byte(name))
	}
	for range 2 {
		l := list(t, c, "/?list")
		if got := fmt.Sprint(l.keys(), l.Degraded); got != "[1 2 3] [gone]" {
			t.Errorf("keys and degraded: %s, want [1 2 3] [gone]", got)
		}
	}
}

// Row 90: a page of a large folder took as long as the folder is large, for every entry was looked at.
func TestCase090APageOfALargeFolderIsAPage(t *testing.T) {
	t.Parallel()
	const files = 5000
	dir := t.TempDir()
	for i := range files {
		writeFile(t, dir, fmt.Sprintf("d/many/%04d", i), []byte("x"))
	}
	c := rig.Start(t, "storage_mux {\nlist\nbackend d file {$DIR}/d\n}", rig.InDir(dir))
	after, seen := "", 0
	for _, want := range []int{100, 4900} {
		page := list(t, c, fmt.Sprintf("/many/?list&limit=%d&after=%s", want, after))
		if keys := page.keys(); len(keys) != want || keys[0] != fmt.Sprintf("many/%04d", seen) {
			t.Fatalf("a page of %d has %d keys, from %v", want, len(keys), keys[:min(1, len(keys))])
		}
		seen += want
		after = page.Next
	}
	if after != "" {
		t.Errorf("next = %q after all %d", after, seen)
	}
}
