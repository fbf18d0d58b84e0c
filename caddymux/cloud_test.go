package caddymux

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/suaveplan/caddy-storage-mux/internal/bunnyfake"
	"github.com/suaveplan/caddy-storage-mux/internal/swiftfake"
	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// samples are configs of the types, from the least to one with every ability.
var samples = map[string][]string{
	"memory": {`{}`},
	"file":   {`{"root":"/srv/x"}`},
	"http":   {`{"base_url":"http://h"}`, `{"base_url":"http://h","conditional_write":true}`},
	"swift": {
		`{"container":"c","auth_url":"http://h/v2.0","user":"u","key":"k"}`,
		`{"container":"c","auth_url":"http://h/v2.0","user":"u","key":"k","cdn":true}`,
	},
	"rackspace": {`{"container":"c","user":"u","key":"k"}`, `{"container":"c","user":"u","key":"k","cdn":true}`},
	"bunny": {
		`{"zone":"z","region":"de","access_key":"k"}`, `{"zone":"z","region":"de","access_key":"k","pull_zone":"https://h"}`,
		`{"zone":"z","region":"de","access_key":"k","pull_zone":"https://h","api_key":"k"}`,
	},
	"s3": {`{"bucket":"bucket","endpoint":"http://h","access_key":"a","secret_key":"s"}`},
}

// inQuotes is an option that a cell of the table names.
var inQuotes = regexp.MustCompile("`(\\w+)`")

// enough tells whether a config has all options that a cell names.
func enough(cell, config string) bool {
	for _, m := range inQuotes.FindAllStringSubmatch(cell, -1) {
		if !strings.Contains(config, `"`+m[1]+`"`) {
			return false
		}
	}
	return true
}

// The README's table of what the backends can do is what they say themselves, and the options that it names are what that takes.
func TestTheTableOfAbilitiesIsTrue(t *testing.T) {
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range backendTypes() {
		configs, ok := samples[kind]
		if !ok {
			if kind != muxType && kind != useType && !strings.HasPrefix(kind, "test") && kind != "scripted" {
				t.Errorf("type %s has no sample in this test", kind)
			}
			continue
		}
		least, most := abilitiesOf(t, kind, configs[0]), abilitiesOf(t, kind, configs[len(configs)-1])
		if !least.Write {
			t.Errorf("%s cannot write, and the table has no column for that", kind)
		}
		row := abilityRow(string(text), kind)
		if row == nil {
			t.Errorf("the table has no row for %s", kind)
			continue
		}
		for i, column := range []struct {
			name        string
			least, most bool
		}{
			{"list", least.List, most.List},
			{"conditional write", least.ConditionalWrite, most.ConditionalWrite},
			{"metadata", least.Metadata, most.Metadata},
			{"range", least.Range, most.Range},
			{"digests", least.Digests, most.Digests},
			{"purge", least.Purge, most.Purge},
		} {
			if says := row[i]; (says == "yes" && !column.least) || (says == "no" && column.most) || (says != "yes" && says != "no" && !column.most) {
				t.Errorf("%s, %s: the table says %q, a least config %t and a full one %t", kind, column.name, says, column.least, column.most)
			}
		}
		for _, config := range configs {
			if can, says := abilitiesOf(t, kind, config).Purge, row[5]; says != "no" && can != enough(says, config) {
				t.Errorf("%s, purge: the table says %q, and it is %t of %s", kind, says, can, config)
			}
		}
	}
}

func abilitiesOf(t *testing.T, kind, config string) muxcore.Capabilities {
	t.Helper()
	module, err := newBackendType(kind)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(config), module); err != nil {
		t.Fatalf("%s %s: %v", kind, config, err)
	}
	s, err := module.OpenStore()
	if err != nil {
		t.Fatalf("%s %s: %v", kind, config, err)
	}
	defer muxcore.Close(s)
	return muxcore.CapabilitiesOf(s)
}

// abilityRow is what the README's table says of a type.
func abilityRow(text, kind string) []string {
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) == 9 && strings.TrimSpace(cells[1]) == "`"+kind+"`" {
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			return cells[2:8]
		}
	}
	return nil
}

