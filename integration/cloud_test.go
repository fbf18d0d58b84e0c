package integration_test

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/integration/rig"
)

// What the tests of real cloud stores share.

// opened closes a store when the test ends.
func opened[S io.Closer](tb testing.TB, store S, err error) S {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { store.Close() })
	return store
}

// fields are what an object keeps besides its body.
var fields = []string{
	"Content-Type", "text/x-odd", "Cache-Control", "max-age=5", "Content-Disposition", `attachment; filename="a"`, "Content-Language", "tlh", "X-Meta-Who", "me",
}

// servedWell goes through what broke elsewhere: no validators, ranges of nothing and past the end, HEAD unlike GET, keys encoded
// twice or normalized, and, unless the backend is a bare one that keeps no fields, fields that were lost and bodies decompressed on
// the way. It leaves /ten and /empty behind, and gives the ETag of /ten.
func servedWell(t *testing.T, c *rig.Caddy, bare bool) string {
	t.Helper()
	wantStatus(t, "PUT", c.Put("/ten", "0123456789", fields...), http.StatusCreated)
	first, again, head := c.Get("/ten"), c.Get("/ten"), c.Head("/ten")
	for i := 0; i < len(fields) && !bare; i += 2 {
		if got := first.Header.Get(fields[i]); got != fields[i+1] {
			t.Errorf("%s comes back as %q, want %q", fields[i], got, fields[i+1])
		}
	}
	if !bare {
		const coded = "\x1f\x8b\x08\x00 not quite gzip"
		wantStatus(t, "PUT of a coded body", c.Put("/a.gz", coded, "Content-Encoding", "gzip"), http.StatusCreated)
		r := c.Get("/a.gz", "Accept-Encoding", "gzip")
		wantBody(t, "GET of a coded body", r, http.StatusOK, []byte(coded))
		if got := r.Header.Get("Content-Encoding"); got != "gzip" {
			t.Errorf("Content-Encoding is %q, want gzip", got)
		}
	}
	wantBody(t, "GET", first, http.StatusOK, []byte("0123456789"))
	if tag := first.Header.Get("ETag"); tag == "" || tag != again.Header.Get("ETag") {
		t.Errorf("ETags of two GETs: %q and %q", tag, again.Header.Get("ETag"))
	}
	for name := range first.Header {
		if got, want := head.Header.Get(name), first.Header.Get(name); got != want && name != "Date" {
			t.Errorf("HEAD has %s %q, GET has %q", name, got, want)
		}
	}
	wantBody(t, "GET past the end", c.Get("/ten", "Range", "bytes=0-999999"), http.StatusPartialContent, []byte("0123456789"))
	wantBody(t, "GET of the end", c.Get("/ten", "Range", "bytes=-3"), http.StatusPartialContent, []byte("789"))
	wantStatus(t, "GET from beyond", c.Get("/ten", "Range", "bytes=10-"), http.StatusRequestedRangeNotSatisfiable)
	wantStatus(t, "GET if it is another", c.Get("/ten", "If-None-Match", first.Header.Get("ETag")), http.StatusNotModified)
	wantBody(t, "GET if it is still that", c.Get("/ten", "Range", "bytes=8-", "If-Range", first.Header.Get("ETag")), http.StatusPartialContent, []byte("89"))
	wantBody(t, "GET if it were another", c.Get("/ten", "Range", "bytes=8-", "If-Range", `"other"`), http.StatusOK, []byte("0123456789"))

	wantStatus(t, "PUT of nothing", c.Put("/empty", ""), http.StatusCreated)
	wantBody(t, "GET of nothing", c.Get("/empty"), http.StatusOK, nil)
	wantBody(t, "GET of a part of nothing, as net/http has it", c.Get("/empty", "Range", "bytes=0-0"), http.StatusOK, nil)
	wantStatus(t, "PUT of a composed key", c.Put("/caf%C3%A9", "x"), http.StatusCreated)
	wantMissing(t, c, "/cafe%CC%81")
	wantMissing(t, c, "/CAF%C3%A9")
	keys := []string{"a b", "a+b", "a%2Bb", "q?x#y&z=1", "é/😀"}
	for _, key := range keys {
		path := "/odd/" + strings.NewReplacer("%", "%25", "?", "%3F", "#", "%23", " ", "%20").Replace(key)
		wantStatus(t, "PUT "+path, c.Put(path, key), http.StatusCreated)
		wantBody(t, "GET "+path, c.Get(path), http.StatusOK, []byte(key))
	}
	var listed []string
	for _, key := range list(t, c, "/odd/?list").keys() {
		listed = append(listed, strings.TrimPrefix(key, "odd/"))
	}
	slices.Sort(keys)
	if !slices.Equal(listed, keys) {
		t.Errorf("the list has %q, want %q", listed, keys)
	}
	return first.Header.Get("ETag")
}

// brokenReader is a body that breaks off.
type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
