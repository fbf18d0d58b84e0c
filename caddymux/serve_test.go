package caddymux

import (
	"net/http"
	"strings"
	"testing"
)

func TestAnUploadIsReadBack(t *testing.T) {
	c := run(t, "storage_mux memory: {\n writable\n list\n}")
	put := c.expect(http.StatusCreated, "PUT", "/a/b.txt", "hello", "Cache-Control", "max-age=5", "X-Meta-Colour", "Red")
	etag := put.header.Get("ETag")
	if etag == "" {
		t.Error("PUT gave no ETag")
	}
	got := c.expect(http.StatusOK, "GET", "/a/b.txt", "")
	if got.body != "hello" {
		t.Errorf("body = %q, want hello", got.body)
	}
	for name, want := range map[string]string{
		"ETag": etag, "Cache-Control": "max-age=5", "X-Meta-Colour": "Red", "Content-Length": "5", "Accept-Ranges": "bytes",
	} {
		if got.header.Get(name) != want {
			t.Errorf("%s = %q, want %q", name, got.header.Get(name), want)
		}
	}
	if ctype := got.header.Get("Content-Type"); !strings.HasPrefix(ctype, "text/plain") {
		t.Errorf("Content-Type = %q, want that of the extension", ctype)
	}
	c.expect(http.StatusNoContent, "PUT", "/a/b.txt", "again")
	c.expect(http.StatusNoContent, "DELETE", "/a/b.txt", "")
	c.expect(http.StatusNotFound, "GET", "/a/b.txt", "")
	c.expect(http.StatusNotFound, "DELETE", "/a/b.txt", "")
}
