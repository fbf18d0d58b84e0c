package filestore

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pkg/xattr"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// Metadata that somebody else has written, in the attribute or the side file, changes no byte, is no failure, and says nothing
// that no object can have.
func FuzzForeignMetadata(f *testing.F) {
	full := fullInfo()
	text := strings.Replace(formatMeta(someFile, &full), "is:"+strings.ReplaceAll(someFile.String(), ":", `\:`), "is:{is}", 1)
	for _, text := range []string{
		text, inSide, "", metaHeader, metaHeader + "\nis:{is}", metaHeader + "\nis:{is}\netag:no quotes", metaHeader + "\nis:{is}\nown-etag:W/\"a\"x", metaHeader + "\nis:{is}\netag:\"a\nb\"",
		metaHeader + "\nis:{is}\nmodified:9223372036854775807 0", metaHeader + "\nis:{is}\nmodified:-9223372036854775808 0", metaHeader + "\nis:{is}\nsha256:" + strings.Repeat("00", 32) + "\nchanged:1",
		strings.Repeat("x", 100_000), metaHeader + "\nis:{is}\nmeta:" + strings.Repeat(`\`, 4001) + ":x",
	} {
		f.Add(text, true)
		f.Add(text, false)
	}
	f.Fuzz(func(t *testing.T, text string, side bool) {
		root := t.TempDir()
		s := newStore(t, Settings{Root: root})
		s.quirks.noAttributes = side
		path := write(t, root, "dir/key.txt", "the body")
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		fi, err := file.Stat()
		if err != nil {
			t.Fatal(err)
		}
		is := fingerprintOf(file, fi)
		text = strings.ReplaceAll(text, "{is}", is.String())
		if side || text == inSide {
			write(t, root, sideName("dir/key.txt", is.inode), text)
		}
		if !side && xattr.Set(path, attribute, []byte(text)) != nil {
			t.Skip("the file system does not take it")
		}
		wantBody(t, s, "dir/key.txt", "the body")
		info := stat(t, s, "dir/key.txt")
		if tag, rest, ok := muxcore.CutETag(info.ETag); info.ETag != "" && (!ok || rest != "" || tag != info.ETag) || info.ETagStored && !muxcore.IsStrong(tag) {
			t.Errorf("%q gives the ETag %q, stored: %t", text, info.ETag, info.ETagStored)
		}
		if _, err := info.ModTime.MarshalJSON(); err != nil || info.Size != 8 {
			t.Errorf("%q gives the time %v, %v, and %d bytes", text, info.ModTime, err, info.Size)
		}
		if all := keys(t, s, muxcore.ListOptions{Details: true}); all != "dir/key.txt" {
			t.Errorf("%q gives the list %q", text, all)
		}
		res, err := s.Put(t.Context(), "dir/key.txt", strings.NewReader("new"), 3, muxcore.PutOptions{ETag: `"new"`, ModTime: time.Unix(1_700_000_000, 0)})
		if err != nil || !res.Existed {
			t.Errorf("Put over %q = %+v, %v", text, res, err)
		}
		if now := stat(t, s, "dir/key.txt"); now.ETag != `"new"` || now.Size != 3 {
			t.Errorf("what was put over %q is %+v", text, now)
		}
		if _, err := s.Delete(t.Context(), "dir/key.txt", muxcore.DeleteOptions{}); err != nil {
			t.Errorf("Delete of %q = %v", text, err)
		}
		if _, err := os.Stat(filepath.Join(root, "dir/key.txt")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("it is still there: %v", err)
		}
	})
}
