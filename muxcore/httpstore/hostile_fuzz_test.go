package httpstore_test

import (
	"strings"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/httpstore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/internal/cloudtest"
)

// Whatever an origin answers, WebDAV or not, no store believes what cannot be.
func FuzzAHostileOrigin(f *testing.F) {
	const (
		object = "HTTP/1.1 200 OK\nETag: \"a\"\nLast-Modified: Mon, 06 May 2024 07:08:10 GMT\nX-Meta-Colour: red\nContent-Length: 10\n\n0123456789"
		dav    = "HTTP/1.1 200 OK\nDAV: 1, 2\nAllow: PROPFIND, PUT\nContent-Length: 0\n\n" + cloudtest.Between
		found  = `HTTP/1.1 207 X

<D:multistatus xmlns:D="DAV:"><D:response><D:href>/base/</D:href></D:response><D:response><D:href>/base/some/</D:href><D:propstat><D:prop><D:resourcetype><D:collection/></D:resourcetype></D:prop></D:propstat></D:response><D:response><D:href>http://h/base/a%20b</D:href><D:propstat><D:prop><D:getetag>"x"</D:getetag><D:getcontentlength>5</D:getcontentlength><D:getlastmodified>Mon, 06 May 2024 07:08:10 GMT</D:getlastmodified><D:getcontenttype>a&#13;&#10;b: c</D:getcontenttype></D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response></D:multistatus>`
	)
	cloudtest.Fuzz(f, []string{
		object, dav + object, found, dav + found, found + cloudtest.Between + object, "HTTP/1.1 404 X\nContent-Length: 0\n\n", "HTTP/1.1 409 X\n\n" + cloudtest.Between + found,
		"HTTP/1.1 206 X\nETag: \"a\"\nContent-Range: bytes 3-6/10\nContent-Length: 4\n\n3456", "HTTP/1.1 206 X\nContent-Range: bytes 7-9/*\nTransfer-Encoding: chunked\n\n3\r\n789\r\n0\r\n\r\n",
		"HTTP/1.1 416 X\nContent-Range: bytes */2\n\n", "HTTP/1.1 302 X\nLocation: http://elsewhere.test/\nContent-Length: 0\n\n" + cloudtest.Between + object,
		"HTTP/1.1 302 X\nLocation: //\nContent-Length: 0\n\n", "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\nETag: W/\"a\"\n\n5\r\n01234\r\n0\r\nX: y\r\n\r\n",
		"HTTP/1.1 103 X\nLink: <x>\n\n" + object, "HTTP/1.1 200 OK\nX-A: " + strings.Repeat("x", 300<<10) + "\n\n", "HTTP/1.1 503 X\nRetry-After: -1\n\n",
		"HTTP/1.1 207 X\n\n" + strings.Repeat("<a>", 5000), "HTTP/1.1 207 X\n\n<multistatus xmlns=\"DAV:\"><response><href>/base/" + strings.Repeat("x/", 4000) + "</href></response></multistatus>",
		"HTTP/1.1 207 X\n\n<multistatus xmlns=\"DAV:\"><response><href>" + strings.Repeat("x", 10_000) + "</href></response></multistatus>",
	}, func(tb testing.TB, h *cloudtest.Hostile) muxcore.Store {
		s, err := httpstore.New(httpstore.Settings{BaseURL: "http://user:PASSWORD@origin.test/base", ConditionalWrite: true, Transport: h})
		if err != nil {
			tb.Fatal(err)
		}
		return s
	}, true, "PASSWORD", "dXNlcjpQQVNTV09SRA")
}
