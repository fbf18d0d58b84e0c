package integration_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/integration/origin"
	"github.com/suaveplan/caddy-storage-mux/integration/rig"
)

func TestRecipeLocalFirst(t *testing.T) {
	t.Parallel()
	dir, far, app := t.TempDir(), origin.New(t), origin.New(t)
	writeFile(t, dir, "site/assets/here", []byte("on disk"))
	far.Put("/assets/there", origin.Object{Body: []byte("at the origin")})
	app.Put("/assets/made", origin.Object{Body: []byte("by the app")})
	app.Put("/page", origin.Object{Body: []byte("a page")})
	c := startRecipe(t, "local-first", rig.InDir(dir), rig.Env("LOCAL", dir+"/site"), rig.Env("ORIGIN", far.URL()), rig.Env("APP", app.Addr()), rig.Env("ORIGIN_TOKEN", "secret"))
	for path, want := range map[string]string{"/assets/here": "on disk", "/assets/there": "at the origin", "/assets/made": "by the app", "/page": "a page"} {
		wantBody(t, "GET "+path, local(c, path), http.StatusOK, []byte(want))
	}
	wantStatus(t, "GET of what nobody has", local(c, "/assets/none"), http.StatusNotFound)
	for _, r := range far.Log() {
		if got := r.Header.Get("Authorization"); got != "Bearer secret" {
			t.Errorf("%s with the credential %q", r.Line, got)
		}
	}
	far.Refuse()
	wantStatus(t, "GET of what the origin might have", local(c, "/assets/none"), http.StatusServiceUnavailable)
	wantBody(t, "GET of what is on disk", local(c, "/assets/here"), http.StatusOK, []byte("on disk"))
}

func TestRecipeANodeForEachKey(t *testing.T) {
	t.Parallel()
	var nodes [3]*origin.Origin
	options := make([]rig.Option, 0, len(nodes))
	for i := range nodes {
		nodes[i] = origin.New(t)
		options = append(options, rig.Env(fmt.Sprintf("N%d", i+1), nodes[i].URL()))
		for key := range 30 {
			nodes[i].Put(fmt.Sprintf("/%d", key), origin.Object{Body: []byte("x")})
		}
	}
	c := startRecipe(t, "by-key", options...)
	owners := func() (all [30]int) {
		t.Helper()
		for key := range all {
			for _, n := range nodes {
				n.Forget()
			}
			for range 3 {
				wantBody(t, "GET", local(c, fmt.Sprintf("/%d", key)), http.StatusOK, []byte("x"))
			}
			for i, n := range nodes {
				switch n.Hits() {
				case 0:
				case 3:
					all[key] = i + 1
				default:
					t.Errorf("key %d: %d of 3 requests at node %d", key, n.Hits(), i+1)
				}
			}
		}
		return all
	}
	before := owners()
	if status, text := c.Admin(http.MethodPost, "/storage_mux/nodes/backends/n2/drain", ""); status != http.StatusOK {
		t.Fatalf("drain = %d %s", status, text)
	}
	moved := 0
	for key, owner := range owners() {
		switch {
		case owner == 2:
			t.Errorf("key %d is asked of a drained node", key)
		case before[key] == 2:
			moved++
		case owner != before[key]:
			t.Errorf("key %d went from node %d to %d", key, before[key], owner)
		}
	}
	if moved == 0 || moved == len(before) {
		t.Errorf("%d of %d keys were those of one node", moved, len(before))
	}
}

func TestRecipeRegions(t *testing.T) {
	t.Parallel()
	all, options := make(map[string]*origin.Origin), []rig.Option(nil)
	for _, name := range []string{"NEAR_A", "NEAR_B", "FAR_A", "FAR_B"} {
		all[name] = origin.New(t)
		all[name].Put("/x", origin.Object{Body: []byte("x")})
		options = append(options, rig.Env(name, all[name].URL()))
	}
	c := startRecipe(t, "regions", options...)
	seen := func() (n string) {
		t.Helper()
		counts := make(map[string]int)
		for range 6 {
			r := local(c, "/x")
			wantBody(t, "GET", r, http.StatusOK, []byte("x"))
			counts[r.Header.Get("X-Served-By")]++
		}
		return fmt.Sprint(counts)
	}
	if got := seen(); got != "map[near.a:3 near.b:3]" {
		t.Errorf("served by %s", got)
	}
	all["NEAR_A"].Refuse()
	if got := seen(); got != "map[near.b:6]" {
		t.Errorf("served by %s without one near origin", got)
	}
	all["NEAR_B"].Refuse()
	if got := seen(); got != "map[far.a:6]" {
		t.Errorf("served by %s without the near region", got)
	}
}

// What a newcomer starts from: the steps of the README's five minutes.
func TestRecipeToStartFrom(t *testing.T) {
	t.Parallel()
	dir, app, other := t.TempDir(), origin.New(t), origin.New(t)
	c := startRecipe(t, "first", rig.InDir(dir), rig.Env("APP1", app.Addr()), rig.Env("APP2", other.Addr()))
	wantStatus(t, "PUT", c.Put("/hello.txt", "hello", "Host", "localhost"), http.StatusCreated)
	if got := fmt.Sprint(files(t, dir)); got != "map[site-here/hello.txt:hello site-there/hello.txt:hello]" {
		t.Errorf("files: %s", got)
	}
	move(t, dir, "site-here", "away")
	wantBody(t, "GET without the first folder", local(c, "/hello.txt"), http.StatusOK, []byte("hello"))
	app.Refuse()
	other.Refuse()
	c.Eventually(soon, "the opening of both breakers", func() error {
		if r := local(c, "/api/x"); r.Status != http.StatusServiceUnavailable || r.Header.Get("Retry-After") == "" {
			return fmt.Errorf("GET = %d", r.Status)
		}
		return nil
	})
	page := string(local(c, "/status").Body)
	for _, want := range []string{">site <", "here", "there", app.Addr()} {
		if !strings.Contains(page, want) {
			t.Errorf("the status page lacks %q", want)
		}
	}
}
