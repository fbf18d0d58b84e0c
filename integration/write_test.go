package integration_test

import (
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/integration/origin"
	"github.com/suaveplan/caddy-storage-mux/integration/rig"
)

func TestAnObjectIsWrittenReadReplacedAndDeleted(t *testing.T) {
	t.Parallel()
	eachStore(t, stores(t, ""), func(t *testing.T, s store) {
		for i, size := range []int{0, 1, 100, 100_000, 5 << 20} {
			body := string(someBytes(size))
			path := fmt.Sprintf("/dir/x%d", size)
			r := s.Put(path, body)
			wantStatus(t, "PUT of a new key", r, http.StatusCreated)
			tag := r.Header.Get("ETag")
			if !strings.HasPrefix(tag, `"`) {
				t.Errorf("ETag of the PUT = %q, want a strong one", tag)
			}
			got := s.Get(path)
			wantBody(t, "GET", got, http.StatusOK, []byte(body))
			if i > 0 && got.Length != int64(size) {
				t.Errorf("Content-Length = %d, want %d", got.Length, size)
			}
			if v := got.Header.Get("ETag"); v != tag {
				t.Errorf("ETag of the GET = %s, of the PUT %s", v, tag)
			}
			if v := got.Header.Get("Last-Modified"); v == "" {
				t.Error("no Last-Modified")
			}
			wantStatus(t, "PUT over it", s.Put(path, "second"), http.StatusNoContent)
			wantBody(t, "GET of the second", s.Get(path), http.StatusOK, []byte("second"))
			wantStatus(t, "DELETE", s.Delete(path), http.StatusNoContent)
			wantStatus(t, "DELETE of nothing", s.Delete(path), http.StatusNotFound)
			wantMissing(t, s.Caddy, path)
		}
	})
}

func TestAChunkedUploadIsStoredWhole(t *testing.T) {
	t.Parallel()
	eachStore(t, stores(t, ""), func(t *testing.T, s store) {
		for _, size := range []int{0, 10, 3 << 20} {
			body := someBytes(size)
			path := fmt.Sprintf("/x%d", size)
			r := s.Do(rig.Request{Method: http.MethodPut, Path: path, Body: io.MultiReader(strings.NewReader(string(body))), Length: -1})
			wantStatus(t, "PUT", r, http.StatusCreated)
			wantBody(t, "GET", s.Get(path), http.StatusOK, body)
		}
	})
}

func TestHeadersAndMetadataAreStoredWithTheObject(t *testing.T) {
	t.Parallel()
	header := []string{
		"Content-Type", "image/x-odd", "Cache-Control", "max-age=60, immutable", "Content-Disposition", `attachment; filename="a b.txt"`,
		"Content-Language", "de-CH", "Expires", "Fri, 01 Jan 2100 00:00:00 GMT", "X-Meta-Owner", "somebody", "X-Meta-Empty-Not", "0",
	}
	eachStore(t, keeping(stores(t, "")), func(t *testing.T, s store) {
		wantStatus(t, "PUT", s.Put("/x", "body", header...), http.StatusCreated)
		for _, r := range []rig.Response{s.Get("/x"), s.Head("/x"), s.Get("/x", "Range", "bytes=1-2")} {
			for i := 0; i < len(header); i += 2 {
				if got := r.Header.Get(header[i]); got != header[i+1] {
					t.Errorf("%s = %q, want %q", header[i], got, header[i+1])
				}
			}
		}
		// The next version keeps nothing of the one before.
		wantStatus(t, "PUT", s.Put("/x", "body", "Content-Type", "text/plain"), http.StatusNoContent)
		if got := s.Head("/x").Header.Get("X-Meta-Owner"); got != "" {
			t.Errorf("X-Meta-Owner of the version before: %q", got)
		}
		wantStatus(t, "PUT with 3 KiB of metadata", s.Put("/y", "body", "X-Meta-Big", strings.Repeat("m", 3000)), http.StatusBadRequest)
		wantMissing(t, s.Caddy, "/y")
	})
}

