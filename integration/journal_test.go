package integration_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/suaveplan/caddy-storage-mux/integration/rig"
)

// mirrorOfFolders is a mirror of three folders.
const mirrorOfFolders = `
	storage_mux mirror {
		name t
		writable
		journal {$DIR}/j/journal
		list
		cooldown 100ms 500ms
		backend a file {$DIR}/a
		backend b file {$DIR}/b
		backend c file {$DIR}/c
	}`

// startFolders starts a Caddy over the folders a, b and c of a test.
func startFolders(t *testing.T, config string) *rig.Caddy {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"a", "b", "c"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return rig.Start(t, config, rig.InDir(dir))
}

// unmount takes a folder away; mount puts it back.
func unmount(t *testing.T, c *rig.Caddy, name string) {
	t.Helper()
	if err := os.Rename(filepath.Join(c.Dir, name), filepath.Join(c.Dir, name+".away")); err != nil {
		t.Fatal(err)
	}
	time.Sleep(1100 * time.Millisecond) // a root that has gone is noticed within a second
}

func mount(t *testing.T, c *rig.Caddy, name string) {
	t.Helper()
	if err := os.Rename(filepath.Join(c.Dir, name+".away"), filepath.Join(c.Dir, name)); err != nil {
		t.Fatal(err)
	}
}

// holdings are the objects in a folder.
func holdings(dir string) (map[string]string, error) {
	all := make(map[string]string)
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && strings.HasPrefix(e.Name(), ".storage_mux"):
			return filepath.SkipDir
		case e.IsDir():
			return nil
		}
		body, err := os.ReadFile(path)
		all[strings.TrimPrefix(path, dir)] = string(body)
		return err
	})
	return all, err
}

// alike tells what differs between two folders.
func alike(x, y string) error {
	one, err := holdings(x)
	two, err2 := holdings(y)
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	for key, body := range one {
		if other, ok := two[key]; !ok || other != body {
			return fmt.Errorf("%s: %d bytes in %s, there %t with %d in %s", key, len(body), x, ok, len(other), y)
		}
	}
	for key := range two {
		if _, ok := one[key]; !ok {
			return fmt.Errorf("%s is in %s alone", key, y)
		}
	}
	return nil
}

// pending are the pending repairs of a backend of the tree t.
func pending(t *testing.T, c *rig.Caddy, name string) int {
	t.Helper()
	return pendingIn(t, c, "t", name)
}

// pendingIn are the pending repairs of a backend of any tree.
func pendingIn(t *testing.T, c *rig.Caddy, tree, name string) int {
	t.Helper()
	status, body := c.Admin(http.MethodGet, "/storage_mux/"+tree, "")
	var stats struct {
		Backends []struct {
			Name    string `json:"name"`
			Pending int    `json:"pending_repairs"`
		} `json:"backends"`
	}
	if err := json.Unmarshal([]byte(body), &stats); err != nil || status != http.StatusOK {
		t.Fatalf("stats: %d %s: %v", status, body, err)
	}
	for _, b := range stats.Backends {
		if b.Name == name {
			return b.Pending
		}
	}
	t.Fatalf("no backend %s in %s", name, body)
	return 0
}

func answers(t *testing.T, got rig.Response, want int) {
	t.Helper()
	if got.Status != want {
		t.Errorf("status %d, want %d: %.200s", got.Status, want, got.Body)
	}
}

