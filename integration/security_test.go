package integration_test

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/integration/origin"
	"github.com/suaveplan/caddy-storage-mux/integration/rig"
)

// planted are secrets as an operator would give them; each has the same word in it, by which it is found wherever it comes out.
const planted = "pl4nted"

// Nothing that comes out of a Caddy shows what its backends sign in with: no answer, log line, event, metric, admin answer, page or
// command, whatever the backends do.
func TestNoOutputShowsASecret(t *testing.T) {
	t.Parallel()
	refusing, failing := origin.New(t), origin.New(t)
	refusing.Script(origin.Faults{Status: http.StatusForbidden})
	failing.Script(origin.Faults{Status: http.StatusInternalServerError})
	config := `storage_mux {
		name guarded
		writable
		list
		on_miss next
		cooldown 1ms 1ms
		backend url http http://user:{$SECRET}@{$REFUSING}
		backend header http http://{$FAILING} {
			header Authorization "Bearer {$SECRET}"
			header X-Api-Key {$SECRET}
		}
		backend gone http http://user:{$SECRET}@127.0.0.1:1
		backend s3 s3 bucket {
			endpoint http://{$REFUSING}
			region us-east-1
			access_key AK{$SECRET}
			secret_key {$SECRET}
			session_token {$SECRET}
		}
		backend swift swift box {
			auth_url http://{$FAILING}/auth/v1.0
			user test:tester
			key {$SECRET}
		}
		backend bunny bunny zone {
			endpoint http://{$REFUSING}
			access_key {$SECRET}
		}
	}
	storage_mux_status /status`
	options := []rig.Option{
		rig.Env("SECRET", planted), rig.Env("REFUSING", strings.TrimPrefix(refusing.URL(), "http://")),
		rig.Env("FAILING", strings.TrimPrefix(failing.URL(), "http://")),
	}
	c := rig.Start(t, config, options...)
	clean := func(where, text string) {
		t.Helper()
		if at := strings.Index(text, planted); at >= 0 {
			t.Errorf("%s shows a secret: …%s", where, text[max(0, at-200):min(len(text), at+50)])
		}
	}
	for range 3 {
		for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPut, http.MethodDelete} {
			r := c.Do(rig.Request{Method: method, Path: "/k", Body: strings.NewReader("x")})
			if r.Status < 400 {
				t.Fatalf("%s = %d, although no backend lets anybody in", method, r.Status)
			}
			clean(method, fmt.Sprint(r.Header, string(r.Body)))
		}
	}
	for _, path := range []string{"/?list", "/status"} {
		r := c.Get(path)
		clean(path, fmt.Sprint(r.Header, string(r.Body)))
	}
	for _, call := range [][3]string{
		{http.MethodGet, "/storage_mux", ""},
		{http.MethodGet, "/metrics", ""},
		{http.MethodPost, "/storage_mux/guarded/repair", ""},
		{http.MethodPost, "/storage_mux/guarded/purge", `{"keys":["k"]}`},
		{http.MethodPost, "/storage_mux/guarded/backends", `{"name":"x","type":"http","base_url":"http://u:` + planted + `@h:1","nonsense":1}`},
		{http.MethodPost, "/storage_mux/guarded/backends", `{"name":"x","type":"http","base_url":"http://u:` + planted + `@h:notaport"}`},
	} {
		_, answer := c.Admin(call[0], call[1], call[2])
		clean(call[0]+" "+call[1], answer)
	}
	for _, command := range []string{"ls", "stat k", "verify", "explain --key k"} {
		ran := c.Run("", append([]string{"storage-mux"}, strings.Fields(command)...)...)
		clean(command, ran.Stdout+ran.Stderr)
	}
	c.Stop()
	clean("the log", c.Log.String())
}

// The admin API is no way in for a page that an operator has open in a browser: Caddy's own rules for its admin endpoint hold for ours.
func TestTheAdminAPIRefusesOtherOrigins(t *testing.T) {
	t.Parallel()
	c := rig.Start(t, `storage_mux {
		name t
		backend a memory
		backend b memory
	}`)
	for _, call := range [][2]string{
		{http.MethodDelete, "/storage_mux/t/backends/a"},
		{http.MethodPost, "/storage_mux/t/backends/a/drain"},
		{http.MethodPost, "/storage_mux/t/repair"},
		{http.MethodGet, "/storage_mux"},
		{http.MethodPost, "/relay_breaker"},
	} {
		if status, answer := c.Admin(call[0], call[1], "", "Origin", "https://evil.example"); status != http.StatusForbidden {
			t.Errorf("%s %s from another origin = %d %s, want 403", call[0], call[1], status, answer)
		}
	}
	if _, answer := c.Admin(http.MethodGet, "/storage_mux/t", ""); !strings.Contains(answer, `"a"`) {
		t.Errorf("the tree has changed: %s", answer)
	}
}

// What a client or a stranger's file says ends up in no header that it was not meant for.
func TestNothingIsInjectedIntoHeaders(t *testing.T) {
	t.Parallel()
	c := rig.Start(t, `storage_mux {
		writable
		list
		backend d file {$DIR}/files {
			create_root
		}
	}`)
	wantStatus(t, "PUT", c.Put("/ok", "x"), http.StatusCreated)
	for _, path := range []string{"/a%0d%0aX-Injected:%201", "/a%0aX-Injected:%201", "/a%00b"} {
		for _, method := range []string{http.MethodGet, http.MethodPut} {
			r := c.Do(rig.Request{Method: method, Path: path, Body: strings.NewReader("x")})
			if r.Status >= 500 || r.Header.Get("X-Injected") != "" {
				t.Errorf("%s %s = %d %v", method, path, r.Status, r.Header)
			}
		}
	}
	// A name that a file system takes and HTML does not: lists are data, and say what they are.
	writeFile(t, filepath.Join(c.Dir, "files"), `<script>alert(1)<`, []byte("<html>"))
	r := c.Get("/?list")
	if kind := r.Header.Get("Content-Type"); kind != "application/json" || !strings.Contains(string(r.Body), "alert(1)") {
		t.Errorf("a list is %s: %s", kind, r.Body)
	}
}
