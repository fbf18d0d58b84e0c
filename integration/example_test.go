package integration_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/integration/rig"
)

// example starts Caddyfile.example on free ports.
func example(t *testing.T) *rig.Caddy {
	t.Helper()
	text, err := os.ReadFile("../Caddyfile.example")
	if err != nil {
		t.Fatal(err)
	}
	config := string(text)
	for i, port := range []string{"8080", "8081", "8082", "8083", "8084"} {
		if !strings.Contains(config, ":"+port) {
			t.Fatalf("the example has no site on port %s", port)
		}
		word := "{$PORT}"
		if i > 0 {
			word = fmt.Sprintf("{$PORT%d}", i+1)
		}
		config = strings.ReplaceAll(config, ":"+port, ":"+word)
	}
	config = strings.Replace(config, "persist_config off", "persist_config off\n\tadmin 127.0.0.1:{$ADMIN}\n\tlog {\n\t\tformat json\n\t}", 1)
	dir := filepath.Join(t.TempDir(), "a clone") // a path with a space must do
	if err := os.MkdirAll(filepath.Join(dir, "directory"), 0o755); err != nil {
		t.Fatal(err)
	}
	return rig.Start(t, config, rig.AsIs(), rig.InDir(dir), rig.Env("EXAMPLE_DATA", dir))
}

// The tour of the README: upload, read, take one origin away, read on.
func TestTheTourOfTheExample(t *testing.T) {
	t.Parallel()
	c := example(t)
	localhost := []string{"Host", "localhost"}
	served := func(want string) {
		t.Helper()
		r := c.Get("/hello.txt", localhost...)
		wantBody(t, "GET", r, http.StatusOK, []byte("hello, mux"))
		if got := r.Header.Get("X-Served-By"); got != want {
			t.Errorf("served by %q, want %q", got, want)
		}
	}
	wantStatus(t, "upload", c.Put("/hello.txt", "hello, mux", localhost...), http.StatusCreated)
	served("directory")
	if got := fmt.Sprint(filesBelow(t, c.Dir)); got != "[directory/hello.txt origin/hello.txt]" {
		t.Errorf("files: %s", got)
	}

	directory, away := filepath.Join(c.Dir, "directory"), filepath.Join(c.Dir, "away")
	if err := os.Rename(directory, away); err != nil {
		t.Fatal(err)
	}
	c.Eventually(soon, "noticing that the directory is gone", func() error {
		if got := c.Get("/hello.txt", localhost...).Header.Get("X-Served-By"); got != "origin" {
			return fmt.Errorf("served by %q", got)
		}
		return nil
	})
	served("origin")
	if err := os.Rename(away, directory); err != nil {
		t.Fatal(err)
	}
	c.Eventually(soon, "the directory's return", func() error {
		if got := c.Get("/hello.txt", localhost...).Header.Get("X-Served-By"); got != "directory" {
			return fmt.Errorf("served by %q", got)
		}
		return nil
	})
	r := c.Get("/?list", localhost...)
	if !strings.Contains(string(r.Body), `"hello.txt"`) {
		t.Errorf("GET ?list = %d %s", r.Status, r.Body)
	}
	wantStatus(t, "DELETE", c.Delete("/hello.txt", localhost...), http.StatusNoContent)
	wantStatus(t, "GET after it", c.Get("/hello.txt", localhost...), http.StatusNotFound)
}

func TestTheProxyOfTheExample(t *testing.T) {
	t.Parallel()
	c := example(t)
	proxy := c.On("PORT3")
	seen := func(n int) map[string]int {
		t.Helper()
		answers := make(map[string]int)
		for range n {
			r := proxy.Get("/", "Host", "localhost")
			answers[fmt.Sprint(r.Status, " ", string(r.Body))]++
		}
		return answers
	}
	if got := seen(10); got["200 upstream 1"] != 5 || got["200 upstream 2"] != 5 {
		t.Errorf("ten answers: %v", got)
	}
	writeFile(t, c.Dir, "broken", nil)
	if got := seen(10); got["500 upstream 1 is broken"] != 3 || got["200 upstream 2"] != 7 {
		t.Errorf("ten answers with the first one broken: %v", got)
	}
	writeFile(t, c.Dir, "broken2", nil)
	writeFile(t, c.Dir, "stale/index.html", []byte("of yesterday"))
	if got := seen(4); got["500 upstream 2 is broken"] != 3 || got["200 of yesterday"] != 1 {
		t.Errorf("four answers with both broken: %v", got)
	}
	for _, method := range []string{http.MethodPost, http.MethodDelete} {
		r := proxy.Do(rig.Request{Method: method, Path: "/", Header: []string{"Host", "localhost"}})
		wantStatus(t, method+" with both broken", r, http.StatusServiceUnavailable)
	}
	if err := os.Remove(filepath.Join(c.Dir, "broken2")); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(c.Dir, "broken")); err != nil {
		t.Fatal(err)
	}
	proxy.Eventually(soon, "the first upstream's return", func() error {
		if got := seen(10); got["200 upstream 1"] != 5 {
			return fmt.Errorf("ten answers: %v", got)
		}
		return nil
	})
}