// Bytes and length go out as they came in: no coding is undone on the way.
func TestCase056ACodedBodyIsPassedOnAsItIs(t *testing.T) {
	t.Parallel()
	eachStore(t, keeping(stores(t, "")), func(t *testing.T, s store) {
		body := "\x1f\x8b not really gzip \x00\x01"
		wantStatus(t, "PUT", s.Put("/x.gz", body, "Content-Encoding", "gzip", "Content-Type", "text/plain"), http.StatusCreated)
		for _, accept := range []string{"gzip", "identity"} {
			r := s.Get("/x.gz", "Accept-Encoding", accept)
			wantBody(t, "GET", r, http.StatusOK, []byte(body))
			if r.Header.Get("Content-Encoding") != "gzip" || r.Length != int64(len(body)) {
				t.Errorf("Content-Encoding %q, Content-Length %d", r.Header.Get("Content-Encoding"), r.Length)
			}
		}
	})
}

func TestWithoutWritableTheHandlerOnlyReads(t *testing.T) {
	t.Parallel()
	c := rig.Start(t, `
		storage_mux {
			backend d file {$DIR}
		}`)
	writeFile(t, c.Dir, "x", []byte("body"))
	for _, method := range []string{"PUT", "DELETE", "POST", "PATCH", "OPTIONS", "PROPFIND", "BREW"} {
		r := c.Do(rig.Request{Method: method, Path: "/x"})
		wantStatus(t, method, r, http.StatusMethodNotAllowed)
		if got := r.Header.Get("Allow"); got != "GET, HEAD" {
			t.Errorf("%s: Allow = %q, want \"GET, HEAD\"", method, got)
		}
	}
	wantBody(t, "GET", c.Get("/x"), http.StatusOK, []byte("body"))
}

func TestOtherMethodsAre405OnAWritableSite(t *testing.T) {
	t.Parallel()
	eachStore(t, stores(t, ""), func(t *testing.T, s store) {
		for _, method := range []string{"POST", "PATCH", "OPTIONS", "PROPFIND", "TRACE"} {
			r := s.Do(rig.Request{Method: method, Path: "/x"})
			wantStatus(t, method, r, http.StatusMethodNotAllowed)
			if got := r.Header.Get("Allow"); got != "GET, HEAD, PUT, DELETE" {
				t.Errorf("%s: Allow = %q", method, got)
			}
		}
	})
}

func TestAnUploadLargerThanMaxSizeIs413(t *testing.T) {
	t.Parallel()
	eachStore(t, stores(t, "max_size 1KB"), func(t *testing.T, s store) {
		wantStatus(t, "PUT of 1000 bytes", s.Put("/fits", strings.Repeat("x", 1000)), http.StatusCreated)
		for name, length := range map[string]int64{"known length": 0, "chunked": -1} {
			r := s.Do(rig.Request{Method: http.MethodPut, Path: "/big", Body: strings.NewReader(strings.Repeat("x", 1001)), Length: length})
			wantStatus(t, "PUT of 1001 bytes, "+name, r, http.StatusRequestEntityTooLarge)
			wantMissing(t, s.Caddy, "/big")
		}
		// Too large by its declaration alone: answered before the body is read.
		r, err := s.Raw("PUT /big HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\nExpect: 100-continue\r\n\r\n", false)
		if err != nil || r.Status != http.StatusRequestEntityTooLarge {
			t.Errorf("PUT that waits = %d, %v, want 413", r.Status, err)
		}
	})
}

func TestDigestsAreVerified(t *testing.T) {
	t.Parallel()
	const body = "the body"
	md := md5.Sum([]byte(body))
	sha := sha256.Sum256([]byte(body))
	md5Good := base64.StdEncoding.EncodeToString(md[:])
	shaGood := "sha-256=:" + base64.StdEncoding.EncodeToString(sha[:]) + ":"
	wrong := base64.StdEncoding.EncodeToString(make([]byte, 32))
	eachStore(t, stores(t, ""), func(t *testing.T, s store) {
		for i, tt := range []struct {
			header, value string
			status        int
		}{
			{"Content-MD5", md5Good, 201},
			{"Content-MD5", wrong[:22] + "==", 400},
			{"Content-MD5", "not base64!", 400},
			{"Repr-Digest", shaGood, 201},
			{"Repr-Digest", "sha-256=:" + wrong + ":", 400},
			{"Repr-Digest", "md4=:AAAA:", 201}, // RFC 9530: an unknown algorithm is ignored
		} {
			for _, length := range []int64{0, -1} {
				path := fmt.Sprintf("/x%d%d", i, length)
				r := s.Do(rig.Request{Method: "PUT", Path: path, Header: []string{tt.header, tt.value}, Body: strings.NewReader(body), Length: length})
				wantStatus(t, fmt.Sprintf("PUT with %s: %s", tt.header, tt.value), r, tt.status)
				if tt.status == 400 {
					wantMissing(t, s.Caddy, path)
				}
			}
		}
	})
}

