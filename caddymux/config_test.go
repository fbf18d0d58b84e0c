package caddymux

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// provisionJSON loads a handler from JSON, as a config would.
func provisionJSON(t *testing.T, config string) (*Handler, error) {
	t.Helper()
	loaded, err := testContext(t).LoadModuleByID("http.handlers.storage_mux", json.RawMessage(config))
	if err != nil {
		return nil, err
	}
	return loaded.(*Handler), nil
}

func TestBadJSONIsAnErrorThatNamesTheField(t *testing.T) {
	for config, want := range map[string]string{
		`{}`:                      "STORAGE_MUX.BACKEND_NOT_FOUND",
		`{"backends":[]}`:         "no backend",
		`{"mode":"shield"}`:       "STORAGE_MUX.MIRROR_ORIGIN_REQUIRED",
		`{"backends":[null]}`:     "backend 1: backend: name is missing",
		`{"backends":[1]}`:        "backend 1: ",
		`{"colour":"red"}`:        "colour",
		`{"mode":"roundabout"}`:   "roundabout",
		`{"on_miss":"maybe"}`:     "on_miss",
		`{"hash":"md5"}`:          "hash",
		`{"partial_writes":"?"}`:  "partial_writes",
		`{"write_quorum":"most"}`: "write_quorum",
		`{"write_quorum":0,"backends":[{"name":"m","type":"memory"}]}`:                 "write_quorum",
		`{"write_quorum":2,"mode":"mirror","backends":[{"name":"m","type":"memory"}]}`: "write_quorum",
		`{"repair_rate":-2}`:                        "repair_rate",
		`{"retry":-1}`:                              "retry",
		`{"timeout":"-1s"}`:                         "timeout",
		`{"deadline":"soon"}`:                       `deadline: must be a duration such as 30s, got "soon"`,
		`{"max_size":"1MB"}`:                        "max_size: must be a whole number, got string",
		`{"hedge":"auto","hedge_max_percent":"5%"}`: "hedge_max_percent: must be a number, got string",
		`{"index":"x"}`:                             "index: must be a list, got string",
		`{"backends":[{"name":"m","type":"memory","timeout":"x"}]}`:    `backend "m": timeout: must be a duration such as 30s, got "x"`,
		`{"backends":[{"name":"m","type":"memory","max_size":"1MB"}]}`: `backend "m": max_size: must be a whole number, got string`,
		`{"backends":[{"name":"n","type":"mux","cooldown":"x"}]}`:      `backend "n": cooldown: must be a duration such as 30s, got "x"`,
		`{"deadline":-1}`:                                                                                     "deadline",
		`{"cooldown":"-1s"}`:                                                                                  "cooldown",
		`{"retry_delay":"2s","retry_max_delay":"1s"}`:                                                         "retry_max_delay: must not be below 2s, got 1s",
		`{"cooldown":"2m","cooldown_max":"1s"}`:                                                               "cooldown_max: must not be below 2m0s, got 1s",
		`{"hedge_max_percent":3}`:                                                                             "hedge_max_percent: says nothing without hedge",
		`{"max_size":-1}`:                                                                                     "max_size",
		`{"status":"99"}`:                                                                                     "status",
		`{"name":"a b","backends":[{"name":"m","type":"memory"}]}`:                                            `name "a b"`,
		`{"name":"mirror","backends":[{"name":"m","type":"memory"}]}`:                                         `is the mode mirror`,
		`{"prefix":"../x","backends":[{"name":"m","type":"memory"}]}`:                                         "prefix",
		`{"index":["a//b"],"backends":[{"name":"m","type":"memory"}]}`:                                        "index",
		`{"hide":[""],"backends":[{"name":"m","type":"memory"}]}`:                                             "hide",
		`{"hide":["[a"],"backends":[{"name":"m","type":"memory"}]}`:                                           "hide",
		`{"backends":[{"name":"m"}]}`:                                                                         `unknown backend type ""`,
		`{"backends":[{"name":"m","type":"floppy"}]}`:                                                         `"floppy", known are bunny, file, http, memory, mux, rackspace, s3, scripted, swift, use`,
		`{"backends":[{"name":"m","type":"file.x"}]}`:                                                         `"file.x"`,
		`{"backends":[{"name":"m","type":1}]}`:                                                                "type: ",
		`{"backends":[{"name":"m","type":"memory","weight":"2"}]}`:                                            "weight: ",
		`{"backends":[{"name":"m","type":"memory","weight":1.5}]}`:                                            "weight: ",
		`{"backends":[{"name":"m","type":"memory","weight":1000000001}]}`:                                     "STORAGE_MUX.INVALID_WEIGHT: weight: must be at most 1000000000",
		`{"backends":[{"name":"m","type":"memory","weight":-1}]}`:                                             "STORAGE_MUX.INVALID_WEIGHT",
		`{"backends":[{"name":"m","type":"memory","timeout":"-1s"}]}`:                                         "timeout",
		`{"backends":[{"name":"m","type":"memory","health_key":"/x"}]}`:                                       "health_key",
		`{"backends":[{"name":"m","type":"memory","colour":"red"}]}`:                                          "colour",
		`{"backends":[{"name":"m","type":"memory","max_size":-1}]}`:                                           "max_size",
		`{"backends":[{"name":"m","type":"memory"},{"name":"m","type":"memory"}]}`:                            "STORAGE_MUX.BACKEND_NAME_CONFLICT",
		`{"mode":"weighted","backends":[{"name":"m","type":"memory"}]}`:                                       "STORAGE_MUX.WEIGHTED_REQUIRES_WEIGHTS",
		`{"mode":"weighted","backends":[{"name":"m","type":"memory","weight":0}]}`:                            "STORAGE_MUX.WEIGHTED_REQUIRES_WEIGHTS",
		`{"backends":[{"name":"f","type":"file"}]}`:                                                           "root",
		`{"backends":[{"name":"f","type":"file","root":"/x","mode":"0444"}]}`:                                 "mode",
		`{"backends":[{"name":"h","type":"http"}]}`:                                                           "base_url",
		`{"backends":[{"name":"h","type":"http","base_url":"gopher://x"}]}`:                                   "gopher",
		`{"backends":[{"name":"s","type":"s3"}]}`:                                                             "bucket: missing",
		`{"backends":[{"name":"s","type":"s3","bucket":"bucket","path_style":"on"}]}`:                         "path_style",
		`{"backends":[{"name":"s","type":"s3","bucket":"bucket","secret_key":"{env.NO_SUCH_X}"}]}`:            "secret_key: {env.NO_SUCH_X}",
		`{"backends":[{"name":"s","type":"s3","bucket":"bucket","endpoint":"{env.NO_SUCH_X}"}]}`:              "endpoint: {env.NO_SUCH_X}: placeholder evaluates to nothing",
		`{"backends":[{"name":"b","type":"bunny","zone":"z","access_key":"k","endpoint":"{env.NO_SUCH_X}"}]}`: "endpoint: {env.NO_SUCH_X}: placeholder evaluates to nothing",
		`{"backends":[{"name":"b","type":"bunny","zone":"z","api_endpoint":"{env.NO_SUCH_X}"}]}`:              "api_endpoint: {env.NO_SUCH_X}: placeholder evaluates to nothing",
		`{"backends":[{"name":"r","type":"rackspace","container":"c","auth_url":"{env.NO_SUCH_X}"}]}`:         "auth_url: {env.NO_SUCH_X}: placeholder evaluates to nothing",
		`{"backends":[{"name":"n","type":"mux"}]}`:                                                            `backend "n": STORAGE_MUX.BACKEND_NOT_FOUND`,
		`{"backends":[{"name":"n","type":"mux","colour":"red"}]}`:                                             "colour",
		`{"backends":[{"name":"n","type":"mux","backends":[{"name":"m","type":"memory","weight":-1}]}]}`:      `backend "n": backend "m": STORAGE_MUX.INVALID_WEIGHT`,
		`{"backends":[{"name":"s","type":"scripted","script":"none"}]}`:                                       `backend "s": script: no store named "none"`,
		`{"backends":[{"name":"s","type":"scripted","script":"{http.request.host}"}]}`:                        "script: unknown placeholder {http.request.host}",
		`{"backends":[{"name":"s","type":"scripted","secret":"{env.STORAGE_MUX_NO_SUCH}"}]}`:                  "secret: {env.STORAGE_MUX_NO_SUCH}: placeholder evaluates to nothing",
		`{"backends":[{"name":"s","type":"scripted","secret":"{no.such}"}]}`:                                  "secret: unknown placeholder {no.such}",
		`{"backends":[{"name":"h","type":"http","base_url":"http://a","header":{"A":["{env.NO_SUCH_X}"]}}]}`:  "header.A: {env.NO_SUCH_X}",
		nestedJSON(9): "STORAGE_MUX.RECURSION_DEPTH_EXCEEDED",
	} {
		if _, err := provisionJSON(t, config); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\ngives %v, want %q", config, err, want)
		}
		if n := treesAlive(); n != 0 {
			t.Fatalf("%s: %d trees are left", config, n)
		}
	}
}

