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
	for deadline := time.Now().Add(2 * time.Minute); ; {
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

// What was recorded of a file stays known once it does not seem to be that file any more, so that others can find out: unless
// it is another one, that was put in its place.
func TestWhatWasRecordedOfAChangedFileIsTold(t *testing.T) {
	const size = hashAtOnce + 1
	bytes := strings.Repeat("b", size)
	sum := sha256.Sum256([]byte(bytes))
	for name, row := range map[string]struct {
		change        func(t *testing.T, path string)
		told, noticed bool
	}{
		"nothing":             {func(*testing.T, string) {}, false, false},
		"a byte more":         {func(t *testing.T, path string) { t.Helper(); rewrite(t, path, bytes+"b") }, true, true},
		"other bytes":         {func(t *testing.T, path string) { t.Helper(); rewrite(t, path, strings.Repeat("x", size)) }, true, true},
		"its time":            {func(t *testing.T, path string) { t.Helper(); rewrite(t, path, bytes) }, true, true},
		"bytes, not its time": {func(t *testing.T, path string) { t.Helper(); overwrite(t, path, strings.Repeat("x", size)) }, true, false},
		"another file": {func(t *testing.T, path string) {
			t.Helper()
			rewrite(t, path+".new", bytes)
			if err := os.Rename(path+".new", path); err != nil {
				t.Fatal(err)
			}
		}, false, false},
	} {
		for _, q := range []quirks{{}, {noAttributes: true}} {
			root := t.TempDir()
			s := newStore(t, Settings{Root: root})
			s.quirks = q
			put(t, s, "k", bytes, muxcore.PutOptions{ETag: `"stored"`, ModTime: time.Unix(1e9, 0), Digests: muxcore.Digests{SHA256: sum[:]}})
			row.change(t, filepath.Join(root, "k"))
			if row.told && !row.noticed {
				age(t, root, "k", q)
			}
			r := stat(t, s, "k").Record
			switch {
			case row.told != (r != nil):
				t.Errorf("%s %+v: on record is %+v", name, q, r)
			case r == nil:
			case r.Noticed != row.noticed || r.Size != size || r.ETag != `"stored"` || string(r.Digests.SHA256) != string(sum[:]) || !r.ModTime.Equal(time.Unix(1e9, 0)):
				t.Errorf("%s %+v: on record is %+v", name, q, r)
			}
		}
	}
}

// rewrite writes bytes into a file, now.
func rewrite(t *testing.T, path, body string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(body), 0o600); err != nil {
		t.Fatal(err)
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

// The same right after the Put, which changes the file itself after it has written what it says of it.
func TestAChangeRightAfterThePut(t *testing.T) {
	for _, q := range []quirks{{}, {noAttributes: true}} {
		root := t.TempDir()
		s := newStore(t, Settings{Root: root})
		s.quirks = q
		sum := sha256.Sum256([]byte("12345"))
		opts := muxcore.PutOptions{ETag: `"stored"`, Digests: muxcore.Digests{SHA256: sum[:]}}
		for _, fresh := range []string{"", "*"} {
			key := "changed" + fresh
			opts.Conditions.IfNoneMatch = fresh
			put(t, s, key, "12345", opts)
			if info := stat(t, s, key); info.ETag != `"stored"` {
				t.Errorf("%+v: %s = %+v", q, key, info)
			}
			tick(t)
			overwrite(t, filepath.Join(root, key), "xxxxx")
			if info := stat(t, s, key); info.ETagStored || info.ETag == `"stored"` || info.Digests.SHA256 != nil {
				t.Errorf("%+v: %s with other bytes = %+v", q, key, info)
			}
		}
		opts.Conditions.IfNoneMatch = ""
		put(t, s, "linked", "12345", opts)
		tick(t)
		if err := os.Link(filepath.Join(root, "linked"), filepath.Join(root, "backup")); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if info := becomes(t, s, "linked", func(i muxcore.Info) bool { return i.ETagStored }); info.ETag != `"stored"` {
				t.Errorf("%+v: linked = %+v", q, info)
			}
		}
	}
}
