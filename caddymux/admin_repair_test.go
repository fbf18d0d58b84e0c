package caddymux

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// askRepair asks the admin API for a repair, and gives the status and the lines of the answer.
func askRepair(t *testing.T, method, target string) (int, []repairLine) {
	t.Helper()
	w := httptest.NewRecorder()
	err := new(adminAPI).serve(w, httptest.NewRequestWithContext(t.Context(), method, "/storage_mux/"+target, nil))
	if apiErr, ok := errors.AsType[caddy.APIError](err); ok {
		if w.Body.Len() > 0 {
			t.Errorf("%s: an error after %s", target, w.Body)
		}
		return apiErr.HTTPStatus, nil
	}
	if err != nil {
		t.Fatal(err)
	}
	var lines []repairLine
	for s := bufio.NewScanner(w.Body); s.Scan(); {
		var line repairLine
		if err := json.Unmarshal(s.Bytes(), &line); err != nil {
			t.Fatalf("%s: %v", s.Text(), err)
		}
		lines = append(lines, line)
	}
	return w.Code, lines
}

// twoFolders is a tree of two folders that have come apart: b lacks k0 to k<n-1>, and has an extra.
func twoFolders(t *testing.T, mode string, n int) (a, b string) {
	t.Helper()
	a, b = t.TempDir(), t.TempDir()
	run(t, fmt.Sprintf("storage_mux %s {\n name t\n writable\n backend a file %s\n backend b file %s\n}", mode, a, b))
	for i := range n {
		writeFile(t, filepath.Join(a, fmt.Sprint("k", i)), "body")
	}
	writeFile(t, filepath.Join(b, "extra"), "extra")
	return a, b
}