// A backend that was away, with puts, overwrites and deletes going on, is identical to the others after it returns, also
// when Caddy was killed or reloaded in between.
func TestABackendThatWasAwayIsIdenticalAfterItReturns(t *testing.T) {
	for _, between := range []string{"nothing", "kill", "reload"} {
		t.Run(between, func(t *testing.T) {
			c := startFolders(t, mirrorOfFolders)
			large := strings.Repeat("0123456789abcdef", 50_000)
			answers(t, c.Put("/deleted", "old"), 201)
			answers(t, c.Put("/dir/overwritten", "old"), 201)
			answers(t, c.Put("/kept", "kept"), 201)
			unmount(t, c, "b")
			answers(t, c.Put("/new", "new", "Content-Type", "text/x-test", "Cache-Control", "no-store", "Content-Disposition", "inline", "X-Meta-Colour", "red"), 201)
			answers(t, c.Put("/dir/overwritten", large), 204)
			answers(t, c.Delete("/deleted"), 204)
			answers(t, c.Put("/twice", "one"), 201)
			if got := pending(t, c, "b"); got != 4 {
				t.Errorf("%d repairs pending for b, want 4", got)
			}
			switch between {
			case "kill":
				c.Kill()
				c = rig.Start(t, mirrorOfFolders, rig.InDir(c.Dir))
			case "reload":
				c.Reload(strings.Replace(mirrorOfFolders, "cooldown 100ms", "cooldown 90ms", 1))
			}
			if got := pending(t, c, "b"); got != 4 {
				t.Errorf("%d repairs pending for b after %s, want 4", got, between)
			}
			answers(t, c.Put("/twice", "two"), 204)
			answers(t, c.Get("/deleted"), 404)
			mount(t, c, "b")
			c.Eventually(soon, "b is identical to a", func() error {
				if n := pending(t, c, "b"); n > 0 {
					return fmt.Errorf("%d pending", n)
				}
				return errors.Join(alike(c.Dir+"/a", c.Dir+"/b"), alike(c.Dir+"/a", c.Dir+"/c"))
			})
			answers(t, c.Get("/deleted"), 404)
			unmount(t, c, "a")
			unmount(t, c, "c")
			got := c.Get("/new") // from b alone
			for name, want := range map[string]string{
				"Content-Type": "text/x-test", "Cache-Control": "no-store", "Content-Disposition": "inline", "X-Meta-Colour": "red",
			} {
				if got.Header.Get(name) != want {
					t.Errorf("%s of the copy is %q, want %q", name, got.Header.Get(name), want)
				}
			}
			if got := c.Get("/dir/overwritten"); !bytes.Equal(got.Body, []byte(large)) {
				t.Errorf("the copy of what was overwritten has %d bytes", len(got.Body))
			}
		})
	}
}

// Row 68: after a partial write, writing again brings it to the member that missed it; and so does waiting.
func TestCase068WritingAgainReachesTheMemberThatMissedIt(t *testing.T) {
	c := startFolders(t, mirrorOfFolders)
	unmount(t, c, "b")
	if got := c.Put("/x", "body"); got.Status != 201 || got.Header.Get("Storage-Mux-Partial") != "b" {
		t.Errorf("PUT = %d, partial %q, want 201 and b", got.Status, got.Header.Get("Storage-Mux-Partial"))
	}
	mount(t, c, "b")
	c.Eventually(soon, "a write that reaches all", func() error {
		if got := c.Put("/x", "body"); got.Header.Get("Storage-Mux-Partial") != "" {
			return fmt.Errorf("missed by %s", got.Header.Get("Storage-Mux-Partial"))
		}
		return alike(c.Dir+"/a", c.Dir+"/b")
	})
}

// A journal that cannot be made or belongs to another process fails the writes that a backend misses, and no other.
func TestAMissThatCannotBeRemembered(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, dir string){
		"a file is in the way": func(t *testing.T, dir string) { writeFile(t, dir, "j", []byte("file")) },
		"another Caddy has it": func(t *testing.T, dir string) {
			other := startFolders(t, strings.Replace(mirrorOfFolders, "{$DIR}/j", dir+"/j", 1))
			unmount(t, other, "b")
			answers(t, other.Put("/elsewhere", "body"), 201) // c reads its journal, and must find nothing of its own keys there
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := startFolders(t, mirrorOfFolders)
			spoil(t, c.Dir)
			answers(t, c.Put("/x", "body"), 201)
			unmount(t, c, "b")
			for range 2 { // b fails the first, and is left alone at the second
				if got := c.Put("/missed", "body"); got.Status != 502 {
					t.Errorf("PUT = %d, want 502", got.Status)
				}
				answers(t, c.Delete("/x"), 502)
			}
			mount(t, c, "b")
			c.Eventually(soon, "b takes writes again", func() error {
				if got := c.Put("/y", "body"); got.Status >= 300 {
					return fmt.Errorf("PUT = %d", got.Status)
				}
				return nil
			})
		})
	}
}