func nestedJSON(muxes int) string {
	inner := `{"name":"m","type":"memory"}`
	for range muxes - 1 {
		inner = `{"name":"n","type":"mux","backends":[` + inner + `]}`
	}
	return `{"backends":[` + inner + `]}`
}

func TestEightMuxesInAChainLoad(t *testing.T) {
	if _, err := provisionJSON(t, nestedJSON(8)); err != nil {
		t.Error(err)
	}
}

func TestPlaceholdersAreReplacedWhenProvisioned(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("MUX_TEST_ROOT", dir)
	t.Setenv("MUX_TEST_NAME", "from-env")
	token := filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte("secret from a file"), 0o600); err != nil {
		t.Fatal(err)
	}
	h, err := provisionJSON(t, `{"name":"{env.MUX_TEST_NAME}","mode":"{env.MUX_TEST_UNSET}","backends":[
		{"name":"d","type":"file","root":"{env.MUX_TEST_ROOT}/x"},
		{"name":"h","type":"http","base_url":"http://127.0.0.1:1","header":{"Authorization":["Bearer {file.`+token+`}"]}},
		{"name":"n","type":"mux","backends":[{"name":"{env.MUX_TEST_NAME}","type":"memory","health_key":"\\{kept\\}"}]}]}`)
	if err != nil {
		t.Fatal(err)
	}
	root := h.tree.root
	if h.tree.name != "from-env" || root.set.Mode != muxcore.Failover {
		t.Errorf("tree %s, mode %s", h.tree.name, root.set.Mode)
	}
	if got := root.members[0].module.(*FileBackend).Root; got != dir+"/x" {
		t.Errorf("root = %s", got)
	}
	if got := root.members[1].module.(*HTTPBackend).Header.Get("Authorization"); got != "Bearer secret from a file" {
		t.Errorf("Authorization = %s", got)
	}
	inner := root.members[2].nested.members[0]
	if inner.Name != "from-env" || inner.HealthKey != "{kept}" {
		t.Errorf("nested: %s, health_key %s", inner.Name, inner.HealthKey)
	}
	if nested := root.members[2].nested.name; nested != "from-env.n" {
		t.Errorf("nested mux is named %s", nested)
	}
}

