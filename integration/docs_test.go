package integration_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/integration/rig"
)

var (
	fences       = regexp.MustCompile("(?s)```caddyfile\n(.*?)```")
	jsonFences   = regexp.MustCompile("(?s)```json\n(.*?)```")
	placeholders = regexp.MustCompile(`\{\$[A-Z0-9_]+:([^}]*)\}`)
	links        = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	noAnchor     = regexp.MustCompile(`[^a-z0-9 _-]`)
	longFlags    = regexp.MustCompile(`(?m)^ +(?:-\w, )? *(--[a-z-]+)`)
)

// pages are the README and the pages of docs/, by their path from the root.
func pages(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob("../docs/*.md")
	if err != nil || len(paths) == 0 {
		t.Fatalf("the pages of docs/: %v, %v", paths, err)
	}
	all := make(map[string]string)
	for _, path := range append(paths, "../README.md") {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all[strings.TrimPrefix(filepath.ToSlash(path), "../")] = string(text)
	}
	return all
}

// caddyfiles are the Caddyfiles that a page shows.
func caddyfiles(page string) (all []string) {
	for _, fence := range fences.FindAllStringSubmatch(page, -1) {
		all = append(all, fence[1])
	}
	return all
}

// Every Caddyfile that the README and the docs show is a whole one, and loads.
func TestEveryCaddyfileOfTheDocsLoads(t *testing.T) {
	t.Parallel()
	all := make(map[string]bool)
	for _, page := range pages(t) {
		for _, config := range caddyfiles(page) {
			all[config] = true
		}
	}
	if len(all) < 15 {
		t.Fatalf("%d Caddyfiles in the docs, want all recipes and doors", len(all))
	}
	for config := range all {
		name, _, _ := strings.Cut(strings.TrimSpace(config), "\n")
		t.Run(name, func(t *testing.T) {
			code, out := rig.Command(t, "validate", config, rig.AsIs(), rig.Env("ORIGIN_TOKEN", "secret"))
			if code != 0 || strings.Contains(out, `"level":"warn"`) && !strings.Contains(out, "requires TLS") {
				t.Errorf("validate exits with %d:\n%s\n%s", code, config, out)
			}
		})
	}
}

// A config in JSON that the docs show is a whole one, too, and loads.
func TestEveryJSONConfigOfTheDocsLoads(t *testing.T) {
	t.Parallel()
	seen := 0
	for page, text := range pages(t) {
		for _, fence := range jsonFences.FindAllStringSubmatch(text, -1) {
			if !strings.Contains(fence[1], `"apps"`) {
				continue
			}
			seen++
			dir := t.TempDir()
			writeFile(t, dir, "caddy.json", []byte(fence[1]))
			cmd := exec.Command(rig.Binary(t), "validate", "--config", filepath.Join(dir, "caddy.json"))
			cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir)
			if out, err := cmd.CombinedOutput(); err != nil || strings.Contains(string(out), `"level":"warn"`) {
				t.Errorf("%s: validate: %v\n%s\n%s", page, err, fence[1], out)
			}
		}
	}
	if seen == 0 {
		t.Error("the docs show no config in JSON, not even that of Caddy's circuit_breaker")
	}
}

// plain is a recipe as the docs show it: without comments, each placeholder by its default.
func plain(recipe string) string {
	lines := strings.Split(recipe, "\n")
	lines = slices.DeleteFunc(lines, func(line string) bool { return strings.HasPrefix(strings.TrimSpace(line), "#") })
	return placeholders.ReplaceAllString(strings.TrimLeft(strings.Join(lines, "\n"), "\n"), "$1")
}

// Every recipe is a file that a test starts, and the docs show what is in it.
func TestEveryRecipeStandsInTheDocsAndIsTried(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob("../recipes/*")
	if err != nil || len(paths) < 10 {
		t.Fatalf("recipes: %v, %v", paths, err)
	}
	sources, err := filepath.Glob("recipes*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var tests strings.Builder
	for _, path := range sources {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		tests.Write(text)
	}
	docs := pages(t)
	shown := caddyfiles(docs["docs/recipes.md"])
	var all []string
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(path), ".Caddyfile")
		all = append(all, plain(string(text)))
		if !slices.Contains(shown, plain(string(text))) {
			t.Errorf("docs/recipes.md does not show what is in %s:\n%s", path, plain(string(text)))
		}
		if !strings.Contains(tests.String(), `t, "`+name+`"`) {
			t.Errorf("no test starts %s", path)
		}
	}
	if len(shown) != len(all) {
		t.Errorf("docs/recipes.md shows %d recipes, there are %d files", len(shown), len(all))
	}
	_, section, _ := strings.Cut(docs["README.md"], "\n## Recipes\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for _, config := range caddyfiles(section) {
		if !slices.Contains(all, config) {
			t.Errorf("a recipe of the README is in no file:\n%s", config)
		}
	}
}

