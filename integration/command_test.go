package integration_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/integration/rig"
)

const commandConfig = `
	storage_mux mirror {
		name t
		writable
		list
		backend a file {$DIR}/a {
			create_root
		}
		backend b file {$DIR}/b {
			create_root
		}
	}`

// ok runs a command that must succeed, and gives its output.
func ok(t *testing.T, c *rig.Caddy, stdin string, args ...string) string {
	t.Helper()
	ran := c.Run(stdin, append([]string{"storage-mux"}, args...)...)
	if ran.Code != 0 || ran.Stderr != "" {
		t.Fatalf("storage-mux %s exits with %d:\n%s%s", strings.Join(args, " "), ran.Code, ran.Stdout, ran.Stderr)
	}
	return ran.Stdout
}

// notOK runs a command that must fail with one line that says why.
func notOK(t *testing.T, c *rig.Caddy, why string, args ...string) string {
	t.Helper()
	ran := c.Run("", append([]string{"storage-mux"}, args...)...)
	if ran.Code != 1 || strings.Count(ran.Stderr, "\n") != 1 || !strings.Contains(ran.Stderr, why) {
		t.Errorf("storage-mux %s exits with %d and writes %q, want 1 and a line with %q", strings.Join(args, " "), ran.Code, ran.Stderr, why)
	}
	return ran.Stdout
}

func decodeLines(t *testing.T, text string) []map[string]any {
	t.Helper()
	var all []map[string]any
	for line := range strings.Lines(text) {
		var one map[string]any
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Fatalf("%q is not JSON: %v", line, err)
		}
		all = append(all, one)
	}
	return all
}

