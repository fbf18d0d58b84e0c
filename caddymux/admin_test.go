package caddymux

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/storetest"
)

// adminCall makes a call of the admin API. The answer to one that fails is the error's text.
func adminCall(t *testing.T, method, target, body string) (status int, answer string) {
	t.Helper()
	w := httptest.NewRecorder()
	err := new(adminAPI).serve(w, httptest.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body)))
	if apiErr, ok := errors.AsType[caddy.APIError](err); ok {
		if apiErr.Err == nil || apiErr.Err.Error() == "" {
			t.Errorf("%s %s: an error without words", method, target)
			return apiErr.HTTPStatus, ""
		}
		return apiErr.HTTPStatus, apiErr.Err.Error()
	}
	if err != nil {
		t.Fatalf("%s %s = %v, want an API error", method, target, err)
	}
	return w.Code, w.Body.String()
}

// admin makes a call of the admin API and decodes the tree that it answers with.
func admin(t *testing.T, method, target, body string) (int, treeStats) {
	t.Helper()
	status, answer := adminCall(t, method, target, body)
	var stats treeStats
	if status != http.StatusOK {
		return status, stats
	}
	if err := json.Unmarshal([]byte(answer), &stats); err != nil {
		t.Fatalf("%s %s answers %s: %v", method, target, answer, err)
	}
	return status, stats
}

// names lists the backends of a tree with their status, nested ones in brackets.
func names(s muxcore.Stats) string {
	var all []string
	for _, b := range s.Backends {
		name := b.Name + ":" + string(b.Status)
		if b.Mux != nil {
			name += "[" + names(*b.Mux) + "]"
		}
		all = append(all, name)
	}
	return strings.Join(all, " ")
}

func TestTheAdminAPIChangesATree(t *testing.T) {
	c := run(t, "storage_mux {\n name t\n writable\n backend a memory\n backend eu mux {\n backend x memory\n }\n}")
	c.expect(http.StatusCreated, "PUT", "/k", "body")
	for _, row := range []struct {
		method, path, body string
		status             int
		want               string // the backends afterwards
	}{
		{"POST", "/t/backends", `{"name":"b","type":"memory","max_size":1000}`, 200, "a:up eu:up[x:up] b:up"},
		{"POST", "/t/backends", `{"name":"b","type":"memory"}`, 409, ""},
		{"POST", "/t/backends", `{"name":"eu.y","type":"memory","weight":3}`, 200, "a:up eu:up[x:up y:up] b:up"},
		{"POST", "/t/backends", `{"name":"eu.y","type":"memory"}`, 409, ""},
		{"POST", "/t/backends", `{"name":"nobody.y","type":"memory"}`, 404, ""},
		{"POST", "/t/backends", `{"name":"a.y","type":"memory"}`, 404, ""},
		{"POST", "/t/backends", `{"name":"us","type":"mux","mode":"mirror","backends":[{"name":"z","type":"memory"}]}`, 200, "a:up eu:up[x:up y:up] b:up us:up[z:up]"},
		{"POST", "/t/backends", `{"name":"c","type":"memory","weight":-1}`, 400, ""},
		{"POST", "/t/backends", `{"name":"c","type":"nothing"}`, 400, ""},
		{"POST", "/t/backends", `{"name":"c","type":"memory","colour":"red"}`, 400, ""},
		{"POST", "/t/backends", `{"name":"c d","type":"memory"}`, 400, ""},
		{"POST", "/t/backends", `{"type":"memory"}`, 400, ""},
		{"POST", "/t/backends", `{"name":"c","type":"mux"}`, 400, ""},
		{"POST", "/t/backends", `not json`, 400, ""},
		{"POST", "/t/backends", ``, 400, ""},
		{"POST", "/nobody/backends", `{"name":"c","type":"memory"}`, 404, ""},
		{"PUT", "/t/backends", `{}`, 405, ""},
		{"GET", "/t/backends/a", ``, 405, ""},
		{"PATCH", "/t/backends/a", `{"weight":7}`, 200, "a:up eu:up[x:up y:up] b:up us:up[z:up]"},
		{"PATCH", "/t/backends/eu.y", `{"weight":0}`, 200, "a:up eu:up[x:up y:up] b:up us:up[z:up]"},
		{"PATCH", "/t/backends/a", `{"weight":-7}`, 400, ""},
		{"PATCH", "/t/backends/a", `{"weight":1.5}`, 400, ""},
		{"PATCH", "/t/backends/a", `{"height":1}`, 400, ""},
		{"PATCH", "/t/backends/a", `{}`, 400, ""},
		{"PATCH", "/t/backends/nobody", `{"weight":1}`, 404, ""},
		{"POST", "/t/backends/b/drain", ``, 200, "a:up eu:up[x:up y:up] b:down us:up[z:up]"},
		{"POST", "/t/backends/b/drain?timeout=soon", ``, 400, ""},
		{"POST", "/t/backends/nobody/drain", ``, 404, ""},
		{"DELETE", "/t/backends/b/drain", ``, 200, "a:up eu:up[x:up y:up] b:up us:up[z:up]"},
		{"DELETE", "/t/backends/nobody/drain", ``, 404, ""},
		{"DELETE", "/t/backends/us.z", ``, 409, ""}, // the last one
		{"DELETE", "/t/backends/us", ``, 200, "a:up eu:up[x:up y:up] b:up"},
		{"DELETE", "/t/backends/us", ``, 404, ""},
		{"DELETE", "/t/backends/b", ``, 200, "a:up eu:up[x:up y:up]"},
		{"POST", "/t/nonsense", ``, 404, ""},
		{"POST", "/t/backends/a/nonsense", ``, 404, ""},
	} {
		status, stats := admin(t, row.method, adminPath+row.path, row.body)
		if status != row.status || status == 200 && names(stats.Stats) != row.want {
			t.Errorf("%s %s %s = %d %s, want %d %s", row.method, row.path, row.body, status, names(stats.Stats), row.status, row.want)
		}
	}
	if got := c.expect(http.StatusOK, "GET", "/k", ""); got.body != "body" {
		t.Errorf("body = %q", got.body)
	}
}

