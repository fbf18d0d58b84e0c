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

func FuzzContentRange(f *testing.F) {
	for _, v := range []string{"bytes 0-99/1234", "bytes 0-99/*", "bytes */1234", "bytes 0--1/0", "bytes 0-9223372036854775807/*", "lines 1-2/3", "bytes */*", ""} {
		f.Add(v, int64(0), int64(100))
	}
	f.Fuzz(func(t *testing.T, v string, offset, length int64) {
		r, ok := parseContentRange(v)
		if !ok {
			return
		}
		if r.has && (r.first < 0 || r.length() <= 0 || r.size >= 0 && r.last >= r.size) || !r.has && r.size < 0 {
			t.Errorf("parseContentRange(%q) = %+v", v, r)
		}
		want := muxcore.Range{Offset: offset, Length: length}
		if !r.has || !r.answers(want) {
			return
		}
		if size := r.sizeFor(want); size >= 0 {
			opts := muxcore.GetOptions{Range: want}
			at, n, err := opts.Resolve(&muxcore.Info{Size: size})
			if want != (muxcore.Range{}) && (err != nil || at != r.first || want.Offset >= 0 && n != r.length()) {
				t.Errorf("%q is taken for an answer to %+v, which is %d+%d (%v)", v, want, at, n, err)
			}
		}
	})
}

func FuzzETag(f *testing.F) {
	for _, v := range []string{`"a"`, `W/"a"`, "a", "W/a", `"a`, `a,b`, `w/"`, "\x80"} {
		f.Add(v)
	}
	f.Fuzz(func(t *testing.T, v string) {
		got := etagOf([]string{v})
		if tag, rest, ok := muxcore.CutETag(got); got != "" && (!ok || rest != "" || tag != got) {
			t.Errorf("etagOf(%q) = %q, which is no entity tag", v, got)
		}
	})
}

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
