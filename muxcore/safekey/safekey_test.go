package safekey_test

import (
	"strings"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/filestore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/safekey"
)

func TestWhatCertificatesAreCalledCanBeRead(t *testing.T) {
	for _, name := range []string{
		"certificates/acme-v02.api.letsencrypt.org-directory/wildcard_.example.com/wildcard_.example.com.key",
		"acme/ca.internal/users/me@example.com/me.json", "ocsp/example.com-1a2b3c", "last_clean.json",
	} {
		if got := safekey.Encode(name); got != name {
			t.Errorf("Encode(%q) = %q", name, got)
		}
	}
}

func TestNamesThatFileSystemsTakeAmissAreEscaped(t *testing.T) {
	for name, want := range map[string]string{
		"*.example.com": "%2a.example.com", ".storage_mux/x": "%2estorage_mux/x", "a/../b": "a/%2e%2e/b", "..": "%2e%2e", "...": "%2e.%2e", "end.": "end%2e", "nul.example/x": "%6eul.example/x",
		"COM1": "%43OM1", "a%2eb": "a%252eb", "a\\b\x00": "a%5cb%00", "ä": "%c3%a4", "\xff": "%ff", "a//b/": "a/b", "x~1": "x%7e1",
		strings.Repeat("a", 201): strings.Repeat("a", 200) + "%/a",
	} {
		if got := safekey.Encode(name); got != want {
			t.Errorf("Encode(%q) = %q, want %q", name, got, want)
		}
	}
}

func TestWhatOthersPutThereIsNoName(t *testing.T) {
	for _, key := range []string{"a%2Eb", "a%2", "a%", "%", "a%61", "ä", "a b", ".hidden", "a//b", "short%/er", "%g0"} {
		if got, err := safekey.Decode(key); err == nil {
			t.Errorf("Decode(%q) = %q, want an error", key, got)
		}
	}
}

func FuzzEveryNameIsAKeyAndComesBack(f *testing.F) {
	for _, seed := range []string{"a/b", "*", "con", "lpt9.x", "..", "%", "%/", strings.Repeat("é", 300), "a/.storage_mux-tmp-x", " ", "a.", "\n"} {
		f.Add(seed)
	}
	files, err := filestore.New(filestore.Settings{Root: "unused"})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, name string) {
		name = strings.Trim(name, "/")
		for strings.Contains(name, "//") {
			name = strings.ReplaceAll(name, "//", "/")
		}
		key := safekey.Encode(name)
		if back, err := safekey.Decode(key); err != nil || back != name {
			t.Errorf("Decode(Encode(%q) = %q) = %q, %v", name, key, back, err)
		}
		if name == "" || len(key) > muxcore.MaxKeyLength-len(muxcore.InternalPrefix) {
			return
		}
		if err := files.CheckKey(muxcore.InternalPrefix + key); err != nil {
			t.Errorf("Encode(%q) is no key: %v", name, err)
		}
		if segment := safekey.Segment(name); strings.Contains(strings.ReplaceAll(segment, safekey.More, ""), "/") {
			t.Errorf("Segment(%q) = %q", name, segment)
		}
	})
}