// What is wrong is told by the name that the caller gave it, and not in the words of Go.
func TestABadCallSaysWhatIsWrong(t *testing.T) {
	run(t, "storage_mux {\n name t\n backend a memory\n}")
	for _, row := range []struct{ method, path, body, want string }{
		{"POST", "/t/backends", "", "there is none"},
		{"POST", "/t/backends", "[]", "must be an object, got array"},
		{"POST", "/t/backends", `{"name":1}`, "name: must be a string, got number"},
		{"POST", "/t/backends", `{"name":"c","type":"memory"} x`, "more than one value"},
		{"PATCH", "/t/backends/a", "", "there is none"},
		{"PATCH", "/t/backends/a", `{"weight":"1"}`, "weight: must be a whole number"},
		{"PATCH", "/t/backends/a", `{"weight":1} x`, "more than one value"},
		{"POST", "/t/backends/a/drain?timout=1s", "", `unknown parameter "timout"`},
		{"POST", "/t/purge", `{"keys":"a"}`, "keys: must be a list, got string"},
		{"POST", "/t/purge", `{"keys":[1]}`, "keys[0]: must be a string, got number"},
		{"POST", "/t/misses", `{"key":1}`, "key: must be a string, got number"},
	} {
		status, why := adminCall(t, row.method, adminPath+row.path, row.body)
		if status != http.StatusBadRequest || !strings.Contains(why, row.want) || strings.Contains(why, "Go ") {
			t.Errorf("%s %s %s = %d %s, want 400 and %s", row.method, row.path, row.body, status, why, row.want)
		}
	}
}

// What was changed stays over a reload, and over an edit that does not touch it.
func TestChangesOfATreeSurviveAReload(t *testing.T) {
	const tree = "storage_mux {\n name t\n %s\n backend a memory\n}"
	c := run(t, strings.Replace(tree, "%s", "", 1))
	admin(t, "POST", adminPath+"/t/backends", `{"name":"b","type":"memory"}`)
	admin(t, "POST", adminPath+"/t/backends/a/drain", "")
	c.load("header X-Other 1\n" + strings.Replace(tree, "%s", "", 1))
	if _, stats := admin(t, "GET", adminPath+"/t", ""); names(stats.Stats) != "a:down b:up" {
		t.Errorf("after a reload: %s", names(stats.Stats))
	}
	c.load(strings.Replace(tree, "%s", "timeout 3s", 1))
	if _, stats := admin(t, "GET", adminPath+"/t", ""); names(stats.Stats) != "a:down b:up" {
		t.Errorf("after an edit: %s", names(stats.Stats))
	}
}

// A drain waits for what is in flight; with a timeout it gives up, and the backend is back in service.
func TestADrainOverTheAdminAPIWaits(t *testing.T) {
	f := scripted(t, "drains")
	c := run(t, "storage_mux {\n name t\n backend f scripted drains\n backend m memory\n}")
	f.On(muxcore.OpGet, 1, storetest.Hang())
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.do("GET", "/x", "")
	}()
	c.eventually("a request is in flight", func() bool { return f.InFlight() == 1 })
	if status, _ := admin(t, "POST", adminPath+"/t/backends/f/drain?timeout=10ms", ""); status != http.StatusGatewayTimeout {
		t.Errorf("a drain that runs out of time = %d, want 504", status)
	}
	if _, stats := admin(t, "GET", adminPath+"/t", ""); names(stats.Stats) != "f:up m:up" {
		t.Errorf("after it: %s", names(stats.Stats))
	}
	drained := make(chan int)
	go func() {
		status, _ := admin(t, "POST", adminPath+"/t/backends/f/drain", "")
		drained <- status
	}()
	c.eventually("it is draining", func() bool {
		_, stats := admin(t, "GET", adminPath+"/t", "")
		return names(stats.Stats) == "f:draining m:up"
	})
	select {
	case status := <-drained:
		t.Errorf("the drain = %d while a request is in flight", status)
	case <-time.After(20 * time.Millisecond):
	}
	f.Release()
	if status := <-drained; status != http.StatusOK {
		t.Errorf("the drain = %d", status)
	}
	<-done
}
