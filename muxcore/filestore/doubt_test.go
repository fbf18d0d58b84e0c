//go:build linux

package filestore

import (
	"crypto/sha256"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/pkg/xattr"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

var changedLine = regexp.MustCompile(`\nchanged:\d+`)

// age makes the metadata of a file say that it was written long ago, so that the file has been changed since.
func age(t *testing.T, root, key string, q quirks) {
	t.Helper()
	path := filepath.Join(root, key)
	if q.noAttributes {
		sides, err := filepath.Glob(filepath.Join(root, sidePrefix+"*"))
		if err != nil || len(sides) != 1 {
			t.Fatalf("side files: %q, %v", sides, err)
		}
		text, err := os.ReadFile(sides[0])
		if err == nil {
			err = os.WriteFile(sides[0], changedLine.ReplaceAll(text, []byte("\nchanged:1")), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	text, err := xattr.Get(path, attribute)
	if err == nil {
		err = xattr.Set(path, attribute, changedLine.ReplaceAll(text, []byte("\nchanged:1")))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// overwrite writes other bytes into a file, of the same length and with the same time.
func overwrite(t *testing.T, path, body string) {
	t.Helper()
	fi, err := os.Stat(path)
	if err == nil {
		err = os.WriteFile(path, []byte(body), 0o600)
	}
	if err == nil {
		err = os.Chtimes(path, fi.ModTime(), fi.ModTime())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// becomes waits for what is read in the background.
func becomes(t *testing.T, s *Store, key string, want func(muxcore.Info) bool) muxcore.Info {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; {
		info := stat(t, s, key)
		if want(info) || time.Now().After(deadline) {
			return info
		}
	}
}

// A file whose bytes were replaced in place, with the size, time and inode that it had, is not taken for what was stored; one of
// which anything else was changed keeps its identity.
func TestAChangeThatOnlyTheChangeTimeShows(t *testing.T) {
	for name, size := range map[string]int{"small": 5, "large": hashAtOnce + 1} {
		for _, q := range []quirks{{}, {noAttributes: true}} {
			root := t.TempDir()
			s := newStore(t, Settings{Root: root})
			s.quirks = q
			bytes := strings.Repeat("b", size)
			sum := sha256.Sum256([]byte(bytes))
			opts := muxcore.PutOptions{
				ETag: `"stored"`, ModTime: time.Unix(1e9, 0), Attributes: muxcore.Attributes{ContentType: "x/y"},
				Digests: muxcore.Digests{SHA256: sum[:]},
			}
			put(t, s, "touched", bytes, opts)
			age(t, root, "touched", q)
			info := becomes(t, s, "touched", func(i muxcore.Info) bool { return i.ETagStored })
			if info.ETag != `"stored"` || info.ContentType != "x/y" || info.Digests.SHA256 == nil {
				t.Errorf("%s %+v: Stat of a file whose bytes are the same = %+v", name, q, info)
			}
			if !q.noAttributes { // the next process need not read it again
				text, err := xattr.Get(filepath.Join(root, "touched"), attribute)
				if err != nil || strings.Contains(string(text), "\nchanged:1\n") {
					t.Errorf("%s: the metadata is %q, %v", name, text, err)
				}
			}
			if _, err := s.Delete(t.Context(), "touched", muxcore.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}

			put(t, s, "changed", bytes, opts)
			overwrite(t, filepath.Join(root, "changed"), strings.Repeat("x", size))
			age(t, root, "changed", q)
			if info := stat(t, s, "changed"); info.ETagStored || info.ETag == `"stored"` || info.Digests.SHA256 != nil {
				t.Errorf("%s %+v: Stat of a file with other bytes = %+v", name, q, info)
			}
			if info := becomes(t, s, "changed", func(i muxcore.Info) bool { return i.ContentType != "x/y" }); info.ContentType == "x/y" {
				t.Errorf("%s %+v: Stat of a file with other bytes, read = %+v", name, q, info)
			}
		}
	}
}

// Nobody writes to a root because it is read.
func TestAStoreThatOnlyReadsSettlesNothing(t *testing.T) {
	root := t.TempDir()
	sum := sha256.Sum256([]byte("bytes"))
	put(t, newStore(t, Settings{Root: root}), "k", "bytes", muxcore.PutOptions{ETag: `"stored"`, Digests: muxcore.Digests{SHA256: sum[:]}})
	age(t, root, "k", quirks{})
	if info := stat(t, newStore(t, Settings{Root: root}), "k"); info.ETag != `"stored"` {
		t.Errorf("Stat = %+v", info)
	}
	if text, err := xattr.Get(filepath.Join(root, "k"), attribute); err != nil || !strings.Contains(string(text), "\nchanged:1\n") {
		t.Errorf("the metadata was changed by a read: %q, %v", text, err)
	}
}
