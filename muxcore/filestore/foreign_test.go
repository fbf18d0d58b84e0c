package filestore

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

func TestFilesOfOthersHaveTypeAndValidators(t *testing.T) {
	root := t.TempDir()
	path := write(t, root, "site/page.html", "<p>")
	at := time.Date(2020, 1, 2, 3, 4, 5, 678, time.UTC)
	if err := os.Chtimes(path, at, at); err != nil {
		t.Fatal(err)
	}
	s := newStore(t, Settings{Root: root})
	info := stat(t, s, "site/page.html")
	// As caddyhttp/fileserver's calculateEtag.
	want := `"` + strconv.FormatInt(at.UnixNano(), 36) + "-" + strconv.FormatInt(3, 36) + `"`
	if info.ETag != want || info.ETagStored || !info.ModTime.Equal(at) || info.Size != 3 || !strings.HasPrefix(info.ContentType, "text/html") {
		t.Errorf("Stat = %+v, want ETag %s, time %v, text/html", info, want, at)
	}
	if err := os.Chtimes(path, at, time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if info := stat(t, s, "site/page.html"); info.ETag != "" || !info.ModTime.IsZero() {
		t.Errorf("Stat of a file of 1970 = %+v, want no validators", info)
	}
}

func TestAChangeBehindOurBackIsNoticed(t *testing.T) {
	full := muxcore.PutOptions{
		ETag: `"stored"`, Attributes: muxcore.Attributes{ContentType: "x/y", CacheControl: "no-store"},
		Digests: muxcore.Digests{SHA256: nil}, ModTime: time.Unix(1e9, 0),
	}
	for name, change := range map[string]func(path string) error{
		"written in place": func(path string) error { return os.WriteFile(path, []byte("other"), 0o644) },
		"replaced with the same time": func(path string) error {
			fi, err := os.Stat(path)
			if err != nil {
				return err
			}
			return errors.Join(os.WriteFile(path+".new", []byte("other"), 0o644), os.Chtimes(path+".new", fi.ModTime(), fi.ModTime()), os.Rename(path+".new", path))
		},
		"appended to": func(path string) error {
			f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			_, err = f.WriteString("!")
			return errors.Join(err, f.Close())
		},
	} {
		for _, q := range []quirks{{}, {noAttributes: true}} {
			root := t.TempDir()
			s := newStore(t, Settings{Root: root})
			s.quirks = q
			put(t, s, "f.html", "bytes", full)
			if info := stat(t, s, "f.html"); info.ETag != `"stored"` || info.ContentType != "x/y" {
				t.Errorf("%s: Stat before = %+v", name, info)
			}
			if err := change(filepath.Join(root, "f.html")); err != nil {
				t.Fatal(err)
			}
			info := stat(t, s, "f.html")
			if info.ETag == `"stored"` || info.ETagStored || info.CacheControl != "" || !strings.HasPrefix(info.ContentType, "text/html") {
				t.Errorf("%s (%+v): Stat = %+v, which is the old identity", name, q, info)
			}
		}
	}
}

func TestMetadataOutlivesARestart(t *testing.T) {
	root := t.TempDir()
	want := put(t, newStore(t, Settings{Root: root}), "a/b.txt", "bytes", muxcore.PutOptions{
		ETag: `"id"`, ModTime: time.Unix(12345, 678_000_000),
		Attributes: muxcore.Attributes{ContentType: "x/y", Metadata: map[string]string{"a:b\\\n": "1\n2:\\3"}},
	})
	got := stat(t, newStore(t, Settings{Root: root}), "a/b.txt")
	if got.ETag != want.ETag || !got.ETagStored || !got.ModTime.Equal(want.ModTime) || got.ContentType != "x/y" || got.Metadata["a:b\\\n"] != "1\n2:\\3" {
		t.Errorf("Stat after a restart = %+v, want %+v", got, want)
	}
}

func TestLargeMetadataGoesToASideFileAndLeavesWithItsObject(t *testing.T) {
	root := t.TempDir()
	s := newStore(t, Settings{Root: root})
	large := muxcore.Attributes{Metadata: map[string]string{"large": strings.Repeat("m", 200_000)}}
	put(t, s, "k", "one", muxcore.PutOptions{Attributes: large})
	if got := stat(t, s, "k").Metadata["large"]; len(got) != 200_000 {
		t.Errorf("Stat gives %d bytes of metadata", len(got))
	}
	if got := left(t, root); len(got) != 1 || !strings.HasPrefix(got[0], sidePrefix) {
		t.Errorf("side files: %q, want one", got)
	}
	put(t, s, "k", "two", muxcore.PutOptions{Attributes: large})
	if got := left(t, root); len(got) != 1 {
		t.Errorf("side files after an overwrite: %q, want one", got)
	}
	if got := keys(t, s, muxcore.ListOptions{}); got != "k" {
		t.Errorf("List = %q", got)
	}
	put(t, s, "k", "three", muxcore.PutOptions{})
	if got := left(t, root); len(got) != 0 {
		t.Errorf("side files after small metadata: %q", got)
	}
	put(t, s, "k", "four", muxcore.PutOptions{Attributes: large})
	if _, err := s.Delete(t.Context(), "k", muxcore.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := names(t, root); len(got) != 0 {
		t.Errorf("after a delete: %q", got)
	}
}

func TestACrashBeforeTheRenameLeavesTheOldObjectWithItsIdentity(t *testing.T) {
	root := t.TempDir()
	s := newStore(t, Settings{Root: root})
	s.quirks.noAttributes = true
	put(t, s, "k", "old", muxcore.PutOptions{ETag: `"old"`})

	// All that a Put does before it renames; then the process is gone.
	d, err := s.acquire()
	if err != nil {
		t.Fatal(err)
	}
	defer s.release(d)
	tmp, err := s.newTemp(d, "k")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tmp.f.WriteString("new"); err != nil {
		t.Fatal(err)
	}
	if _, err := tmp.finish("k", &muxcore.PutOptions{ETag: `"new"`}, muxcore.Digests{}); err != nil {
		t.Fatal(err)
	}
	_ = tmp.f.Close()
	wantBody(t, s, "k", "old")
	if info := stat(t, s, "k"); info.ETag != `"old"` || !info.ETagStored {
		t.Errorf("Stat = %+v, want the old identity", info)
	}
	// And had it come to the rename: new bytes, new identity.
	if err := d.Rename(tmp.name, "k"); err != nil {
		t.Fatal(err)
	}
	wantBody(t, s, "k", "new")
	if info := stat(t, s, "k"); info.ETag != `"new"` {
		t.Errorf("Stat = %+v, want the new identity", info)
	}
}

// Bytes of a file that somebody cuts off or writes into while it is read are not given out, and nobody is to blame; what comes in its place
// by a rename, or is appended, does no harm.
func TestAFileThatIsChangedWhileItIsReadBreaksOff(t *testing.T) {
	root := t.TempDir()
	s := newStore(t, Settings{Root: root})
	const size = 300_000
	reads := map[string]func(body io.Reader, w io.Writer) (int64, error){
		"Read":    func(body io.Reader, w io.Writer) (int64, error) { return io.Copy(w, struct{ io.Reader }{body}) },
		"WriteTo": func(body io.Reader, w io.Writer) (int64, error) { return body.(io.WriterTo).WriteTo(w) },
	}
	into := func(path string) error {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		_, err = f.WriteAt([]byte("y"), size-1)
		return errors.Join(err, f.Close())
	}
	for way, read := range reads {
		for change, c := range map[string]struct {
			do     func(path string) error
			breaks bool
		}{
			"cut off":      {func(path string) error { return os.Truncate(path, size/2) }, true},
			"written into": {into, true},
			"replaced": {func(path string) error {
				return errors.Join(os.WriteFile(path+"2", []byte("y"), 0o644), os.Rename(path+"2", path))
			}, false},
			"removed": {os.Remove, false},
		} {
			t.Run(way+", "+change, func(t *testing.T) {
				path := write(t, root, "f", strings.Repeat("x", size))
				past := time.Now().Add(-time.Hour)
				if err := os.Chtimes(path, past, past); err != nil {
					t.Fatal(err)
				}
				o, err := s.Get(t.Context(), "f", muxcore.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				defer o.Body.Close()
				var got bytes.Buffer
				if _, err := io.CopyN(&got, struct{ io.Reader }{o.Body}, 1000); err != nil {
					t.Fatal(err)
				}
				if err := c.do(path); err != nil {
					t.Fatal(err)
				}
				_, err = read(o.Body, &got)
				if strings.Trim(got.String(), "x") != "" {
					t.Errorf("bytes of another version come out")
				}
				switch {
				case c.breaks && (err == nil || errors.Is(err, io.EOF) || muxcore.Classify(t.Context(), err).Counts()):
					t.Errorf("it ends with %v after %d bytes, want an error that is nobody's failure", err, got.Len())
				case !c.breaks && (err != nil || got.Len() != size):
					t.Errorf("%d bytes, %v, want all", got.Len(), err)
				}
			})
		}
	}
}

func TestAGrowingFileYieldsWhatItHad(t *testing.T) {
	root := t.TempDir()
	path := write(t, root, "log", "first")
	s := newStore(t, Settings{Root: root})
	o, err := s.Get(t.Context(), "log", muxcore.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer o.Body.Close()
	if err := os.WriteFile(path, []byte("first and second"), 0o644); err != nil {
		t.Fatal(err)
	}
	if data, err := io.ReadAll(o.Body); string(data) != "first" || err != nil {
		t.Errorf("a body of a file that grew = %q, %v, want first", data, err)
	}
}
