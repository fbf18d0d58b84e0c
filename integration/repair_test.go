package integration_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/integration/rig"
)

// files gives what a folder holds, by name, without what belongs to the storage itself.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := make(map[string]string)
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || strings.Contains(path, ".storage_mux") || e.IsDir() {
			return err
		}
		body, err := os.ReadFile(path)
		name, _ := filepath.Rel(dir, path)
		all[filepath.ToSlash(name)] = string(body)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// repaired asks for a repair and gives its last line, the summary.
func repaired(t *testing.T, c *rig.Caddy, query string) map[string]any {
	t.Helper()
	status, answer := c.Admin("POST", "/storage_mux/t/repair"+query, "")
	lines := strings.Split(strings.TrimSpace(answer), "\n")
	var last struct {
		Summary map[string]any `json:"summary"`
	}
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); status != http.StatusOK || err != nil || last.Summary == nil {
		t.Fatalf("repair%s = %d %s: %v", query, status, answer, err)
	}
	return last.Summary
}

// Two folders come apart behind Caddy's back, and are brought back together.
func TestFoldersThatHaveComeApartAreRepaired(t *testing.T) {
	t.Parallel()
	c := rig.Start(t, `
		storage_mux mirror {
			name t
			writable
			backend a file {$DIR}/a {
				create_root
			}
			backend b file {$DIR}/b {
				create_root
			}
		}`)
	a, b := filepath.Join(c.Dir, "a"), filepath.Join(c.Dir, "b")
	for i := range 50 {
		wantStatus(t, "PUT", c.Put(fmt.Sprintf("/dir%d/k%d", i%5, i), fmt.Sprint("body ", i), "X-Meta-N", fmt.Sprint(i)), http.StatusCreated)
	}
	want := files(t, a)
	if len(want) != 50 || !maps.Equal(want, files(t, b)) {
		t.Fatalf("%d files in a, %d in b", len(want), len(files(t, b)))
	}
	for i := range 50 {
		name := fmt.Sprintf("dir%d/k%d", i%5, i)
		var err error
		switch i % 4 {
		case 0:
			err = os.Remove(filepath.Join(a, name))
		case 1:
			err = os.Remove(filepath.Join(b, name))
		case 2: // altered in place by somebody else: however new it is, it does not spread by itself
			writeFile(t, b, name, []byte("somebody else"))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	writeFile(t, b, "new/one", []byte("new"))
	want["new/one"] = "new"

	if got := fmt.Sprint(repaired(t, c, "?dry_run=1")["copied"], len(files(t, a))); got != "39 37" {
		t.Errorf("a dry run: %s, want 39 copies told of and 37 files left", got)
	}
	sum := repaired(t, c, "")
	if got := fmt.Sprint(sum["copied"], sum["failed"], sum["keys"]); got != "39 0 51" {
		t.Errorf("copied, failed, keys = %s: %v", got, sum)
	}
	for name, dir := range map[string]string{"a": a, "b": b} {
		if got := files(t, dir); !maps.Equal(got, want) {
			t.Errorf("%s holds %d files, want %d, the same", name, len(got), len(want))
		}
	}
	// Who names it as the truth makes the edit everybody's, on record where it was made as well.
	writeFile(t, b, "dir2/k2", []byte("somebody else"))
	want["dir2/k2"] = "somebody else"
	if got := repaired(t, c, "?truth=b"); got["copied"] != 2.0 || got["failed"] != 0.0 || !maps.Equal(files(t, a), want) {
		t.Errorf("a repair by the word of b: %v", got)
	}
	if got := repaired(t, c, "?deep=1"); got["copied"] != 0.0 || got["failed"] != 0.0 {
		t.Errorf("a second repair: %v", got)
	}
	if r := c.Get("/dir0/k0"); r.Header.Get("X-Meta-N") != "0" {
		t.Errorf("metadata of what was repaired: %v", r.Header)
	}
	// An origin that is not mounted must not empty its mirrors.
	status, _ := c.Admin("POST", "/storage_mux/t/repair?truth=a&delete=1&prefix=nowhere/", "")
	if status != http.StatusOK {
		t.Errorf("nothing to delete = %d", status)
	}
	if err := os.RemoveAll(a); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(a, 0o755); err != nil {
		t.Fatal(err)
	}
	if status, answer := c.Admin("POST", "/storage_mux/t/repair?truth=a&delete=1", ""); status != http.StatusConflict {
		t.Errorf("an empty truth = %d %s, want 409", status, answer)
	}
	if got := files(t, b); !maps.Equal(got, want) {
		t.Errorf("b holds %d files after a repair that was refused, want %d", len(got), len(want))
	}
	if sum := repaired(t, c, ""); sum["copied"] != 51.0 || !maps.Equal(files(t, a), want) {
		t.Errorf("a folder that was lost: %v", sum)
	}
}

// Case 88: only the first 1000 entries ever showed.
func TestCase088ALongListComesPageByPage(t *testing.T) {
	t.Parallel()
	const keys = 1200
	eachStore(t, listableStores(t, ""), func(t *testing.T, s store) {
		var want []string
		var uploads sync.WaitGroup
		jobs := make(chan string)
		for range 4 {
			uploads.Go(func() {
				for key := range jobs {
					wantStatus(t, "PUT "+key, s.Put("/"+key, "x"), http.StatusCreated)
				}
			})
		}
		for i := range keys {
			want = append(want, fmt.Sprintf("dir%d/%04d", i%3, i))
			jobs <- want[i]
		}
		close(jobs)
		uploads.Wait()
		slices.Sort(want)
		first := list(t, s.Caddy, "/?list")
		if len(first.Objects) != 1000 || first.Next == "" {
			t.Fatalf("the first page has %d keys, next %q", len(first.Objects), first.Next)
		}
		got := append(first.keys(), list(t, s.Caddy, "/?list&after="+first.Next).keys()...)
		if !slices.Equal(got, want) {
			t.Errorf("%d keys in all, want each of %d once and in order", len(got), len(want))
		}
	})
}
