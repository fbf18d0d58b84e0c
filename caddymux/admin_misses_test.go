package caddymux

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/filestore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/journal"
)

// askInProcess asks the admin API of the running config.
func askInProcess(t *testing.T) askAdmin {
	return func(method, uri string, body io.Reader) (*http.Response, error) {
		w := httptest.NewRecorder()
		if err := new(adminAPI).serve(w, httptest.NewRequestWithContext(t.Context(), method, uri, body)); err != nil {
			return nil, err
		}
		return w.Result(), nil
	}
}

// A mux beside a running Caddy, with the same journal and backends, hands its misses over, and they are repaired there.
func TestACommandsMissesAreHandedToTheRunningCaddy(t *testing.T) {
	f := scripted(t, "shared")
	dir, root := filepath.Join(t.TempDir(), "journal"), t.TempDir()
	c := run(t, "storage_mux mirror {\n name t\n writable\n cooldown 10ms\n journal "+dir+"\n backend d file "+root+"\n backend f scripted shared\n}")
	down := &muxcore.Error{Code: muxcore.CodeUnavailable}
	f.Break(down)
	c.expect(http.StatusCreated, "PUT", "/first", "x") // has it take the lock

	files, err := filestore.New(filestore.Settings{Root: root})
	if err != nil {
		t.Fatal(err)
	}
	j := journal.New(dir, journal.Settings{})
	command, err := muxcore.New(muxcore.Settings{Mode: muxcore.Mirror, Journal: j.Scope("")},
		muxcore.Backend{Name: "d", Store: files}, muxcore.Backend{Name: "f", Store: f})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(command.Close(), j.Close()); err != nil {
			t.Error(err)
		}
	})
	put := func(key string) error {
		_, err := command.Put(t.Context(), key, strings.NewReader("body"), 4, muxcore.PutOptions{})
		return err
	}
	if err := put("unremembered"); !errors.Is(err, journal.ErrLocked) || muxcore.CodeOf(err) != muxcore.CodeWriteFanoutPartial {
		t.Errorf("Put whose miss nobody remembers = %v", err)
	}
	handOver(j, "t", false, askInProcess(t))
	for _, key := range []string{"one", "two/three"} { // f is left alone by then: it is known before the commit
		if err := put(key); err != nil {
			t.Errorf("Put of %s = %v", key, err)
		}
	}
	if _, err := command.Delete(t.Context(), "first", muxcore.DeleteOptions{}); err != nil {
		t.Errorf("Delete = %v", err)
	}
	if n := journalOf(dir).Scope("").Count("f"); n != 3 {
		t.Errorf("%d keys pending in the running Caddy, want 3", n)
	}
	f.Mend()
	c.eventually("f has what it missed", func() bool { return journalOf(dir).Scope("").Count("f") == 0 })
	var keys []string
	for e, err := range f.List(t.Context(), muxcore.ListOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, e.Key)
	}
	if !slices.Equal(keys, []string{"one", "two/three"}) {
		t.Errorf("f has %q", keys)
	}
}

// What cannot be of a tree is refused, and nothing of it is remembered.
func TestMissesOfNoTreeAreRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "journal")
	run(t, "storage_mux mirror {\n name t\n writable\n journal "+dir+"\n backend a memory\n backend eu mux {\n backend x memory\n}\n backend off mux {\n journal off\n backend x memory\n}\n}")
	good := fmt.Sprintf(`"journal":%q,"step":"begin","key":"k","write":{"etag":"\"e\""}`, dir)
	for name, row := range map[string]struct {
		method, tree, body string
		status             int
	}{
		"well":               {"POST", "t", `{` + good + `,"asks":["a"],"skips":["eu"]}`, 200},
		"well, nested":       {"POST", "t", `{` + good + `,"scope":"eu","asks":["x"]}`, 200},
		"another method":     {"GET", "t", "", 405},
		"no such tree":       {"POST", "u", `{` + good + `}`, 404},
		"no JSON":            {"POST", "t", `{`, 400},
		"an unknown field":   {"POST", "t", `{"hand":1}`, 400},
		"a bad key":          {"POST", "t", strings.Replace(`{`+good+`}`, `"k"`, `"a//b"`, 1), 400},
		"an unknown step":    {"POST", "t", strings.Replace(`{`+good+`}`, `"begin"`, `"jump"`, 1), 400},
		"another journal":    {"POST", "t", `{"journal":"/elsewhere","step":"begin","key":"k"}`, 409},
		"no journal":         {"POST", "t", `{` + good + `,"scope":"off"}`, 409},
		"an unknown mux":     {"POST", "t", `{` + good + `,"scope":"us"}`, 409},
		"an unknown backend": {"POST", "t", `{` + good + `,"asks":["a"],"skips":["b"]}`, 409},
	} {
		w := httptest.NewRecorder()
		err := new(adminAPI).serve(w, httptest.NewRequestWithContext(t.Context(), row.method, "/storage_mux/"+row.tree+"/misses", strings.NewReader(row.body)))
		status := w.Code
		if apiErr, ok := errors.AsType[caddy.APIError](err); ok {
			status = apiErr.HTTPStatus
		}
		if status != row.status {
			t.Errorf("%s: %d %s, %v; want %d", name, status, w.Body, err, row.status)
		}
	}
	if keys := journalOf(dir).Scope("").Keys("", "", 9); !slices.Equal(keys, []string{"k"}) {
		t.Errorf("remembered: %q", keys)
	}
	if m, _ := journalOf(dir).Scope("").Lookup("k"); len(m.Open) != 1 {
		t.Errorf("the mark of k is %+v", m)
	}
}
