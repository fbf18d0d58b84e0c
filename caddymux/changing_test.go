package caddymux

import (
	"net/http"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
)

// A change that comes while an edited tree is on its way in would be lost with the tree that still runs.
func TestAChangeDuringTheReloadOfAnEditedTreeIsRefused(t *testing.T) {
	const site = "storage_mux {\n name t\n backend a memory\n backend b memory\n}"
	c := run(t, site)
	change(t, "PATCH", "backends/a", `{"weight":3}`)
	ctx, failed := caddy.NewContext(testContext(t))
	next := opened(t, ctx, strings.Replace(site, "name t", "name t\n timeout 2s", 1))
	for _, call := range [][3]string{
		{"POST", "backends", `{"name":"x","type":"memory"}`},
		{"DELETE", "backends/a", ""},
		{"PATCH", "backends/a", `{"weight":2}`},
		{"POST", "backends/a/drain", ""},
		{"DELETE", "backends/a/drain", ""},
	} {
		if status, text := adminCall(t, call[0], adminPath+"/t/"+call[1], call[2]); status != http.StatusConflict || !strings.Contains(text, "is being loaded") {
			t.Errorf("%s %s = %d %s", call[0], call[1], status, text)
		}
	}
	wantStanding(t, "a:up w3 weight, b:up w1")
	next.release()
	failed() // that config is not to be
	change(t, "PATCH", "backends/a", `{"weight":2}`)
	c.load(strings.Replace(site, "name t", "name t\n timeout 3s", 1))
	change(t, "POST", "backends", `{"name":"x","type":"memory"}`)
	wantStanding(t, "a:up w2 weight, b:up w1, x:up w1 added")
}

// opened is the open tree of a handler that is of a config which does not run.
func opened(t *testing.T, ctx caddy.Context, directive string) *tree {
	t.Helper()
	h := provisionedIn(t, ctx, directive)
	one, err := h.tree.acquire()
	if err != nil {
		t.Fatal(err)
	}
	return one
}

const withStorage = "storage_mux {\n name t\n backend a memory\n backend b memory\n backend c memory\n}"

// A tree may have lost its first backend before it becomes a certificate storage: a place that nobody can reach keeps no locks.
func TestLocksAreNotPlacedOnARemovedBackend(t *testing.T) {
	run(t, withStorage)
	change(t, "DELETE", "backends/a", "")
	ctx, unload := caddy.NewContext(testContext(t))
	s, err := certStorage(t, ctx, withStorage)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Lock(t.Context(), "x"); err != nil || s.tree.locks.place.name != "b" {
		t.Errorf("Lock = %v, on %q, want b", err, s.tree.locks.place.name)
	}
	wantGuarded(t, "b")
	unload()
	wantGuarded(t, "b") // as long as a lock is held there
	if err := s.Unlock(t.Context(), "x"); err != nil {
		t.Error(err)
	}
	change(t, "DELETE", "backends/b", "", "POST", "backends", `{"name":"a","type":"memory","max_size":1000}`)
	again := newCertStorage(t, withStorage)
	if err := again.Lock(t.Context(), "x"); err != nil || again.tree.locks.place.name != "c" {
		t.Errorf("Lock = %v, on %q, want c", err, again.tree.locks.place.name)
	}
	wantGuarded(t, "c")
	if err := again.Unlock(t.Context(), "x"); err != nil {
		t.Error(err)
	}
}

// Of a storage that is unloaded, the next lock finds another place if the first one was removed.
func TestLocksMoveOnFromABackendThatWasRemoved(t *testing.T) {
	run(t, withStorage)
	ctx, unload := caddy.NewContext(testContext(t))
	s, err := certStorage(t, ctx, withStorage)
	if err != nil {
		t.Fatal(err)
	}
	unload()
	change(t, "DELETE", "backends/a", "")
	if err := s.Lock(t.Context(), "x"); err != nil || s.tree.locks.place.name != "b" {
		t.Errorf("Lock = %v, on %q, want b", err, s.tree.locks.place.name)
	}
	if err := s.Unlock(t.Context(), "x"); err != nil {
		t.Error(err)
	}
}