// A link inside the repository leads to something that is there, and the README leads to every page.
func TestLinksOfTheDocsLeadSomewhere(t *testing.T) {
	t.Parallel()
	docs := pages(t)
	linked := make(map[string]bool)
	for page, text := range docs {
		for _, link := range links.FindAllStringSubmatch(text, -1) {
			if strings.Contains(link[1], "://") {
				continue
			}
			path, anchor, _ := strings.Cut(link[1], "#")
			target := page
			if path != "" {
				target = filepath.ToSlash(filepath.Join(filepath.Dir(page), path))
			}
			if page == "README.md" {
				linked[target] = true
			}
			if _, err := os.Stat("../" + target); err != nil {
				t.Errorf("%s leads to %s: %v", page, link[1], err)
			} else if anchor != "" && !slices.Contains(anchors(docs[target]), anchor) {
				t.Errorf("%s leads to %s, but there is no such heading", page, link[1])
			}
		}
	}
	for page := range docs {
		if page != "README.md" && !linked[page] {
			t.Errorf("the README does not lead to %s", page)
		}
	}
}

// anchors are those that a page has by its headings.
func anchors(page string) (all []string) {
	for line := range strings.SplitSeq(page, "\n") {
		if heading, ok := strings.CutPrefix(line, "#"); ok {
			word := strings.ToLower(strings.TrimSpace(strings.TrimLeft(heading, "#")))
			all = append(all, strings.ReplaceAll(noAnchor.ReplaceAllString(word, ""), " ", "-"))
		}
	}
	return all
}

// Every option of the code's parse tables stands in the README, in a row of its own or of its kind.
func TestEveryOptionStandsInTheReadme(t *testing.T) {
	t.Parallel()
	text := pages(t)["README.md"]
	for _, config := range []string{
		":80 {\nstorage_mux {\n nonsense\n}\n}", ":80 {\nreverse_proxy x {\n transport relay_breaker {\n nonsense\n }\n}\n}",
		":80 {\nreverse_proxy x {\n lb_policy relay_breaker {\n nonsense\n }\n}\n}", ":80 {\nrelay_breaker {\n nonsense\n}\n}",
		"{\nstorage_mux x {\n nonsense\n}\n}", "{\nstorage storage_mux {\n nonsense\n}\n}", "{\nfilesystem x storage_mux {\n nonsense\n}\n}", "{\nrelay_breaker {\n nonsense\n}\n}",
		member("memory"), member("file /x"), member("http http://x"), member("s3 x"), member("swift x"), member("rackspace x"), member("bunny x"), member("use x"), member("mux"),
	} {
		code, out := rig.Command(t, "adapt", config+"\n", rig.AsIs())
		_, list, ok := strings.Cut(strings.Replace(out, "the options here are: ", "known are ", 1), "known are ")
		if code == 0 || !ok {
			t.Errorf("adapt of an unknown option exits with %d, and does not list the known ones:\n%s", code, out)
			continue
		}
		list, _, _ = strings.Cut(list, ", at ")
		for option := range strings.SplitSeq(strings.TrimSpace(list), ", ") {
			if !strings.Contains(text, "`"+option) && !strings.Contains(text, "· "+option) && !strings.Contains(text, "{ "+option) {
				t.Errorf("the README does not have the option %q", option)
			}
		}
	}
}

// member is a site over a backend of a type, with an option that there is not.
func member(kind string) string {
	return ":80 {\nstorage_mux {\n backend b " + kind + " {\n nonsense\n }\n}\n}"
}

// Every flag of the commands stands on their page, and no other does.
func TestEveryFlagOfTheCommandsStandsInTheDocs(t *testing.T) {
	t.Parallel()
	page := pages(t)["docs/commands.md"]
	known := make(map[string]bool)
	c := rig.Prepare(t, "respond ok")
	for _, command := range []string{"ls", "cat", "put", "rm", "stat", "verify", "repair", "explain"} {
		ran := c.Run("", "storage-mux", command, "--help")
		flags := longFlags.FindAllStringSubmatch(ran.Stdout, -1)
		if ran.Code != 0 || len(flags) < 6 {
			t.Errorf("%s --help exits with %d and lists %v", command, ran.Code, flags)
		}
		_, section, ok := strings.Cut(page, "\n## `"+command)
		if !ok {
			t.Errorf("docs/commands.md has no section on %s", command)
		}
		section, _, _ = strings.Cut(section, "\n## ")
		_, general, _ := strings.Cut(page, "\n## Flags of all\n")
		general, _, _ = strings.Cut(general, "\n## ")
		for _, flag := range flags {
			known[flag[1]] = true
			if !strings.Contains(section, "`"+flag[1]) && !strings.Contains(general, "`"+flag[1]) {
				t.Errorf("docs/commands.md does not have %s of %s", flag[1], command)
			}
		}
	}
	for _, flag := range regexp.MustCompile("`(--[a-z-]+)").FindAllStringSubmatch(page, -1) {
		if !known[flag[1]] {
			t.Errorf("docs/commands.md has %s, which no command takes", flag[1])
		}
	}
}

