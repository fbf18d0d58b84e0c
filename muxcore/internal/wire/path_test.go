package wire

import (
	"net/url"
	"testing"
)

func FuzzEscapePath(f *testing.F) {
	for _, v := range []string{"a/b", "a+b", "a b", "100%", "%41", "q?x#y", "é/日本", "a;b,c=d@e:f"} {
		f.Add(v)
	}
	f.Fuzz(func(t *testing.T, path string) {
		escaped := EscapePath(path)
		if back, err := url.PathUnescape(escaped); err != nil || back != path {
			t.Errorf("EscapePath(%q) = %q, which is %q, %v", path, escaped, back, err)
		}
		u := url.URL{Scheme: "http", Host: "h", Path: "/" + path, RawPath: "/" + escaped}
		if got := u.EscapedPath(); got != "/"+escaped {
			t.Errorf("a URL with EscapePath(%q) sends %q, want %q", path, got, "/"+escaped)
		}
	})
}
