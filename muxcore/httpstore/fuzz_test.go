package httpstore

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

func FuzzEscape(f *testing.F) {
	f.Add("a b+c/%2F;ü")
	b, err := parseBase("http://host/b%2Fc")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, key string) {
		if muxcore.CheckStoreKey(key) != nil {
			return
		}
		u := b.of(key)
		want := "/b%2Fc/" + escape(key, escapes(key))
		if got := u.EscapedPath(); got != want {
			t.Errorf("%q is sent as %q, want %q", key, got, want)
		}
		if back, err := url.PathUnescape(strings.TrimPrefix(u.EscapedPath(), "/b%2Fc/")); err != nil || back != key {
			t.Errorf("%q is read back as %q (%v)", key, back, err)
		}
	})
}

func FuzzMultistatus(f *testing.F) {
	f.Add(`<multistatus xmlns="DAV:"><response><href>/base/a</href><propstat><prop><getetag>"x"</getetag></prop></propstat></response></multistatus>`)
	f.Add(`<D:multistatus xmlns:D="DAV:"><D:response><D:href>http://h/base/b%20c/</D:href><D:status>HTTP/1.1 404 X</D:status></D:response></D:multistatus>`)
	f.Add(`<multistatus xmlns="DAV:"><response><propstat><propstat><prop><prop><href>`)
	f.Fuzz(func(t *testing.T, text string) {
		resp := &http.Response{StatusCode: http.StatusMultiStatus, ContentLength: -1, Body: io.NopCloser(strings.NewReader(text))}
		m := newMultistatus(t.Context(), muxcore.OpList, "", resp)
		for {
			r, err := m.next()
			if err != nil {
				if !errors.Is(err, io.EOF) && muxcore.CodeOf(err) != muxcore.CodeUnavailable {
					t.Errorf("%q: %v has no code", text, err)
				}
				return
			}
			if name, err := r.nameIn("/base/"); err == nil && strings.Contains(strings.TrimSuffix(name, "/"), "/") {
				t.Errorf("%q: name %q has a slash", text, name)
			}
		}
	})
}
