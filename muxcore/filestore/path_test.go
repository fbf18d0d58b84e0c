package filestore

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

func TestNamesWithAnotherMeaningOnWindowsAreRefusedEverywhere(t *testing.T) {
	s := newStore(t, Settings{})
	for _, key := range []string{
		"x.txt::$DATA", "x:stream:$DATA", "dir:$I30:$INDEX_ALLOCATION/x", "x.txt.", "x.txt ", "dir./x", "dir /x", "...", "CON", "con", "Con.txt",
		"prn", "AUX.tar.gz", "nul", "a/NUL/b", "COM1", "com9.log", "LPT1", "lpt0", "COM¹", "CONIN$", "conout$.x", "con .txt", "PROGRA~1", "progra~1.txt",
		"a~1", "LONGFI~2.HTM", strings.Repeat("x", 256), "a/" + strings.Repeat("é", 128),
	} {
		wantCode(t, fmt.Sprintf("CheckKey(%.40q)", key), s.CheckKey(key), muxcore.CodeInvalidKey)
		_, err := s.Put(t.Context(), key, strings.NewReader("x"), 1, muxcore.PutOptions{})
		wantCode(t, fmt.Sprintf("Put(%.40q)", key), err, muxcore.CodeInvalidKey)
		_, err = s.Get(t.Context(), key, muxcore.GetOptions{})
		wantCode(t, fmt.Sprintf("Get(%.40q)", key), err, muxcore.CodeInvalidKey)
	}
	for _, key := range []string{
		"console", "con1", "com", "com10", "COMA", "lpt", "auxiliary.txt", "nullable", "x.con", "a~b", "~1", "backup~1.tar.gz.x", "verylong~1name",
		"name~1.html5", "tilde~", "file.txt~1", strings.Repeat("x", 255), "a.b.c", ".hidden", "$DATA",
	} {
		if err := s.CheckKey(key); err != nil {
			t.Errorf("CheckKey(%.40q) = %v, want nil", key, err)
		}
	}
}

func TestNoPathLeadsOutOfTheRoot(t *testing.T) {
	dir := t.TempDir()
	secret := write(t, dir, "outside/secret", "secret")
	root := filepath.Dir(write(t, dir, "root/inside", "x"))
	for link, target := range map[string]string{
		"abs": secret, "rel": "../outside/secret", "absdir": filepath.Dir(secret), "reldir": "../outside", "up": "..",
	} {
		if err := os.Symlink(target, filepath.Join(root, link)); err != nil {
			t.Skip(err)
		}
	}
	s := newStore(t, Settings{Root: root})
	for _, key := range []string{"abs", "rel", "absdir/secret", "reldir/secret", "up/outside/secret"} {
		if got, err := get(t, s, key); err == nil {
			t.Errorf("Get(%q) = %q: it left the root", key, got)
		} else {
			wantCode(t, "Get("+key+")", err, muxcore.CodeKeyNotFound)
		}
		_, err := s.Put(t.Context(), key, strings.NewReader("x"), 1, muxcore.PutOptions{})
		wantCode(t, "Put("+key+")", err, muxcore.CodeKeyConflict)
		_, err = s.Delete(t.Context(), key, muxcore.DeleteOptions{})
		wantCode(t, "Delete("+key+")", err, muxcore.CodeKeyNotFound)
	}
	if got := keys(t, s, muxcore.ListOptions{}); got != "inside" {
		t.Errorf("List = %q, want the file inside", got)
	}
	for _, prefix := range []string{"reldir/", "up/", "absdir/s"} {
		if got := keys(t, s, muxcore.ListOptions{Prefix: prefix}); got != "" {
			t.Errorf("List(%q) = %q", prefix, got)
		}
	}
	if data, err := os.ReadFile(secret); string(data) != "secret" || err != nil {
		t.Errorf("the file outside is %q, %v", data, err)
	}
}