func TestConditionalWrites(t *testing.T) {
	t.Parallel()
	eachStore(t, conditional(stores(t, "")), func(t *testing.T, s store) {
		wantStatus(t, "PUT if it is there", s.Put("/x", "one", "If-Match", "*"), http.StatusPreconditionFailed)
		wantMissing(t, s.Caddy, "/x")
		r := s.Put("/x", "one", "If-None-Match", "*")
		wantStatus(t, "PUT if it is not there", r, http.StatusCreated)
		tag := r.Header.Get("ETag")
		wantStatus(t, "PUT if it is not there, again", s.Put("/x", "two", "If-None-Match", "*"), http.StatusPreconditionFailed)
		wantStatus(t, "PUT over another version", s.Put("/x", "two", "If-Match", `"other"`), http.StatusPreconditionFailed)
		wantBody(t, "GET", s.Get("/x"), http.StatusOK, []byte("one"))
		wantStatus(t, "PUT over this version", s.Put("/x", "two", "If-Match", tag), http.StatusNoContent)
		wantStatus(t, "PUT over a version that is gone", s.Put("/x", "three", "If-Match", tag), http.StatusPreconditionFailed)
		wantBody(t, "GET", s.Get("/x"), http.StatusOK, []byte("two"))
	})
}

// An HTTP origin that is not known to honour conditions is not trusted with them.
func TestAConditionThatNobodyCanDecideIs501(t *testing.T) {
	t.Parallel()
	f1 := origin.New(t)
	c := rig.Start(t, `
		storage_mux {
			writable
			backend f1 http {$F1}
		}`, rig.Env("F1", f1.URL()))
	wantStatus(t, "PUT", c.Put("/x", "body", "If-None-Match", "*"), http.StatusNotImplemented)
	if n := f1.Hits(http.MethodPut); n != 0 {
		t.Errorf("the origin got %d PUTs", n)
	}
}

// Row 58: the framing of S3 clients must not become part of an object.
func TestCase058AwsChunkedFramingIsRefused(t *testing.T) {
	t.Parallel()
	framed := "4;chunk-signature=0\r\nbody\r\n0;chunk-signature=0\r\n\r\n"
	eachStore(t, stores(t, ""), func(t *testing.T, s store) {
		for _, header := range [][]string{
			{"Content-Encoding", "aws-chunked"},
			{"Content-Encoding", "aws-chunked, gzip"},
			{"X-Amz-Content-Sha256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"},
			{"X-Amz-Content-Sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER"},
		} {
			wantStatus(t, fmt.Sprint("PUT with ", header), s.Put("/x", framed, header...), http.StatusNotImplemented)
			wantMissing(t, s.Caddy, "/x")
		}
	})
}

// Row 62: what the client declared and did not send is never published.
func TestCase062AShortBodyIs400AndStoresNothing(t *testing.T) {
	t.Parallel()
	half := strings.Repeat("h", 500)
	eachStore(t, stores(t, ""), func(t *testing.T, s store) {
		wantStatus(t, "PUT", s.Put("/old", "the old one"), http.StatusCreated)
		for _, path := range []string{"/new", "/old"} {
			for name, request := range map[string]string{
				"length":  "PUT " + path + " HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n" + half,
				"chunked": "PUT " + path + " HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1f4\r\n" + half + "\r\n",
				"garbage": "PUT " + path + " HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nnothex\r\n",
			} {
				r, err := s.Raw(request, true)
				if err != nil || r.Status != http.StatusBadRequest {
					t.Errorf("%s of %s = %d, %v, want 400", name, path, r.Status, err)
				}
			}
		}
		wantMissing(t, s.Caddy, "/new")
		wantBody(t, "GET of the old one", s.Get("/old"), http.StatusOK, []byte("the old one"))
		if s.origin != nil {
			if _, ok := s.origin.Object("/new"); ok {
				t.Error("the origin holds a short object")
			}
		}
		// Health is untouched: the client was at fault.
		wantStatus(t, "PUT", s.Put("/after", "body"), http.StatusCreated)
	})
}

