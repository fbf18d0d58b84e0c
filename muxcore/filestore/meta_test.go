package filestore

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

var someFile = fingerprint{size: 5, mtime: 1_700_000_000_123_456_789, inode: 42, ctime: 7}

func fullInfo() muxcore.Info {
	return muxcore.Info{
		ModTime: time.Unix(1_700_000_000, 5), ETag: `"a:b\"`, ETagStored: true,
		Digests: muxcore.Digests{MD5: make([]byte, 16), SHA256: make([]byte, 32), SHA512: make([]byte, 64)},
		Attributes: muxcore.Attributes{
			ContentType: "text/html; charset=utf-8", CacheControl: "a:b", ContentDisposition: "c\\n", ContentEncoding: "gzip\n",
			ContentLanguage: "de", Expires: "0", Metadata: map[string]string{"a": "1", "b:c": "2:3", `d\`: `\:`, "": "nameless", "empty": ""},
		},
	}
}

func TestMetadataIsReadAsItWasWritten(t *testing.T) {
	for _, want := range []muxcore.Info{{ModTime: time.Unix(0, 0)}, {ModTime: time.Unix(-5, 7), ETag: `"own"`}, fullInfo()} {
		var got muxcore.Info
		text := formatMeta(someFile, &want)
		if !parseMeta(text, someFile, &got) {
			t.Errorf("parseMeta(%q) fails", text)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("metadata differs (-want +got):\n%s\ntext: %q", diff, text)
		}
	}
}

func TestMetadataOfAnotherFileOrBrokenIsNotTaken(t *testing.T) {
	full := fullInfo()
	text := formatMeta(someFile, &full)
	for name, other := range map[string]fingerprint{
		"size":  {size: 6, mtime: someFile.mtime, inode: someFile.inode},
		"time":  {size: someFile.size, mtime: someFile.mtime + 1, inode: someFile.inode},
		"inode": {size: someFile.size, mtime: someFile.mtime, inode: 43},
	} {
		if parseMeta(text, other, &muxcore.Info{}) {
			t.Errorf("metadata is taken for a file of another %s", name)
		}
	}
	is := "\nis:" + someFile.String()
	for _, broken := range []string{
		"", metaHeader, "storage_mux 2" + is, metaHeader + is + "\nno colon", metaHeader + is + "\nsha256:zz", metaHeader + is + "\nsha256:00",
		metaHeader + is + "\nmodified:x 1", metaHeader + is + "\nmodified:1 1000000000", metaHeader + is + "\nmeta:no end", inSide, metaHeader + is + "\n",
		metaHeader + "\netag:\"x\"", metaHeader + is + "\n" + is,
	} {
		if parseMeta(broken, someFile, &muxcore.Info{}) {
			t.Errorf("parseMeta(%q) succeeds", broken)
		}
	}
	if later := metaHeader + is + "\nlater:field"; !parseMeta(later, someFile, &muxcore.Info{}) {
		t.Errorf("parseMeta(%q) fails: fields of later versions do no harm", later)
	}
}

func FuzzMetadata(f *testing.F) {
	full := fullInfo()
	f.Add(formatMeta(someFile, &full))
	f.Add(metaHeader + "\nis:5 1 2\nmeta:a\\:b:c\\\nmodified:1 2")
	f.Add(strings.Repeat("\n:", 10))
	f.Fuzz(func(t *testing.T, text string) {
		var once, twice muxcore.Info
		if !parseMeta(text, someFile, &once) {
			return
		}
		again := formatMeta(someFile, &once)
		if !parseMeta(again, someFile, &twice) {
			t.Fatalf("%q is read, but not %q, which is written of it", text, again)
		}
		// Times that were never given are written as year 1, which is read as that.
		if diff := cmp.Diff(once, twice, cmp.Comparer(func(a, b time.Time) bool { return a.Equal(b) })); diff != "" {
			t.Fatalf("%q changes when it is written again:\n%s", text, diff)
		}
	})
}