func TestLinksWithinTheRootAreServed(t *testing.T) {
	root := t.TempDir()
	write(t, root, "real/file", "linked")
	for link, target := range map[string]string{"link": "real/file", "dir": "real", "real/self": ".", "loop": "loop", "dangling": "nowhere", "chain": "link"} {
		if err := os.Symlink(target, filepath.Join(root, filepath.FromSlash(link))); err != nil {
			t.Skip(err)
		}
	}
	s := newStore(t, Settings{Root: root})
	for _, key := range []string{"link", "chain", "dir/file", "real/self/file", "real/self/self/self/file"} {
		wantBody(t, s, key, "linked")
	}
	for _, key := range []string{"loop", "dangling", "dir"} {
		_, err := get(t, s, key)
		wantCode(t, "Get("+key+")", err, muxcore.CodeKeyNotFound)
	}
	if got := keys(t, s, muxcore.ListOptions{}); got != "chain link real/file" {
		t.Errorf("List = %q, want linked files, no linked folders, and an end", got)
	}
	_, err := s.Put(t.Context(), "dir", strings.NewReader("x"), 1, muxcore.PutOptions{})
	wantCode(t, "Put over a linked folder", err, muxcore.CodeKeyConflict)
	put(t, s, "link", "own", muxcore.PutOptions{})
	wantBody(t, s, "link", "own")
	wantBody(t, s, "real/file", "linked")
	put(t, s, "dir/new", "through a linked folder", muxcore.PutOptions{})
	wantBody(t, s, "real/new", "through a linked folder")
	if _, err := s.Delete(t.Context(), "dir/new", muxcore.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(filepath.Join(root, "dir")); err != nil {
		t.Errorf("the linked folder after a delete: %v", err)
	}
}

func TestDeleteRemovesTheFoldersItEmptiesAndNoOther(t *testing.T) {
	root := t.TempDir()
	s := newStore(t, Settings{Root: root})
	for _, dir := range []string{"empty", "a/b/other"} {
		if err := os.MkdirAll(filepath.Join(root, filepath.FromSlash(dir)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	put(t, s, "a/b/c/d/e", "x", muxcore.PutOptions{})
	if _, err := s.Delete(t.Context(), "a/b/c/d/e", muxcore.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for dir, stays := range map[string]bool{"empty": true, "a/b/other": true, "a/b": true, "a/b/c": false} {
		if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(dir))); (err == nil) != stays {
			t.Errorf("folder %q: %v, want that it stays: %t", dir, err, stays)
		}
	}
	put(t, s, "empty", "an object now", muxcore.PutOptions{})
	wantBody(t, s, "empty", "an object now")
	if got := left(t, root); len(got) > 0 {
		t.Errorf("left behind: %q", got)
	}
}

func TestARefusedUploadLeavesNothing(t *testing.T) {
	root := t.TempDir()
	s := newStore(t, Settings{Root: root})
	if err := os.Mkdir(filepath.Join(root, "mine"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"mine/k", "new/deep/k", "mine/below/k"} {
		_, err := s.Put(t.Context(), key, strings.NewReader("short"), 100, muxcore.PutOptions{})
		wantCode(t, "Put of a short body", err, muxcore.CodeBodyMismatch)
	}
	entries, err := os.ReadDir(root)
	if err != nil || len(entries) != 1 || entries[0].Name() != "mine" {
		t.Errorf("in the root: %v, %v, want only the folder that was there", entries, err)
	}
	if inside, err := os.ReadDir(filepath.Join(root, "mine")); err != nil || len(inside) > 0 {
		t.Errorf("in the folder: %v, %v", inside, err)
	}
}

func TestTwoStoresOnOneRootCreateAnObjectOnce(t *testing.T) {
	root := t.TempDir()
	stores := []*Store{newStore(t, Settings{Root: root}), newStore(t, Settings{Root: root})}
	results := make(chan error, 24)
	for i := range cap(results) {
		go func() {
			_, err := stores[i%2].Put(t.Context(), "once", strings.NewReader("x"), 1, muxcore.PutOptions{Conditions: muxcore.Conditions{IfNoneMatch: "*"}})
			results <- err
		}()
	}
	created := 0
	for range cap(results) {
		if err := <-results; err == nil {
			created++
		} else {
			wantCode(t, "Put beside others", err, muxcore.CodePreconditionFailed)
		}
	}
	if created != 1 {
		t.Errorf("%d writers of two stores created the object, want 1", created)
	}
	if got := left(t, root); len(got) > 0 {
		t.Errorf("left behind: %q", got)
	}
}