// Row 64: the client is asked for its body only once a backend will take it.
func TestCase064ExpectContinue(t *testing.T) {
	t.Parallel()
	eachStore(t, stores(t, ""), func(t *testing.T, s store) {
		body := someBytes(1 << 20)
		r := s.Do(rig.Request{Method: http.MethodPut, Path: "/x", Header: []string{"Expect", "100-continue"}, Body: strings.NewReader(string(body))})
		wantStatus(t, "PUT", r, http.StatusCreated)
		wantBody(t, "GET", s.Get("/x"), http.StatusOK, body)
		for name, path := range map[string]string{"bad key": "/a//b", "reserved": "/.storage_mux/x"} {
			r, err := s.Raw("PUT "+path+" HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\nExpect: 100-continue\r\n\r\n", false)
			if err != nil || r.Status != http.StatusBadRequest {
				t.Errorf("%s: PUT that waits = %d, %v, want 400", name, r.Status, err)
			}
		}
	})
	f1 := origin.New(t)
	c := rig.Start(t, `
		storage_mux {
			writable
			cooldown 1h
			backend f1 http {$F1}
		}`, rig.Env("F1", f1.URL()))
	f1.Refuse()
	for i := range 2 { // found out by this very request, and known before
		raw := "PUT /x HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\nExpect: 100-continue\r\n\r\n"
		if r, err := c.Raw(raw, false); err != nil || r.Status != http.StatusServiceUnavailable {
			t.Errorf("PUT %d with all backends down = %d, %v, want 503 without the body", i, r.Status, err)
		}
		c.Get("/x")
	}
}

// Row 65: an origin that answers without reading the body does not hang the client.
func TestCase065AnEarlyRefusalReachesTheClient(t *testing.T) {
	t.Parallel()
	f1 := origin.New(t)
	f1.Script(origin.Faults{Early: http.StatusRequestEntityTooLarge})
	c := rig.Start(t, `
		storage_mux {
			writable
			timeout 10s
			backend f1 http {$F1}
		}`, rig.Env("F1", f1.URL()))
	r := c.Do(rig.Request{Method: http.MethodPut, Path: "/x", Body: io.LimitReader(zeros{}, 50<<20), Length: 50 << 20})
	wantStatus(t, "PUT of 50 MiB", r, http.StatusRequestEntityTooLarge)
}

// zeros is an endless body.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func TestAWriteGoesToTheFirstBackendThatTakesIt(t *testing.T) {
	t.Parallel()
	c, f1, f2 := twoOrigins(t, []byte("body"), "writable\ncooldown 1h")
	wantStatus(t, "PUT", c.Put("/a", "one"), http.StatusCreated)
	if got := fmt.Sprint(f1.Paths(), f2.Paths()); got != "[/a /x] [/x]" {
		t.Errorf("after the PUT the origins hold %s", got)
	}
	f1.Refuse()
	r := c.Put("/b", "two")
	if r.Status != http.StatusCreated {
		t.Errorf("PUT with the first origin down = %d, want 201", r.Status)
	}
	if obj, ok := f2.Object("/b"); !ok || string(obj.Body) != "two" {
		t.Errorf("the second origin holds %q, %v", obj.Body, ok)
	}
}

func TestAWriteSkipsReadOnlyBackends(t *testing.T) {
	t.Parallel()
	f1, f2 := origin.New(t), origin.New(t)
	c := rig.Start(t, `
		storage_mux {
			writable
			backend f1 http {$F1} {
				read_only
			}
			backend f2 http {$F2}
		}`, rig.Env("F1", f1.URL()), rig.Env("F2", f2.URL()))
	wantStatus(t, "PUT", c.Put("/a", "one"), http.StatusCreated)
	if f1.Hits("PUT") != 0 || len(f2.Paths()) != 1 {
		t.Errorf("the read-only origin got %d PUTs, the other holds %v", f1.Hits("PUT"), f2.Paths())
	}
}
