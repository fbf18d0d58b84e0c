package integration_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/integration/rig"
)

func TestCommandsReachIntoTheTreesThatATreeUses(t *testing.T) {
	t.Parallel()
	dir := folders(t, "a", "b", "c")
	c := rig.Start(t, `
http://:{$PORT} {
	storage_mux {
		use all
		writable
	}
}`, rig.InDir(dir), rig.Global(`storage_mux all shield {
		backend eu use eu
		backend c file {$DIR}/c
	}
	storage_mux eu mirror {
		backend a file {$DIR}/a
		backend b file {$DIR}/b
	}`))
	wantStatus(t, "PUT", c.Put("/k", "body"), http.StatusCreated)
	for _, place := range []string{"a", "b", "c"} {
		if text, err := os.ReadFile(filepath.Join(dir, place, "k")); string(text) != "body" || err != nil {
			t.Errorf("%s holds %q, %v", place, text, err)
		}
	}
	if out := ok(t, c, "", "explain", "--tree", "all"); !strings.Contains(out, "eu") || !strings.Contains(out, "mirror") {
		t.Errorf("explain draws\n%s", out)
	}
	if err := os.Remove(filepath.Join(dir, "b", "k")); err != nil {
		t.Fatal(err)
	}
	if ran := c.Run("", "storage-mux", "verify", "--tree", "all"); ran.Code != 1 || !strings.Contains(ran.Stdout, "eu.b") {
		t.Errorf("verify exits with %d: %s%s", ran.Code, ran.Stdout, ran.Stderr)
	}
	ok(t, c, "", "repair", "--tree", "all")
	if text, err := os.ReadFile(filepath.Join(dir, "b", "k")); string(text) != "body" || err != nil {
		t.Errorf("after the repair b holds %q, %v", text, err)
	}
	if ran := c.Run("", "storage-mux", "ls", "--tree", "all"); ran.Code != 0 || !strings.Contains(ran.Stdout, "k") {
		t.Errorf("ls exits with %d: %s%s", ran.Code, ran.Stdout, ran.Stderr)
	}
}

func TestCommandsBringTheCopiesOfCertificatesTogether(t *testing.T) {
	t.Parallel()
	dir := folders(t, "a", "b")
	c := rig.Start(t, secured("storage storage_mux mirror {\nname certs\nbackend a file {$DIR}/a\nbackend b file {$DIR}/b\n}", ""), rig.AsIs(), rig.InDir(dir))
	serves(t, c)
	const key = ".storage_mux/storage/certificates/local/site.test/site.test.key"
	copied := filepath.Join(dir, "b", key)
	if err := os.Remove(copied); err != nil {
		t.Fatal(err)
	}
	if ran := c.Run("", "storage-mux", "verify"); ran.Code != 1 || !strings.Contains(ran.Stdout, "site.test.key") {
		t.Errorf("verify exits with %d: %s%s", ran.Code, ran.Stdout, ran.Stderr)
	}
	ok(t, c, "", "repair")
	if fi, err := os.Stat(copied); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("after the repair the copy is %v, %v", fi, err)
	}
	for _, args := range [][]string{{"cat", key}, {"stat", key}, {"rm", key}, {"put", key, copied}, {"ls", ".storage_mux/storage/"}, {"ls", ".storage_mux"}} {
		notOK(t, c, "INVALID_KEY", args...)
	}
	if out := ok(t, c, "", "ls"); strings.Contains(out, "storage") {
		t.Errorf("ls shows %s", out)
	}
}
