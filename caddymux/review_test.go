package caddymux

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// Keys and paths are data of users: no line above debug shows them, however deep they stand in an error.
func TestWithoutKeyLeavesNoKeyAnywhere(t *testing.T) {
	deep := &muxcore.Error{Code: muxcore.CodeUnavailable, Key: "secret", Err: &fs.PathError{Op: "open", Path: "/srv/secret", Err: fs.ErrPermission}}
	for name, err := range map[string]error{
		"outermost":  deep,
		"nested":     &muxcore.Error{Code: muxcore.CodeAllBackendsDown, Err: deep},
		"wrapped":    fmt.Errorf("get %q: %w", "secret", deep),
		"joined":     errors.Join(errors.New("a"), deep, &muxcore.Error{Code: muxcore.CodeUnavailable, Backend: "b", Key: "secret"}),
		"plain path": &fs.PathError{Op: "open", Path: "/srv/secret", Err: fs.ErrNotExist},
	} {
		got := withoutKey(err).Error()
		if strings.Contains(got, "secret") {
			t.Errorf("%s: %s", name, got)
		}
		if name == "joined" && (!strings.Contains(got, "a\n") || !strings.Contains(got, `"b"`)) {
			t.Errorf("a cause is lost: %s", got)
		}
	}
}

// What is hidden is skipped, not counted, and never where a list goes on from.
func TestListsPageOverHiddenKeys(t *testing.T) {
	const tree = "\n name t\n backend m memory\n"
	c := run(t, "handle_path /all/* {\n storage_mux {"+tree+" writable\n}\n}\nhandle {\n storage_mux {"+tree+" list\n hide *-hidden\n}\n}")
	for i := range 30 {
		c.expect(http.StatusCreated, "PUT", fmt.Sprintf("/all/%02d", i), "x")
		c.expect(http.StatusCreated, "PUT", fmt.Sprintf("/all/%02d-hidden", i), "x")
	}
	var keys []string
	after := ""
	for range 20 {
		var page listAnswer
		if err := json.Unmarshal([]byte(c.expect(http.StatusOK, "GET", "/?list&limit=4&after="+after, "").body), &page); err != nil {
			t.Fatal(err)
		}
		for _, o := range page.Objects {
			keys = append(keys, o.Key)
		}
		if after = page.Next; after == "" {
			break
		}
		if strings.Contains(after, "hidden") {
			t.Fatalf("next = %q", after)
		}
	}
	if len(keys) != 30 || strings.Contains(strings.Join(keys, " "), "hidden") {
		t.Errorf("%d keys: %v", len(keys), keys)
	}
}

// RFC 9112, 3.2.2: the absolute form without a path means the root.
func TestTheAbsoluteFormWithoutAPathIsTheRoot(t *testing.T) {
	key, err := keyOf(&url.URL{Scheme: "http", Host: "test"})
	if key != "" || err != nil {
		t.Errorf("key = %q, %v, want the root", key, err)
	}
}
