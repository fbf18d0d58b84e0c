package filestore

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// A directory that is larger than a page is read several times; nothing is lost or doubled in between.
func TestPagesOfADirectoryGiveEachEntryOnce(t *testing.T) {
	root := t.TempDir()
	var want []string
	for i := range 40 {
		name := fmt.Sprintf("f%02d", i*7%40)
		if i%3 == 0 {
			name += "/below"
		}
		write(t, root, name, "x")
		want = append(want, name)
	}
	slices.Sort(want)
	s := newStore(t, Settings{Root: root})
	for _, size := range []int{1, 2, 3, 7, 39, 40, 41} {
		var got []string
		w := &walk{ctx: t.Context(), opts: &muxcore.ListOptions{}, pageSize: size, yield: func(e muxcore.Entry, err error) bool {
			got = append(got, e.Key)
			return err == nil
		}}
		if err := s.walk(w); err != nil || !slices.Equal(got, want) {
			t.Errorf("pages of %d: %v, %q, want %q", size, err, got, want)
		}
	}
}

func TestFoldersWithoutObjectsAreNoPrefixes(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"empty", "nested/empty/folders", "only/reserved", "only/refused"} {
		if err := os.MkdirAll(filepath.Join(root, filepath.FromSlash(dir)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, root, "only/reserved/.storage_mux-tmp-x", "x")
	write(t, root, "only/refused/dot.", "x")
	write(t, root, "full/of/it", "x")
	_ = os.WriteFile(filepath.Join(root, "bad\xffname"), []byte("x"), 0o600) // not every file system takes it
	s := newStore(t, Settings{Root: root})
	if got := keys(t, s, muxcore.ListOptions{Delimiter: "/"}); got != "full/" {
		t.Errorf("List by folder = %q, want full/", got)
	}
	if got := keys(t, s, muxcore.ListOptions{}); got != "full/of/it" {
		t.Errorf("List = %q, want full/of/it", got)
	}
	if got := keys(t, s, muxcore.ListOptions{Prefix: "full/of/it/"}); got != "" {
		t.Errorf("List below an object = %q", got)
	}
}

func TestListsInsideOfLoopsSeeChanges(t *testing.T) {
	s := newStore(t, Settings{})
	for i := range 5 {
		put(t, s, fmt.Sprintf("d%d/k", i), "x", muxcore.PutOptions{})
	}
	var got []string
	for e, err := range s.List(t.Context(), muxcore.ListOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, e.Key)
		_, _ = s.Delete(t.Context(), "d3/k", muxcore.DeleteOptions{})
	}
	if want := "d0/k d1/k d2/k d4/k"; strings.Join(got, " ") != want {
		t.Errorf("List = %q, want %q: what vanishes is left out", got, want)
	}
}