// Equality is decided after placeholders: what is typed in two ways and means one thing is one tree.
func TestEqualityIsDecidedAfterPlaceholders(t *testing.T) {
	t.Setenv("MUX_TEST_ROOT", "/srv")
	ctx := testContext(t)
	var keys []treeKey
	for _, config := range []string{
		`{"name":"t","backends":[{"name":"d","type":"file","root":"{env.MUX_TEST_ROOT}/a"}]}`,
		`{"name":"t","mode":"failover","backends":[{"type":"file","root":"/srv/a","name":"d"}]}`,
	} {
		loaded, err := ctx.LoadModuleByID("http.handlers.storage_mux", json.RawMessage(config))
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, loaded.(*Handler).key)
	}
	if keys[0] != keys[1] {
		t.Error("two trees, want one")
	}
}

// What is where is for the operator to say: no header or host of a request chooses a host, a root, a bucket or a credential.
func TestNoPlaceholderOfARequestChoosesABackend(t *testing.T) {
	for kind, options := range map[string]string{
		"http":      `"base_url":"http://h/x","header":{"A":["b"]},"health_uri":"/h","tls_ca_file":"/ca","tls_server_name":"h"`,
		"file":      `"root":"/srv"`,
		"s3":        `"bucket":"bucket","endpoint":"http://h","region":"r","access_key":"a","secret_key":"b","session_token":"c","prefix":"p"`,
		"swift":     `"container":"box","auth_url":"http://h/v3","user":"u","key":"k","tenant":"t","domain":"d","region":"r","prefix":"p"`,
		"rackspace": `"container":"box","auth_url":"http://h/v2.0","user":"u","key":"k","region":"DFW","prefix":"p"`,
		"bunny":     `"zone":"zone","region":"de","access_key":"k","api_key":"l","pull_zone":"http://h","endpoint":"http://h","api_endpoint":"http://h","prefix":"p"`,
		"use":       `"tree":"t"`,
	} {
		values := regexp.MustCompile(`:\[?"([^"]*)"`).FindAllStringSubmatchIndex(options, -1)
		for _, at := range values {
			changed := options[:at[2]] + "{http.request.header.X}" + options[at[3]:]
			_, err := provisionJSON(t, `{"backends":[{"name":"b","type":"`+kind+`",`+changed+`}]}`)
			if err == nil || !strings.Contains(err.Error(), "unknown placeholder {http.request.header.X}; those of requests work in prefix, hide and index only") {
				t.Errorf("%s with %s gives %v", kind, changed, err)
			}
		}
	}
}

