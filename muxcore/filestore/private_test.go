package filestore

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// Who may write into the root, past us, makes no private key an object by a link or another name: not even one that lost its metadata.
func TestWhatIsPrivateHasNoOtherName(t *testing.T) {
	const ours, bare = muxcore.InternalPrefix + "certs/k.key", muxcore.InternalPrefix + "certs/restored.key"
	for _, q := range []quirks{{}, {noAttributes: true}} {
		root := t.TempDir()
		s := newStore(t, Settings{Root: root})
		s.quirks.noAttributes = q.noAttributes
		put(t, s, ours, "private", muxcore.PutOptions{})
		put(t, s, "sub/object", "public", muxcore.PutOptions{})
		if err := os.Chmod(write(t, root, bare, "private"), 0o600); err != nil {
			t.Fatal(err)
		}
		for link, target := range map[string]string{
			"all": ".storage_mux", "sub/some": "../.storage_mux/storage", "file": ours, "chain": "sub/some/certs", "bare": bare, "well": "sub",
		} {
			if err := os.Symlink(target, filepath.Join(root, filepath.FromSlash(link))); err != nil {
				t.Skip(err)
			}
		}
		for _, key := range []string{"all/storage/certs/k.key", "all/storage/certs/restored.key", "sub/some/certs/k.key", "well/some/certs/k.key", "file", "chain/k.key", "bare"} {
			wantNoObject(t, s, key)
			_, err := s.Put(t.Context(), key, strings.NewReader("x"), 1, muxcore.PutOptions{})
			wantCode(t, "Put("+key+")", err, muxcore.CodeKeyConflict)
		}
		_, err := s.Put(t.Context(), "all/storage/certs/new.key", strings.NewReader("x"), 1, muxcore.PutOptions{})
		wantCode(t, "Put beside them", err, muxcore.CodeKeyConflict)
		for _, opts := range []muxcore.ListOptions{{}, {Details: true}} {
			for prefix, want := range map[string]string{"": "sub/object", "all/": "", "chain/": "", "well/": "well/object", "well/some/": ""} {
				if opts.Prefix = prefix; keys(t, s, opts) != want {
					t.Errorf("List(%+v) = %q, want %q", opts, keys(t, s, opts), want)
				}
			}
		}
		wantBody(t, s, ours, "private")
		wantBody(t, s, bare, "private")
		wantBody(t, s, "well/object", "public")
		if err := os.Rename(filepath.Join(root, muxcore.ReservedPrefix), filepath.Join(root, "open")); err != nil {
			t.Fatal(err)
		}
		wantNoObject(t, s, "open/storage/certs/k.key")
	}
}

func wantNoObject(t *testing.T, s *Store, key string) {
	t.Helper()
	if got, err := get(t, s, key); muxcore.CodeOf(err) != muxcore.CodeKeyNotFound {
		t.Errorf("Get(%q) = %q, %v", key, got, err)
	}
	_, err := s.Delete(t.Context(), key, muxcore.DeleteOptions{})
	wantCode(t, "Delete("+key+")", err, muxcore.CodeKeyNotFound)
}