func writeFile(t *testing.T, path, body string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(body), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestTheAdminAPIRepairsATree(t *testing.T) {
	_, b := twoFolders(t, "shield", 3)
	want := repairSummary{Keys: 4, Copied: 3, Kept: 1, Bytes: 12, DryRun: true}
	for _, target := range []string{"t/repair?dry_run=1", "t/repair"} {
		status, lines := askRepair(t, http.MethodPost, target)
		if status != http.StatusOK || len(lines) != 5 || lines[4].Summary == nil || *lines[4].Summary != want {
			t.Fatalf("%s = %d, %+v, want the summary %+v", target, status, lines, want)
		}
		want.DryRun = false
		for _, line := range lines[:4] {
			if s := line.RepairStep; s == nil || s.Backend != "b" || (s.Action == "copy") != (s.From == "a" && s.Size == 4 && s.State == "missing") {
				t.Errorf("%s: line %+v", target, line)
			}
		}
	}
	if got, err := os.ReadFile(filepath.Join(b, "k2")); err != nil || string(got) != "body" {
		t.Errorf("b holds %q, %v", got, err)
	}
	if got := gathered(t)["repairs_total{backend=b,cause=repair,tree=t}"]; got != 3 {
		t.Errorf("repairs_total = %v, want 3", got)
	}
	_, lines := askRepair(t, http.MethodPost, "t/repair?deep=1&prefix=k")
	if len(lines) != 1 || *lines[0].Summary != (repairSummary{Keys: 3}) {
		t.Errorf("a second repair: %+v", lines)
	}
	_, lines = askRepair(t, http.MethodPost, "t/repair?truth=b")
	if len(lines) != 2 || lines[0].Backend != "a" || lines[0].Key != "extra" {
		t.Errorf("a repair by the word of b: %+v", lines)
	}
}

func TestTheAdminAPIRefusesARepair(t *testing.T) {
	_, b := twoFolders(t, "shield", 0)
	for _, row := range []struct {
		target string
		want   int
	}{
		{"t/repair?delete=1", http.StatusConflict},
		{"t/repair?delete=1&dry_run=1", http.StatusConflict},
		{"nobody/repair", http.StatusNotFound},
		{"t/repair?truth=nobody", http.StatusNotFound},
		{"t/repair?truth=", http.StatusBadRequest},
		{"t/repair?delete=yes", http.StatusBadRequest},
		{"t/repair?delete=1&delete=0", http.StatusBadRequest},
		{"t/repair?force=1", http.StatusBadRequest},
		{"t/repair?color=blue", http.StatusBadRequest},
		{"t/repair?prefix=a//", http.StatusBadRequest},
		{"t/repair/b", http.StatusNotFound},
		{"t/repair?delete=1&truth=b", http.StatusOK},
		{"t/repair?delete=1&prefix=none", http.StatusOK},
	} {
		if status, _ := askRepair(t, http.MethodPost, row.target); status != row.want {
			t.Errorf("POST %s = %d, want %d", row.target, status, row.want)
		}
		if row.want == http.StatusConflict {
			if _, err := os.Stat(filepath.Join(b, "extra")); err != nil {
				t.Errorf("%s: %v", row.target, err)
			}
		}
	}
	if status, _ := askRepair(t, http.MethodGet, "t/repair"); status != http.StatusMethodNotAllowed {
		t.Errorf("GET = %d", status)
	}
}

func TestARepairTellsOfABackendThatCannotBeCompared(t *testing.T) {
	a, _ := twoFolders(t, "mirror", 1)
	if err := os.RemoveAll(a); err != nil {
		t.Fatal(err)
	}
	status, lines := askRepair(t, http.MethodPost, "t/repair")
	if status != http.StatusOK || len(lines) < 2 || lines[0].Failed != "a" || lines[0].Error == "" || lines[0].Code == "" {
		t.Errorf("repair = %d, %+v, want an error of a", status, lines)
	}
	if sum := lines[len(lines)-1].Summary; sum == nil || sum.Failed == 0 || sum.Copied > 0 {
		t.Errorf("summary %+v", sum)
	}
}

func TestARepairEndsWithItsClient(t *testing.T) {
	_, b := twoFolders(t, "mirror", 300)
	ctx, cancel := context.WithCancel(t.Context())
	w := leaving{httptest.NewRecorder(), cancel}
	if err := new(adminAPI).serve(w, httptest.NewRequestWithContext(ctx, http.MethodPost, "/storage_mux/t/repair", nil)); err != nil {
		t.Error(err)
	}
	copied, err := os.ReadDir(b)
	if err != nil || len(copied) > 100 {
		t.Errorf("%d files, %v, after the client left at the first line", len(copied), err)
	}
	if strings.Contains(w.Body.String(), "summary") {
		t.Errorf("a summary for nobody: %s", w.Body)
	}
}

// leaving is a client that goes away at the first line.
type leaving struct {
	*httptest.ResponseRecorder
	cancel func()
}

func (l leaving) Write(p []byte) (int, error) {
	l.cancel()
	return l.ResponseRecorder.Write(p)
}

// Read repair is on in mirror and shield, while a writable handler serves the tree, and wherever it is said to be.
func TestReadRepairIsOnWhereItShouldBe(t *testing.T) {
	for directive, want := range map[string]bool{
		"mirror {\n name t":                                   false,
		"mirror {\n name t\n writable":                        true,
		"mirror {\n name t\n writable\n read_repair off":      false,
		"mirror {\n name t\n read_repair on":                  true,
		"shield {\n name t\n writable\n on_miss next":         true,
		"failover {\n name t\n writable\n on_miss next":       false,
		"failover {\n name t\n read_repair on\n on_miss next": true,
	} {
		a, b := t.TempDir(), t.TempDir()
		writeFile(t, filepath.Join(b, "k"), "body")
		c := run(t, fmt.Sprintf("storage_mux %s\n backend a file %s\n backend b file %s\n}", directive, a, b))
		tree := activeTree("t")
		set := tree.root.set
		if got := set.ReadRepair && (!tree.root.byDoors || tree.doors.Load() > 0); got != want {
			t.Errorf("%q: read repair is on: %t, want %t", directive, got, want)
		}
		tree.release()
		if want && set.Mode != muxcore.Shield {
			c.eventually("a has it", func() bool {
				c.expect(http.StatusOK, "GET", "/k", "")
				_, err := os.Stat(filepath.Join(a, "k"))
				return err == nil
			})
		}
	}
}

// A writable handler that comes, or goes, with a reload turns read repair on, or off, in the tree that stays.
func TestReadRepairFollowsTheDoors(t *testing.T) {
	const site = "handle /w/* {\n%s\n}\nhandle {\nstorage_mux mirror {\n name t\n backend m memory\n}\n}"
	door := "storage_mux mirror {\n name t\n writable\n backend m memory\n}"
	c := run(t, fmt.Sprintf(site, ""))
	tree := activeTree("t")
	defer tree.release()
	for _, step := range []struct {
		door string
		want int64
	}{{"", 0}, {door, 1}, {door + "\n" + door, 2}, {"", 0}} {
		c.load(fmt.Sprintf(site, step.door))
		c.eventually("the doors are counted", func() bool { return tree.doors.Load() == step.want })
		if now := activeTree("t"); now != tree {
			t.Error("the tree did not stay")
			now.release()
		} else {
			now.release()
		}
	}
}