// purge calls the admin API's purge.
func purge(t *testing.T, method, target, body string) (int, purgeReport) {
	t.Helper()
	w := httptest.NewRecorder()
	err := new(adminAPI).serve(w, httptest.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body)))
	if apiErr, ok := errors.AsType[caddy.APIError](err); ok {
		return apiErr.HTTPStatus, purgeReport{}
	}
	if err != nil {
		t.Fatalf("%s %s = %v, want an API error", method, target, err)
	}
	var report purgeReport
	if err := json.Unmarshal(w.Body.Bytes(), &report); err != nil {
		t.Fatalf("%s %s answers %s: %v", method, target, w.Body, err)
	}
	return w.Code, report
}

func TestTheAdminAPIPurges(t *testing.T) {
	zones := bunnyfake.New(t, "zone")
	cluster := swiftfake.New(t, "box")
	run(t, fmt.Sprintf(`storage_mux shield {
	name t
	backend disk memory
	backend eu mux {
		backend edge bunny zone {
			endpoint %[1]s
			access_key %[2]s
			pull_zone https://cdn.example
			api_key %[3]s
			api_endpoint %[1]s
		}
	}
	backend rack rackspace box {
		auth_url %[4]s/v2.0
		user %[5]s
		key %[6]s
		cdn 1h
	}
}`, zones.URL, bunnyfake.AccessKey, bunnyfake.APIKey, cluster.URL, swiftfake.User, swiftfake.Key))
	code, report := purge(t, "POST", "/storage_mux/t/purge", `{"keys":["a b","c"]}`)
	if want := []string{"eu.edge", "rack"}; code != http.StatusOK || report.Keys != 2 || !slices.Equal(report.Purged, want) || report.Failed != nil {
		t.Errorf("purge = %d %+v, want 200 and %q", code, report, want)
	}
	got := append(zones.Purged(), cluster.Purged()...)
	slices.Sort(got)
	if want := []string{"box/a b", "box/c", "https://cdn.example/a%20b", "https://cdn.example/c"}; !slices.Equal(got, want) {
		t.Errorf("purged %q, want %q", got, want)
	}
	zones.Refuse(true)
	code, report = purge(t, "POST", "/storage_mux/t/purge", `{"keys":["c"]}`)
	if code != http.StatusBadGateway || len(report.Failed) != 1 || report.Failed[0].Backend != "eu.edge" || report.Failed[0].Code != muxcore.CodeCredentialExpired ||
		strings.Contains(fmt.Sprint(report), bunnyfake.APIKey) {
		t.Errorf("purge with a key that is refused = %d %+v, want 502 and %s of eu.edge, without the key", code, report, muxcore.CodeCredentialExpired)
	}
}

func TestAPurgeThatCannotBeIsRefused(t *testing.T) {
	run(t, "storage_mux {\n name t\n backend a memory\n}")
	for _, row := range []struct {
		method, path, body string
		status             int
	}{
		{"POST", "/t/purge", `{"keys":["a"]}`, http.StatusNotImplemented},
		{"GET", "/t/purge", ``, http.StatusMethodNotAllowed},
		{"POST", "/nobody/purge", `{"keys":["a"]}`, http.StatusNotFound},
		{"POST", "/t/purge", `{"keys":[]}`, http.StatusBadRequest},
		{"POST", "/t/purge", `{"keys":["../a"]}`, http.StatusBadRequest},
		{"POST", "/t/purge", `{"keys":["a"],"all":true}`, http.StatusBadRequest},
		{"POST", "/t/purge", `{"keys":"a"}`, http.StatusBadRequest},
		{"POST", "/t/purge", `["a"]`, http.StatusBadRequest},
		{"POST", "/t/purge", ``, http.StatusBadRequest},
	} {
		if code, _ := purge(t, row.method, "/storage_mux"+row.path, row.body); code != row.status {
			t.Errorf("%s %s %s = %d, want %d", row.method, row.path, row.body, code, row.status)
		}
	}
}