var metricRows = regexp.MustCompile("(?m)^\\| `(caddy_[a-z_]+)` \\| (\\w+) \\| ((?:`\\w+` ?)+)")

// The table of metrics is what a real Caddy has: names, kinds and labels.
func TestTheTableOfMetricsIsWhatThereIs(t *testing.T) {
	t.Parallel()
	families := realMetrics(t)
	var rows []string
	for _, row := range metricRows.FindAllStringSubmatch(pages(t)["docs/operating.md"], -1) {
		name, kind, labels := row[1], row[2], strings.Fields(strings.ReplaceAll(row[3], "`", ""))
		rows = append(rows, name)
		family, ok := families[name]
		if !ok {
			t.Errorf("%s stands in the docs, and in no metrics", name)
			continue
		}
		if got := strings.ToLower(family.GetType().String()); got != kind {
			t.Errorf("%s is a %s, the docs have %s", name, got, kind)
		}
		var got []string
		for _, pair := range family.GetMetric()[0].GetLabel() {
			got = append(got, pair.GetName())
		}
		slices.Sort(labels)
		slices.Sort(got)
		if !slices.Equal(got, labels) {
			t.Errorf("%s has the labels %v, the docs have %v", name, got, labels)
		}
	}
	for name := range families {
		if !slices.Contains(rows, name) {
			t.Errorf("%s is not in the docs", name)
		}
	}
}

// What users copy is what `caddy fmt` makes of it, so that Caddy has nothing to say of it.
func TestEveryCaddyfileIsFormatted(t *testing.T) {
	t.Parallel()
	all := make(map[string]string)
	for page, text := range pages(t) {
		for i, config := range caddyfiles(text) {
			all[fmt.Sprintf("%s, Caddyfile %d", page, i+1)] = config
		}
	}
	files, err := filepath.Glob("../recipes/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append(files, "../Caddyfile.example") {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all[path] = string(text)
	}
	if len(all) < 30 {
		t.Fatalf("%d Caddyfiles, want those of all recipes and pages", len(all))
	}
	for where, config := range all {
		cmd := exec.Command(rig.Binary(t), "fmt", "-")
		cmd.Stdin = strings.NewReader(config)
		formatted, err := cmd.Output()
		if err != nil || string(formatted) != config {
			t.Errorf("%s is not formatted (%v); caddy fmt makes of it:\n%s", where, err, formatted)
		}
	}
}

var (
	shellLines = regexp.MustCompile("`go (?:test|run) [^`]+`")
	runFlag    = regexp.MustCompile(`-run '?([^' ]+)'?`)
	ownFlags   = regexp.MustCompile(` -((?:kills|storm)\.[a-z]+|rounds|for|only)\b`)
	mains      = regexp.MustCompile(`go run (\./\S+?)[ ` + "`]")
)

// What the README says was measured by a command, that command measures: its tests, programs and flags are there.
func TestTheCommandsOfTheReadmeAreThere(t *testing.T) {
	t.Parallel()
	var sources strings.Builder
	for _, glob := range []string{"*_test.go", "bench/*.go"} {
		paths, err := filepath.Glob(glob)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			sources.Write(text)
		}
	}
	all := shellLines.FindAllString(pages(t)["README.md"], -1)
	if len(all) < 8 {
		t.Fatalf("the README has the commands %q", all)
	}
	for _, command := range all {
		if run := runFlag.FindStringSubmatch(command); run != nil && run[1] != `"^$"` {
			for name := range strings.SplitSeq(run[1], "|") {
				if !regexp.MustCompile(`(?m)^func \w*` + name).MatchString(sources.String()) {
					t.Errorf("%s runs no test", command)
				}
			}
		}
		for _, flag := range ownFlags.FindAllStringSubmatch(command, -1) {
			if !strings.Contains(sources.String(), `"`+flag[1]+`"`) {
				t.Errorf("%s: there is no flag %s", command, flag[1])
			}
		}
		if main := mains.FindStringSubmatch(command); main != nil {
			if _, err := os.Stat(main[1]); err != nil {
				t.Errorf("%s: %v", command, err)
			}
		}
	}
}