func TestSecretsAreNotInErrors(t *testing.T) {
	t.Setenv("MUX_TEST_SECRET", "hunter2")
	for _, config := range []string{
		`{"backends":[{"name":"h","type":"http","base_url":"ftp://u:{env.MUX_TEST_SECRET}@a"}]}`,
		`{"backends":[{"name":"h","type":"http","base_url":"http://u:hunter2@a b"}]}`,
		`{"backends":[{"name":"s","type":"s3","bucket":"bucket","endpoint":"https://u:{env.MUX_TEST_SECRET}@h"}]}`,
		`{"backends":[{"name":"s","type":"s3","bucket":"bucket","secret_key":"{env.MUX_TEST_SECRET}"}]}`,
		`{"backends":[{"name":"s","type":"s3","bucket":"bucket","session_token":"{env.MUX_TEST_SECRET}","access_key":"a"}]}`,
		`{"backends":[{"name":"h","type":"http","base_url":"http://a","header":{"A":["{env.MUX_TEST_SECRET}\u0001"]}}]}`,
		`{"backends":[{"name":"h","type":"http","base_url":"http://a","header":{"Range":["{env.MUX_TEST_SECRET}"]}}]}`,
	} {
		_, err := provisionJSON(t, config)
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s\ngives %v", config, err)
		}
	}
	// A secret with a space that lacks its quotes is two words.
	for _, backend := range []string{
		"http http://a {\nheader Authorization Bearer hunter2\n}", "http http://u:a@h hunter2", "s3 bucket {\nsecret_key a hunter2\n}",
		"s3 bucket {\naccess_key a hunter2\n}", "s3 bucket {\nsession_token a hunter2\n}", "swift box {\nkey a hunter2\n}",
		"rackspace box {\nkey a hunter2\n}", "bunny zone {\naccess_key a hunter2\n}", "bunny zone {\napi_key a hunter2\n}",
	} {
		_, err := adapt(t, ":80 {\nstorage_mux {\nbackend b "+backend+"\n}\n}")
		if err == nil || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "quotes, at Caddyfile:") {
			t.Errorf("%s\ngives %v", backend, err)
		}
	}
}
