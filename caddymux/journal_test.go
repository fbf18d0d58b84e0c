package caddymux

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// A backend that was down gets what it missed, through edits of the config; nothing is made on disk before the first miss.
func TestAJournalSurvivesAReload(t *testing.T) {
	f := scripted(t, "missed")
	dir := filepath.Join(t.TempDir(), "journal")
	config := "storage_mux mirror {\n name t\n writable\n cooldown 10ms\n timeout %dm\n journal " + dir + "\n backend m memory\n backend f scripted missed\n}"
	c := run(t, fmt.Sprintf(config, 1))
	c.expect(http.StatusCreated, "PUT", "/whole", "x")
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the journal is made before anything is missed: %v", err)
	}
	f.Break(&muxcore.Error{Code: muxcore.CodeUnavailable})
	c.expect(http.StatusCreated, "PUT", "/missed", "body")
	if info, err := os.Stat(filepath.Join(dir, "journal")); err != nil || info.Mode().Perm()&0o077 != 0 {
		t.Errorf("journal = %v, %v, want a private file", info, err)
	}
	c.load(fmt.Sprintf(config, 2)) // memory starts afresh; only f can have it
	c.eventually("the old tree is gone", func() bool { return treesAlive() == 1 })
	c.eventually("the new config takes it", func() bool { // Caddy may close a fresh connection unanswered while it reloads
		got, err := c.try("PUT", "/missed", strings.NewReader("body again"))
		return err == nil && (got.status == http.StatusCreated || got.status == http.StatusNoContent)
	})
	f.Mend()
	c.eventually("f has it", func() bool {
		info, err := f.Stat(t.Context(), "missed", muxcore.Conditions{})
		return err == nil && info.Size == int64(len("body again"))
	})
}

// Two trees cannot have one journal; two configs of one tree can, and nested muxes have part in that of their tree.
func TestAJournalBelongsToOneTree(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "journal")
	const two = "route {\nstorage_mux {\n name a\n journal %s\n backend m memory\n}\nstorage_mux {\n name b\n journal %s\n backend m memory\n}\n}"
	c := run(t, fmt.Sprintf(two, dir, "off"))
	if err := c.tryLoad(fmt.Sprintf(two, dir, dir)); err == nil || !strings.Contains(err.Error(), "journal: ") || !strings.Contains(err.Error(), dir) {
		t.Errorf("two trees with one journal: %v", err)
	}
	c.load(fmt.Sprintf(two, dir, dir+"2"))
	c.load(strings.ReplaceAll(fmt.Sprintf(two, dir, "off"), "name a", "name renamed"))
}

// Where the journal of each mux of a tree is.
func TestWhereJournalsAre(t *testing.T) {
	h := provisioned(t, "storage_mux {\n name t\n backend m memory\n backend n mux {\n backend m memory\n backend o mux {\n journal off\n backend m memory\n}\n}\n backend p mux {\n journal /x/y\n backend m memory\n}\n}")
	got := make(map[string]string)
	h.tree.root.eachMux(func(b *branch) { got[b.scope] = b.journal })
	own := defaultJournal("t")
	for scope, want := range map[string]string{"": own, "n": own, "n.o": "", "p": "/x/y"} {
		if got[scope] != want {
			t.Errorf("the journal of %q is in %q, want %q", scope, got[scope], want)
		}
	}
	if _, err := os.Stat(own); !os.IsNotExist(err) {
		t.Errorf("provisioning has made %s: %v", own, err)
	}
}
