package swiftstore_test

import (
	"strings"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/internal/cloudtest"
	"github.com/suaveplan/caddy-storage-mux/muxcore/swiftstore"
)

// Whatever an identity service and a cluster answer, no store believes what cannot be.
func FuzzAHostileCluster(f *testing.F) {
	const (
		login  = "HTTP/1.1 200 OK\nX-Storage-Url: http://swift.test/v1/account\nX-Auth-Token: TOKEN\nContent-Length: 0\n\n" + cloudtest.Between
		object = "HTTP/1.1 200 OK\nEtag: a\nX-Timestamp: 1714979290.5\nX-Object-Meta-Colour: red\nContent-Length: 10\n\n0123456789"
		list   = "HTTP/1.1 200 OK\n\n" + `[{"name":"p/some/a","bytes":5},{"subdir":"p/some/b/"},{"name":"p/\u0000","bytes":-7}]`
	)
	cloudtest.Fuzz(f, []string{
		login + object, login + list, login + list + cloudtest.Between + object, login + "HTTP/1.1 401 X\nContent-Length: 0\n\n",
		login + "HTTP/1.1 206 OK\nEtag: a\nContent-Range: bytes 3-6/10\nContent-Length: 4\n\n3456",
		login + "HTTP/1.1 200 OK\nX-Static-Large-Object: true\nEtag: \"a\"\nContent-Length: 10\n\n" + cloudtest.Between +
			"HTTP/1.1 200 OK\n\n" + `[{"name":"/other/segment","bytes":5,"hash":"x"},{"name":"","bytes":-5}]`,
		login + "HTTP/1.1 200 OK\nX-Object-Manifest: other%2F..%2Fb/seg%2F\nContent-Length: 10\n\n0123456789",
		login + "HTTP/1.1 200 OK\n\n" + `[{"name":"other","bytes":5},{"name":"p/zzz","bytes":5}]`,
		login + "HTTP/1.1 404 X\nContent-Length: 0\n\n", login + "HTTP/1.1 498 X\nRetry-After: 99999999999999999999\nContent-Length: 0\n\n",
		login + "HTTP/1.1 200 OK\n\n" + strings.Repeat("[", 20_000), login + "HTTP/1.1 200 OK\n\n[" + strings.Repeat(`{"name":"p/some/a"},`, 999) + `{"name":"p/some/a"}]`,
		"HTTP/1.1 302 X\nLocation: http://elsewhere.test/\n\n", "HTTP/1.1 200 OK\nX-Storage-Url: ://\nX-Auth-Token: TOKEN\n\n",
		"HTTP/1.1 401 X\n\nuser KEYOFUSER is wrong",
	}, func(tb testing.TB, h *cloudtest.Hostile) muxcore.Store {
		s, err := swiftstore.New(swiftstore.Settings{Container: "c", AuthURL: "http://auth.test/v1.0", User: "a:u", Key: "KEYOFUSER", Prefix: "p", Transport: h})
		if err != nil {
			tb.Fatal(err)
		}
		return s
	}, false, "KEYOFUSER", "TOKEN")
}

// The catalogue of version 3 names the cluster.
func FuzzAHostileCatalogue(f *testing.F) {
	const head = "HTTP/1.1 201 OK\nX-Subject-Token: TOKEN\nContent-Type: application/json\n\n"
	cloudtest.Fuzz(f, []string{
		head + `{"token":{"expires_at":"2026-01-01T00:00:00.0Z","catalog":[{"type":"object-store","endpoints":[{"region":"r","interface":"public","url":"http://swift.test/v1/a"}]}]}}` +
			cloudtest.Between + "HTTP/1.1 204 OK\n\n",
		head + `{"token":{"catalog":[{"type":"object-store","endpoints":[{"url":"file:///etc/passwd","interface":"public"}]}]}}`,
		head + `{"token":{"expires_at":"9999-99-99","catalog":null}}`, head + `{"token":null}`, head + `[]`,
	}, func(tb testing.TB, h *cloudtest.Hostile) muxcore.Store {
		s, err := swiftstore.New(swiftstore.Settings{Container: "c", AuthURL: "http://auth.test/v3", User: "u", Key: "KEYOFUSER", Transport: h})
		if err != nil {
			tb.Fatal(err)
		}
		return s
	}, false, "KEYOFUSER", "TOKEN")
}
