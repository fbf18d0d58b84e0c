package caddymux

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// list asks for a list and decodes it.
func (c *client) list(target string) listAnswer {
	c.t.Helper()
	got := c.expect(http.StatusOK, "GET", target, "")
	var l listAnswer
	if err := json.Unmarshal([]byte(got.body), &l); err != nil {
		c.t.Fatalf("GET %s: %v: %s", target, err, got.body)
	}
	if got.header.Get("Content-Type") != "application/json" || l.Objects == nil || l.Prefixes == nil || l.Degraded == nil {
		c.t.Errorf("GET %s: %s %s, want JSON with all its lists", target, got.header.Get("Content-Type"), got.body)
	}
	return l
}

func keysOf(l listAnswer) []string {
	keys := []string{}
	for _, o := range l.Objects {
		keys = append(keys, o.Key)
	}
	return keys
}

func TestAListIsSortedAndPaged(t *testing.T) {
	c := run(t, "storage_mux memory: {\n writable\n}")
	keys := []string{"Z", "a-b", "a/b", "b/c/d", "b/c/e", "b/f", "b/secret", "z<&>", "\u00e9"}
	for _, key := range keys {
		c.expect(http.StatusCreated, "PUT", (&url.URL{Path: "/" + key}).EscapedPath(), key, "Content-Type", "text/x")
	}
	c.load("storage_mux memory: {\n list\n hide secret\n}") // the same tree
	keys = slices.DeleteFunc(keys, func(k string) bool { return k == "b/secret" })
	all := c.list("/?list")
	if got := keysOf(all); !slices.Equal(got, keys) || all.Next != "" {
		t.Errorf("all: %q, next %q, want %q", got, all.Next, keys)
	}
	for _, o := range all.Objects {
		if o.Size == nil || *o.Size != int64(len(o.Key)) || o.ETag == "" || o.LastModified == nil || o.ContentType != "text/x" {
			t.Errorf("entry %+v", o)
		}
	}
	if got := c.do("GET", "/?list", "").body; !strings.Contains(got, `"z<&>"`) || !strings.Contains(got, "\"\u00e9\"") {
		t.Errorf("keys are not raw: %s", got)
	}
	for limit := 1; limit <= len(keys)+1; limit++ {
		for _, delimiter := range []string{"", "/"} {
			var paged, prefixes []string
			for after, pages := "", 0; pages == 0 || after != ""; pages++ {
				page := c.list(fmt.Sprintf("/?list&limit=%d&delimiter=%s&after=%s", limit, delimiter, url.QueryEscape(after)))
				if n := len(page.Objects) + len(page.Prefixes); n > limit || pages > 20 {
					t.Fatalf("limit %d: page %d has %d entries", limit, pages, n)
				}
				paged, prefixes, after = append(paged, keysOf(page)...), append(prefixes, page.Prefixes...), page.Next
			}
			want := fmt.Sprint(keys, []string(nil))
			if delimiter != "" {
				want = fmt.Sprint([]string{"Z", "a-b", "z<&>", "\u00e9"}, []string{"a/", "b/"})
			}
			if got := fmt.Sprint(paged, prefixes); got != want {
				t.Errorf("limit %d, delimiter %q: %s, want %s", limit, delimiter, got, want)
			}
		}
	}
	if got := keysOf(c.list("/b/?list")); !slices.Equal(got, []string{"b/c/d", "b/c/e", "b/f"}) {
		t.Errorf("below b/: %q", got)
	}
	if got := keysOf(c.list("/nowhere/?list")); len(got) != 0 {
		t.Errorf("below nothing: %q", got)
	}
	head := c.expect(http.StatusOK, "HEAD", "/?list", "")
	if get := c.do("GET", "/?list", ""); head.length != get.length || head.body != "" {
		t.Errorf("HEAD: length %d, body %q, GET has %d", head.length, head.body, get.length)
	}
}

func TestBadListRequestsAre400(t *testing.T) {
	c := run(t, "storage_mux memory: {\n list\n}")
	for _, target := range []string{
		"/?list&limit=x", "/?list&limit=-1", "/?list&limit=0", "/?list&limit=", "/a?list", "/?list&delimiter=%5c", "/?list&delimiter=%00",
		"/?list&after=a//b", "/?list&after=%ff", "/a%2F?list", "/.storage_mux/?list",
	} {
		c.expect(http.StatusBadRequest, "GET", target, "")
	}
	c.expect(http.StatusOK, "GET", "/?list&limit=999999", "")
	c.expect(http.StatusOK, "GET", "/?list=&delimiter=-", "")
}

func TestWithoutListTheQueryIsIgnored(t *testing.T) {
	c := run(t, "storage_mux memory: {\n writable\n}")
	c.expect(http.StatusCreated, "PUT", "/x", "body")
	if got := c.expect(http.StatusOK, "GET", "/x?list", ""); got.body != "body" {
		t.Errorf("GET = %q", got.body)
	}
	c.expect(http.StatusNotFound, "GET", "/?list", "")
}

func TestAListNamesWhatItLacks(t *testing.T) {
	f := scripted(t, "listed")
	c := run(t, `storage_mux {
		list
		writable
		on_miss next
		cooldown 1h
		backend eu mux {
			on_miss next
			cooldown 1h
			backend m memory
			backend f scripted listed
		}
		backend gone file {{dir}}/gone
	}`)
	c.expect(http.StatusCreated, "PUT", "/x", "body")
	f.Break(&muxcore.Error{Code: muxcore.CodeUnavailable})
	for range 2 {
		l := c.list("/?list")
		if got := fmt.Sprint(keysOf(l), l.Degraded); got != "[x] [eu.f gone]" {
			t.Errorf("keys and degraded: %s, want [x] [eu.f gone]", got)
		}
	}
}

func TestAListThatNobodyCanGiveIsAnError(t *testing.T) {
	f := scripted(t, "nolist")
	c := run(t, "storage_mux {\n list\n cooldown 1ms\n backend f scripted nolist\n}")
	f.SetCapabilities(muxcore.Capabilities{Write: true})
	c.expect(http.StatusNotImplemented, "GET", "/?list", "")
	f.Break(&muxcore.Error{Code: muxcore.CodeUnavailable})
	if got := c.expect(http.StatusServiceUnavailable, "GET", "/?list", ""); got.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
}