func wantGuarded(t *testing.T, backend string) {
	t.Helper()
	if status, text := adminCall(t, "DELETE", adminPath+"/t/backends/"+backend, ""); status != http.StatusConflict || !strings.Contains(text, errGuarded.Error()) {
		t.Errorf("removing %s = %d %s, want a conflict", backend, status, text)
	}
}

const publicBackend = `{"name":"%","type":"bunny","zone":"zone","region":"de","access_key":"k","pull_zone":"https://h"}`

// What is added before a tree becomes a certificate storage is checked when it becomes one.
func TestAPublicBackendThatWasAddedBeforeKeepsACertificateStorageOut(t *testing.T) {
	run(t, withStorage)
	change(t, "POST", "backends", strings.Replace(publicBackend, "%", "z", 1))
	if _, err := certStorage(t, testContext(t), withStorage); err == nil || !strings.Contains(err.Error(), `tree "t": backend "z": the content delivery network`) {
		t.Errorf("the certificate storage: %v", err)
	}
	change(t, "DELETE", "backends/z", "")
	newCertStorage(t, withStorage)
}

// Nor does it come in by trees that a certificate storage uses, or that use one.
func TestNoPublicBackendReachesACertificateStorageByOtherTrees(t *testing.T) {
	c := idle(t)
	config, err := adapt(t, strings.Replace(strings.Replace(c.config("storage_mux {\n use user\n}"), `storage file_system "`+c.dir+`/caddy"`, "storage storage_mux t", 1), "{\n",
		"{\nstorage_mux t {\n backend a use inner\n}\nstorage_mux inner memory: memory:\nstorage_mux user {\n backend x use inner\n}\nstorage_mux other memory:\nstorage_mux public memory:\n", 1))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.give(config); err != nil {
		t.Fatal(err)
	}
	call := func(method, path, body string, status int, words string) {
		t.Helper()
		if got, text := adminCall(t, method, adminPath+path, body); got != status || !strings.Contains(text, words) {
			t.Errorf("%s %s %s = %d %s, want %d %s", method, path, body, got, text, status, words)
		}
	}
	add := func(tree, name string, status int, words string) {
		t.Helper()
		call("POST", "/"+tree+"/backends", strings.Replace(publicBackend, "%", name, 1), status, words)
	}
	add("inner", "z", http.StatusBadRequest, "private keys")
	add("user", "x.z", http.StatusBadRequest, "private keys")
	add("user", "z", http.StatusOK, `"z"`)
	add("public", "z", http.StatusOK, `"z"`)
	call("POST", "/t/backends", `{"name":"y","type":"use","tree":"public"}`, http.StatusBadRequest, "private keys")
	call("POST", "/user/backends", `{"name":"x.y","type":"use","tree":"public"}`, http.StatusBadRequest, "private keys")
	call("POST", "/t/backends", `{"name":"y","type":"use","tree":"other"}`, http.StatusOK, `"y"`)
	add("other", "z", http.StatusBadRequest, "private keys")
	call("DELETE", "/t/backends/y", "", http.StatusOK, "")
	add("other", "z", http.StatusOK, `"z"`)
	// The backend with the locks is guarded in the same way.
	call("DELETE", "/user/backends/x.memory", "", http.StatusConflict, errGuarded.Error())
	call("DELETE", "/inner/backends/memory", "", http.StatusConflict, errGuarded.Error())
	call("DELETE", "/inner/backends/memory-2", "", http.StatusOK, "")
}

// Their place does not change at run time, at any depth.
func TestNoBackendWithLocksIsAddedAtRunTime(t *testing.T) {
	run(t, withStorage)
	for body, want := range map[string]string{
		`{"name":"x","type":"memory","locks":true}`:                                                                               `backend "x": locks: `,
		`{"name":"x","type":"mux","backends":[{"name":"m","type":"memory","locks":true}]}`:                                        `backend "x.m": locks: `,
		`{"name":"x","type":"mux","backends":[{"name":"y","type":"mux","backends":[{"name":"m","type":"memory","locks":true}]}]}`: `backend "x.y.m": locks: `,
	} {
		if status, text := adminCall(t, "POST", adminPath+"/t/backends", body); status != http.StatusBadRequest || !strings.Contains(text, want) {
			t.Errorf("%s = %d %s, want %s", body, status, text, want)
		}
	}
}
