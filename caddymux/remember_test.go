package caddymux

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// stop stops Caddy, and waits until nobody has the journal of a directory.
func (c *client) stop(dir string) {
	c.t.Helper()
	if err := caddy.Stop(); err != nil {
		c.t.Fatal(err)
	}
	c.eventually("all trees are closed", func() bool {
		_, taken := journals.References(dir)
		return treesAlive() == 0 && !taken
	})
}

// remembering is a tree with a backend that is down for a reason, and a journal in dir, which exists.
func remembering(t *testing.T) (c *client, site, dir string, calls func() int) {
	t.Helper()
	f := scripted(t, t.Name())
	dir = t.TempDir()
	site = fmt.Sprintf("storage_mux {\n name t\n writable\n cooldown 1h 2h\n journal %s\n backend eu mux {\n cooldown 1h 2h\n backend f scripted %s\n backend n memory\n }\n backend m memory\n}", dir, t.Name())
	c = run(t, site)
	f.Break(&muxcore.Error{Code: muxcore.CodeUnavailable, Err: fmt.Errorf("for a reason")})
	c.expect(http.StatusNotFound, "GET", "/x", "")
	return c, site, dir, f.AllCalls
}

// A backend that was down before a restart is down after it, for the same reason and as long, and is not asked before. Nothing
// else is kept.
func TestARestartKeepsHealthOnly(t *testing.T) {
	c, site, dir, calls := remembering(t)
	change(t, "POST", "backends/m/drain", "", "PATCH", "backends/eu.n", `{"weight":3}`, "POST", "backends", `{"name":"added","type":"memory"}`)
	was := wantStanding(t, "eu:up w1 [f:down w1, n:up w3 weight], m:down w1 drained, added:up w1 added").Backends[0].Mux.Backends[0]
	asked := calls()
	c.stop(dir)
	c.load(site)
	is := wantStanding(t, "eu:up w1 [f:down w1, n:up w1], m:up w1").Backends[0].Mux.Backends[0]
	if is.Reason != was.Reason || !strings.Contains(is.Reason, "for a reason") || !is.NextTrialAt.Equal(*was.NextTrialAt) || !is.Since.Equal(was.Since) ||
		is.ConsecutiveFailures != 1 || is.Errors != 0 {
		t.Errorf("after the restart\n%+v, was\n%+v", is, was)
	}
	c.expect(http.StatusNotFound, "GET", "/y", "")
	if n := calls(); n != asked {
		t.Errorf("f was asked %d times in its cooldown", n-asked)
	}
	info, err := os.Stat(filepath.Join(dir, "health.json"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", info, err)
	}
	c.load(strings.Replace(site, "name t", "name t\n timeout 4s", 1)) // an edit, and then a restart of that
	c.stop(dir)
	c.load(strings.Replace(site, "name t", "name t\n timeout 5s", 1))
	wantStanding(t, "eu:up w1 [f:down w1, n:up w1], m:up w1")
}

// What is not to be believed is as if it were not there, and never an error.
func TestWhatIsNotBelievedAfterARestart(t *testing.T) {
	with := func(set func(r *recollection)) func(string) string {
		return func(text string) string {
			var r recollection
			if err := json.Unmarshal([]byte(text), &r); err != nil {
				panic(err)
			}
			set(&r)
			out, err := json.Marshal(r)
			if err != nil {
				panic(err)
			}
			return string(out)
		}
	}
	for name, row := range map[string]struct {
		file func(string) string
		site func(string) string
		want string // of f
	}{
		"all as it was":              {want: "down"},
		"a little old":               {file: with(func(r *recollection) { r.Saved = r.Saved.Add(-9 * time.Minute) }), want: "down"},
		"too old":                    {file: with(func(r *recollection) { r.Saved = r.Saved.Add(-11 * time.Minute) }), want: "up"},
		"of the future":              {file: with(func(r *recollection) { r.Saved = r.Saved.Add(time.Hour) }), want: "up"},
		"of another tree":            {file: with(func(r *recollection) { r.Tree = "other" }), want: "up"},
		"cut off":                    {file: func(text string) string { return text[:len(text)/2] }, want: "up"},
		"empty":                      {file: func(string) string { return "" }, want: "up"},
		"something else":             {file: func(string) string { return `[{"down":{}}]` }, want: "up"},
		"nonsense in it":             {file: with(func(r *recollection) { r.Down[0].Reads.Failures = -1 << 40; r.Down[0].Reads.Reason = "" }), want: "down"},
		"nothing said of its health": {file: with(func(r *recollection) { r.Down[0].Reads = nil }), want: "up"},
		"another backend edited":     {site: func(s string) string { return strings.Replace(s, "n memory", "n memory 1MB", 1) }, want: "down"},
		"the backend edited":         {site: func(s string) string { return strings.Replace(s, "backend f", "backend n2 memory\n backend f", 1) }, want: "down"},
		"the very backend edited":    {site: func(s string) string { return strings.Replace(s, "\n backend n ", " {\n secret s\n }\n backend n ", 1) }, want: "up"},
		"no journal":                 {site: func(s string) string { return regexp.MustCompile(`journal .*`).ReplaceAllString(s, "journal off") }, want: "up"},
	} {
		t.Run(name, func(t *testing.T) {
			c, site, dir, _ := remembering(t)
			c.stop(dir)
			path := filepath.Join(dir, "health.json")
			if row.file != nil {
				text, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(row.file(string(text))), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if row.site != nil {
				site = row.site(site)
			}
			c.load(site)
			_, stats := admin(t, "GET", adminPath+"/t", "")
			inner := stats.Backends[0].Mux.Backends
			for _, b := range inner {
				if want := map[bool]string{true: row.want, false: "up"}[b.Name == "f"]; string(b.Status) != want {
					t.Errorf("%s is %s, want %s: %s", b.Name, b.Status, want, b.Reason)
				}
			}
			c.expect(http.StatusNotFound, "GET", "/x", "")
		})
	}
}

// It is written while Caddy runs as well, so that it survives a kill, and taken away once all are up. Its directory is made by
// nobody.
func TestHealthIsWrittenOnChange(t *testing.T) {
	f := scripted(t, "on change")
	dir := filepath.Join(t.TempDir(), "j")
	site := fmt.Sprintf("storage_mux {\n name t\n cooldown 1ms\n journal %s\n backend f scripted \"on change\"\n backend m memory\n}", dir)
	path := filepath.Join(dir, "health.json")
	written := func() bool {
		_, err := os.Stat(path)
		return err == nil
	}
	c := run(t, site)
	f.Break(&muxcore.Error{Code: muxcore.CodeUnavailable})
	c.expect(http.StatusNotFound, "GET", "/x", "")
	c.stop(dir)
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the directory of the journal: %v", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	c.load(site)
	c.expect(http.StatusNotFound, "GET", "/x", "")
	c.eventually("the file is there", written)
	f.Mend()
	c.eventually("f is up", func() bool {
		c.do("GET", "/x", "")
		_, stats := admin(t, "GET", adminPath+"/t", "")
		return names(stats.Stats) == "f:up m:up"
	})
	c.eventually("the file is gone", func() bool { return !written() })
}

// Only the tree of the running config writes: not one on its way out, nor one of a config that fails.
func TestOneTreeWritesTheHealth(t *testing.T) {
	c, site, dir, _ := remembering(t)
	old := newest("t") // a request that takes its time
	edited := strings.Replace(site, "name t", "name t\n timeout 4s", 1)
	c.load(edited)
	path := filepath.Join(dir, "health.json")
	c.eventually("the new tree has written", func() bool {
		_, err := os.Stat(path)
		return err == nil
	})
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	c.load(strings.Replace(edited, "n memory", "n memory 1MB", 1))
	if err := old.store.SetWeight("eu.n", 3); err != nil {
		t.Fatal(err)
	}
	old.release()
	<-old.done
	after, err := os.ReadFile(path)
	if err != nil || string(after) != string(before) {
		t.Errorf("the file was\n%s, and is after the old tree's end\n%s, %v", before, after, err)
	}
}

// A command asks a backend whatever the Caddy that runs thinks of it, and writes nothing down.
func TestACommandRemembersNothing(t *testing.T) {
	c, site, dir, _ := remembering(t)
	c.stop(dir)
	path := filepath.Join(dir, "health.json")
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(c.dir, "Caddyfile")
	if err := os.WriteFile(config, []byte(c.config(site)), 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := loadTrees(config, "caddyfile", "localhost:1")
	if err != nil {
		t.Fatal(err)
	}
	one, err := all.open(t.Context(), "t", true)
	if err != nil {
		t.Fatal(err)
	}
	if inner := one.store.Stats().Backends[0].Mux; inner.Backends[0].Status != muxcore.StatusUp {
		t.Errorf("f is %s for a command", inner.Backends[0].Status)
	}
	one.release()
	if err := all.close(); err != nil {
		t.Fatal(err)
	}
	if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
		t.Errorf("the file was\n%s, and is\n%s, %v", before, after, err)
	}
}