// What a command writes, a Caddy with the same config serves, and the other way round.
func TestCommandsAndHandlersShareATree(t *testing.T) {
	t.Parallel()
	c := rig.Start(t, commandConfig)
	file := filepath.Join(c.Dir, "up.txt")
	if err := os.WriteFile(file, []byte("from a file"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := ok(t, c, "", "put", "dir/up.txt", file, "--content-type", "text/x-mine", "--cache-control", "no-store", "-m", "colour=red"); got != "dir/up.txt: stored\n" {
		t.Errorf("put writes %q", got)
	}
	r := c.Get("/dir/up.txt")
	wantStatus(t, "GET", r, http.StatusOK)
	if got := r.Header.Get("Content-Type") + r.Header.Get("Cache-Control") + r.Header.Get("X-Meta-Colour") + string(r.Body); got != "text/x-mineno-storered"+"from a file" {
		t.Errorf("GET of what the command put: %s", got)
	}
	created := decodeLines(t, ok(t, c, "piped", "put", "piped", "--json"))
	if created[0]["created"] != true || created[0]["size"] != 5.0 {
		t.Errorf("put --json writes %v", created)
	}
	wantStatus(t, "PUT", c.Put("/dir/b", "by HTTP"), http.StatusCreated)
	if got := ok(t, c, "", "cat", "dir/b"); got != "by HTTP" {
		t.Errorf("cat = %q", got)
	}
	var keys []string
	for _, one := range decodeLines(t, ok(t, c, "", "ls", "--json")) {
		keys = append(keys, fmt.Sprint(one["key"]))
	}
	if got := strings.Join(keys, " "); got != "dir/b dir/up.txt piped" {
		t.Errorf("ls = %s", got)
	}
	if got := ok(t, c, "", "ls", "dir/"); strings.Count(got, "\n") != 2 || !strings.Contains(got, "dir/up.txt") {
		t.Errorf("ls dir/ = %s", got)
	}
	if got := ok(t, c, "", "ls", "--delimiter", "/", "--limit", "1"); !strings.HasSuffix(got, "dir/\n") {
		t.Errorf("ls --delimiter / = %s", got)
	}
	stat := decodeLines(t, ok(t, c, "", "stat", "dir/up.txt", "--json"))[0]
	if stat["etag"] != r.Header.Get("ETag") || stat["content_type"] != "text/x-mine" || fmt.Sprint(stat["metadata"]) != "map[colour:red]" {
		t.Errorf("stat = %v, the handler says %v", stat, r.Header)
	}
	ok(t, c, "", "rm", "dir/up.txt", "piped")
	wantStatus(t, "GET", c.Get("/piped"), http.StatusNotFound)
}

func TestCommandsFailWithOneLine(t *testing.T) {
	t.Parallel()
	c := rig.Prepare(t, commandConfig)
	notOK(t, c, "KEY_NOT_FOUND", "cat", "nothing")
	notOK(t, c, "KEY_NOT_FOUND", "stat", "nothing")
	notOK(t, c, "KEY_NOT_FOUND", "rm", "nothing")
	notOK(t, c, "INVALID_KEY", "put", "a//b")
	notOK(t, c, "INVALID_KEY", "ls", "/a")
	notOK(t, c, "INVALID_KEY", "cat", ".storage_mux/x")
	notOK(t, c, "no such file", "put", "k", "/does/not/exist")
	notOK(t, c, "is a folder", "put", "k", c.Dir)
	notOK(t, c, "--meta", "put", "k", "--meta", "novalue")
	notOK(t, c, "ASCII", "put", "k", "--meta", "x=é")
	notOK(t, c, "content-type", "put", "k", "--content-type", "x/y\r\nX-Evil: 1")
	notOK(t, c, "cache-control", "put", "k", "--cache-control", "no-store\x7f")
	notOK(t, c, "--meta", "put", "k", "--meta", "a b=c")
	notOK(t, c, "--meta", "put", "k", "--meta", "a=b\nc")
	notOK(t, c, "known are cat, explain, ls", "lss")
	notOK(t, c, "known are t", "ls", "--tree", "other")
	notOK(t, c, "--limit", "ls", "--limit", "-1")
	notOK(t, c, "--op", "explain", "--op", "dance")
	notOK(t, c, "BACKEND_NOT_FOUND", "explain", "--down", "c")
	notOK(t, c, "BACKEND_NOT_FOUND", "verify", "--truth", "c")
	notOK(t, c, "force", "repair", "--force")
	notOK(t, c, "accepts 1 arg", "cat")
	notOK(t, c, "unknown flag", "cat", "k", "--nonsense")
	notOK(t, c, "KEY_NOT_FOUND", "cat", "nothing", "--json")
	ok(t, c, "x", "put", "k")
	notOK(t, c, "PRECONDITION_FAILED", "put", "k", "--no-overwrite")
	lines := decodeLines(t, notOK(t, c, "KEY_NOT_FOUND", "rm", "k", "nothing", "--json"))
	if len(lines) != 2 || lines[0]["removed"] != true || lines[1]["code"] != "STORAGE.KEY_NOT_FOUND" {
		t.Errorf("rm --json writes %v", lines)
	}
}

func TestSeveralTreesNeedAName(t *testing.T) {
	t.Parallel()
	c := rig.Prepare(t, `http://:{$PORT} {
	storage_mux /one* failover {$DIR}
	route /two* {
		storage_mux {
			name two
			backend a file {$DIR}
		}
	}
	storage_mux /again* {
		use three
	}
}`, rig.Global("storage_mux three failover {$DIR}"))
	stdout := notOK(t, c, "choose one by --tree", "ls")
	if stdout != "" {
		t.Errorf("ls without a name writes %q", stdout)
	}
	for _, tree := range []string{"two", "three"} {
		if out := ok(t, c, "", "explain", "--tree", tree); !strings.HasPrefix(out, tree+": failover") {
			t.Errorf("explain --tree %s = %s", tree, out)
		}
	}
	notOK(t, rig.Prepare(t, "respond hi"), "no storage tree", "ls")
}

// Folders that have come apart: verify says so and exits with 1, repair brings them together, verify is content. With a Caddy that
// runs, and without.
func TestVerifyAndRepair(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(testing.TB, string, ...rig.Option) *rig.Caddy{"with Caddy": rig.Start, "without": rig.Prepare} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := begin(t, commandConfig)
			for i := range 20 {
				ok(t, c, fmt.Sprint("body ", i), "put", fmt.Sprint("k", i))
			}
			a, b := filepath.Join(c.Dir, "a"), filepath.Join(c.Dir, "b")
			if err := os.Remove(filepath.Join(a, "k3")); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(b, "extra"), []byte("extra"), 0o600); err != nil {
				t.Fatal(err)
			}
			out := notOK(t, c, "2 of 21 keys differ", "verify")
			if !strings.Contains(out, "k3: a missing, b ") || !strings.Contains(out, "extra: a missing, b ") {
				t.Errorf("verify writes\n%s", out)
			}
			lines := decodeLines(t, notOK(t, c, "2 of 21 keys differ", "verify", "--json"))
			if sum := fmt.Sprint(lines[len(lines)-1]["summary"]); sum != "map[differ:2 failed:0 keys:21]" {
				t.Errorf("verify --json ends with %v", sum)
			}
			before := files(t, a)
			ok(t, c, "", "repair", "--dry-run")
			if !maps.Equal(before, files(t, a)) {
				t.Error("a dry run changes something")
			}
			ok(t, c, "", "repair")
			ok(t, c, "", "verify")
			if all := files(t, a); len(all) != 21 || !maps.Equal(all, files(t, b)) {
				t.Errorf("after the repair: %d files in a, %d in b", len(all), len(files(t, b)))
			}
			for name := range files(t, a) {
				if err := os.Remove(filepath.Join(a, name)); err != nil {
					t.Fatal(err)
				}
			}
			notOK(t, c, "repair refused", "repair", "--truth", "a", "--delete")
			if got := len(files(t, b)); got != 21 {
				t.Errorf("%d files are left of what an empty truth lacks", got)
			}
		})
	}
}

