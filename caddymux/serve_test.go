package caddymux

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

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
	// Replaced after the first part of few bytes: the same.
	f.Mend()
	f.On(muxcore.OpGet, 2, storetest.FailCode(muxcore.CodePreconditionFailed))
	if got := c.expect(http.StatusOK, "GET", "/x", "", "Range", "bytes=0-1,3-4"); got.body != alphabet {
		t.Errorf("body = %q", got.body)
	}
	// Of more than that: broken off.
	f.Mend()
	c.expect(http.StatusNoContent, "PUT", "/x", strings.Repeat("x", 100_000))
	f.On(muxcore.OpGet, 2, storetest.FailCode(muxcore.CodePreconditionFailed))
	got := c.raw("GET /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\nRange: bytes=0-40000,50000-90000\r\n\r\n") // a client would try again
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

func TestAHandlerThatRewritesOneAnswerChangesNoOther(t *testing.T) {
	c := run(t, "@odd path /odd/*\nheader @odd >* [a-z] o\nstorage_mux {\n writable\n backend m memory\n backend d file {{dir}}/d {\n create_root\n }\n}")
	for _, path := range []string{"/x.txt", "/odd/x.txt"} {
		c.expect(http.StatusCreated, "PUT", path, "hello", "Cache-Control", "max-age=5", "X-Meta-Colour", "red")
	}
	for _, fields := range [][]string{nil, {"Range", "bytes=1-2"}} {
		before := c.do("GET", "/x.txt", "", fields...).header
		if odd := c.do("GET", "/odd/x.txt", "", fields...).header; odd.Get("Accept-Ranges") != "ooooo" {
			t.Fatalf("the rewritten answer has %v", odd)
		}
		after := c.do("GET", "/x.txt", "", fields...).header
		before.Del("Date")
		after.Del("Date")
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("%v: -before +after another answer was rewritten\n%s", fields, diff)
		}
	}
}
