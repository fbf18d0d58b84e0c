package caddymux

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
)

// runWith is run with more global options.
func runWith(t *testing.T, options, site string) *client {
	t.Helper()
	c := idle(t)
	if err := c.loadWith(options, site); err != nil {
		t.Fatalf("loading: %v", err)
	}
	return c
}

func (c *client) loadWith(options, site string) error {
	config, err := adapt(c.t, strings.Replace(c.config(site), "{\n", "{\n"+strings.ReplaceAll(options, "{{dir}}", c.dir)+"\n", 1))
	if err != nil {
		return err
	}
	return c.give(config)
}

func TestHandlersOfANamedTreeAreOneTree(t *testing.T) {
	c := runWith(t, "storage_mux site mirror {\n backend m memory\n}\nstorage_mux other memory:",
		"handle_path /w/* {\n storage_mux {\n use site\n writable\n }\n}\nhandle {\n storage_mux {\n use site\n }\n}")
	c.expect(http.StatusCreated, "PUT", "/w/x", "body")
	if got := c.expect(http.StatusOK, "GET", "/x", ""); got.body != "body" {
		t.Errorf("body = %q", got.body)
	}
	if n := treesAlive(); n != 2 {
		t.Errorf("%d trees are alive, want 2", n)
	}
	// The state outlives a reload, and goes with the option.
	if err := c.loadWith("storage_mux site mirror {\n backend m memory\n}", "storage_mux {\n use site\n}"); err != nil {
		t.Fatal(err)
	}
	c.expect(http.StatusOK, "GET", "/x", "")
	c.load(`respond "no tree"`)
	c.eventually("no tree is alive", func() bool { return treesAlive() == 0 })
}

func TestNamedAndInlineTreesShareOneNamespace(t *testing.T) {
	c := run(t, `respond "first"`)
	err := c.loadWith("storage_mux site memory:", "storage_mux memory: {\n name site\n timeout 1s\n}")
	if err == nil || !strings.Contains(err.Error(), "not alike") {
		t.Errorf("an inline tree unlike the named one: %v", err)
	}
	if n := treesAlive(); n != 0 {
		t.Errorf("%d trees are alive after the failed load", n)
	}
}

// Case 97: a handler that names a tree nobody declares is a load error, not a site of 404s.
func TestCase097AnUnknownNamedTreeIsALoadError(t *testing.T) {
	for options, want := range map[string]string{
		"":                           `unknown storage tree "missing": declare it`,
		"storage_mux site memory:\n": `unknown storage tree "missing", known are site`,
	} {
		_, err := adapt(t, "{\n"+options+"}\n:80 {\n\tstorage_mux {\n\t\tuse missing\n\t}\n}\n")
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "Caddyfile:") {
			t.Errorf("adapting: %v, want %q and the line", err, want)
		}
	}
	var cfg caddy.Config
	const config = `{"admin":{"disabled":true},"apps":{"http":{"servers":{"s":{"listen":["127.0.0.1:0"],"routes":[{"handle":[{"handler":"storage_mux","use":"missing"}]}]}}}}}`
	if err := json.Unmarshal([]byte(config), &cfg); err != nil {
		t.Fatal(err)
	}
	if err := caddy.Validate(&cfg); err == nil || !strings.Contains(err.Error(), `unknown storage tree "missing"`) {
		t.Errorf("validating: %v", err)
	}
}

func TestNothingStandsBesideUse(t *testing.T) {
	for _, config := range []string{
		`{"use":"a","name":"b"}`, `{"use":"a","mode":"mirror"}`, `{"use":"a","timeout":"1s"}`, `{"use":"a","backends":[{"name":"m","type":"memory"}]}`,
	} {
		if _, err := provisionJSON(t, config); err == nil || !strings.Contains(err.Error(), "use: serves a tree that is declared elsewhere") {
			t.Errorf("%s gives %v", config, err)
		}
	}
}