func TestExplainAnswersWhatIf(t *testing.T) {
	t.Parallel()
	c := rig.Prepare(t, `
	storage_mux failover {
		name t
		backend one file {$DIR}
		backend eu mux sticky_by_key {
			backend x http http://127.0.0.1:1
			backend y http http://127.0.0.1:1 {
				read_only
			}
		}
		backend spare memory {
			backup
		}
	}`)
	text := ok(t, c, "", "explain", "--key", "a/b")
	for _, want := range []string{"├─ one (file ", "1st: first in order", "│  └─ y (http ", "└─ spare (memory backup): 3rd: a backup", "[range, list, write, conditional write, metadata, digests]"} {
		if !strings.Contains(text, want) {
			t.Errorf("explain lacks %q:\n%s", want, text)
		}
	}
	if text := ok(t, c, "", "explain", "--down", "one,eu.x,eu.y,spare"); !strings.Contains(text, "STORAGE_MUX.ALL_BACKENDS_DOWN") {
		t.Errorf("explain with all down:\n%s", text)
	}
	if text := ok(t, c, "", "explain", "--down", "eu"); strings.Count(text, "not asked: taken for down") != 3 {
		t.Errorf("explain with a whole mux down:\n%s", text)
	}
	if text := ok(t, c, "", "explain", "--op", "put", "--key", "CON/x"); !strings.Contains(text, "put fails: STORAGE.INVALID_KEY: ") {
		t.Errorf("explain of a key that cannot be:\n%s", text)
	}
	tree := decodeLines(t, ok(t, c, "", "explain", "--down", "one", "--op", "put", "--json"))[0]
	backends := tree["backends"].([]any)
	eu := backends[1].(map[string]any)
	inner := eu["mux"].(map[string]any)["backends"].([]any)
	if eu["turn"] != 1.0 || inner[1].(map[string]any)["why"] != "read_only" || backends[0].(map[string]any)["why"] != "taken for down" {
		t.Errorf("explain --json = %v", tree)
	}
}

// A command leaves to the Caddy that runs what its writes miss: memory gets it from there, whether that Caddy has had a reason to
// keep a journal or not.
func TestWhatACommandMissesTheCaddyThatRunsBrings(t *testing.T) {
	t.Parallel()
	c := rig.Start(t, `
	storage_mux shield {
		name t
		backend a file {$DIR}
		backend m memory
	}`)
	if got := ok(t, c, "body", "put", "k"); got != "k: stored, missed by m\n" {
		t.Errorf("put writes %q", got)
	}
	held := func(key, want string) {
		t.Helper()
		c.Eventually(soon, "memory holds "+key, func() error {
			status, answer := c.Admin("POST", "/storage_mux/t/repair?dry_run=1&deep=1", "")
			if status != http.StatusOK || !strings.Contains(answer, want) {
				return fmt.Errorf("%d %s", status, answer)
			}
			return nil
		})
	}
	held("k", `"keys":1,"copied":0`)
	ok(t, c, "", "rm", "k")
	held("nothing", `"keys":0,"copied":0`)
}

// Memory belongs to the Caddy that runs: a command leaves it alone, and it gets what was written by the journal.
func TestACommandLeavesMemoryToTheCaddyThatRuns(t *testing.T) {
	t.Parallel()
	c := rig.Prepare(t, `
	storage_mux mirror {
		name t
		backend m memory
		backend a file {$DIR}
	}`)
	if got := ok(t, c, "body", "put", "k"); got != "k: stored, missed by m\n" {
		t.Errorf("put writes %q", got)
	}
	if got := ok(t, c, "", "cat", "k"); got != "body" {
		t.Errorf("cat = %q", got)
	}
	if got := ok(t, c, "", "verify"); !strings.Contains(got, "left out, as they live in the Caddy that runs: m") {
		t.Errorf("verify writes %q", got)
	}
	ok(t, c, "", "repair")
}
