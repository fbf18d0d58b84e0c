package integration_test

import (
	"bytes"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/integration/rig"
	"github.com/suaveplan/caddy-storage-mux/internal/oracles"
)

// The sites of the comparison: the same file by Caddy's own file_server, as the
// oracle, and by storage_mux over a directory, over HTTP and out of memory.
const oracleConfig = `
http://:{$PORT} {
	root {$DIR}/d
	file_server
}
http://:{$PORT2} {
	storage_mux {
		backend d file {$DIR}/d
	}
}
http://:{$PORT3} {
	storage_mux {
		backend h http http://127.0.0.1:{$PORT}
	}
}
http://:{$PORT4} {
	storage_mux {
		backend m memory
		writable
	}
}
`

// oracle starts the sites over the given files; names must end in .txt.
func oracle(t *testing.T, files map[string][]byte) (want *rig.Caddy, stores []store) {
	t.Helper()
	dir := t.TempDir()
	for name, body := range files {
		writeFile(t, dir, "d/"+name, body)
	}
	c := rig.Start(t, oracleConfig, rig.InDir(dir))
	memory := c.On("PORT4")
	for name, body := range files {
		r := memory.Put("/"+name, string(body), "Content-Type", "text/plain; charset=utf-8")
		wantStatus(t, "PUT /"+name, r, http.StatusCreated)
	}
	return c, []store{
		{Caddy: c.On("PORT2"), name: "file"},
		{Caddy: c.On("PORT3"), name: "http"},
		{Caddy: memory, name: "memory"},
	}
}

// facts are what two servers of one file must agree on.
type facts struct {
	Status  int
	Headers map[string]string // of validators: only whether they are there
	Body    string
}

var comparedHeaders = []string{
	"Accept-Ranges", "Content-Encoding", "Content-Length", "Content-Range", "Content-Type", "Etag", "Last-Modified", "Vary",
}

// comparedInErrors leaves out what belongs to error pages, which are Caddy's own where the answer is ours.
var comparedInErrors = []string{"Content-Range", "Etag", "Last-Modified"}

// factsOf reduces an answer to what can be compared.
func factsOf(t *testing.T, r rig.Response) facts {
	t.Helper()
	f := facts{Status: r.Status, Headers: make(map[string]string)}
	if err := r.Cause(); err != nil {
		t.Errorf("the body broke off: %v", err)
	}
	compared := comparedHeaders
	if r.Status >= 400 {
		compared = comparedInErrors
	}
	for _, name := range compared {
		v := r.Header.Get(name)
		switch {
		case v == "":
		case name == "Etag" || name == "Last-Modified":
			f.Headers[name] = "is there"
		case name == "Content-Type" && strings.HasPrefix(v, "multipart/"):
			f.Headers[name] = "multipart/byteranges"
			f.Body = parts(t, v, r.Body)
		case name == "Content-Length" && strings.HasPrefix(r.Header.Get("Content-Type"), "multipart/"):
		default:
			f.Headers[name] = v
		}
	}
	if f.Body == "" && r.Status < 400 {
		f.Body = string(r.Body)
	}
	return f
}

// parts lists the ranges of a multipart body, without its boundary.
func parts(t *testing.T, contentType string, body []byte) string {
	t.Helper()
	if len(body) == 0 {
		return "" // HEAD
	}
	_, params, err := mime.ParseMediaType(contentType)
	if err != nil {
		t.Errorf("Content-Type %q: %v", contentType, err)
		return ""
	}
	return oracles.Parts(t, string(body), params["boundary"])
}

// agree asks both servers the same and compares the facts.
func agree(t *testing.T, want *rig.Caddy, got store, path, method string, header []string) {
	t.Helper()
	w := factsOf(t, want.Do(rig.Request{Method: method, Path: path, Header: filled(want, path, header)}))
	g := factsOf(t, got.Do(rig.Request{Method: method, Path: path, Header: filled(got.Caddy, path, header)}))
	if ws, gs := fmt.Sprintf("%+v", w), fmt.Sprintf("%+v", g); ws != gs {
		t.Errorf("%s %s %q\n%s: %s\nfile_server: %s", method, path, header, got.name, gs, ws)
	}
}

// filled puts a server's own validators into header values.
func filled(c *rig.Caddy, path string, header []string) []string {
	var out []string
	var r rig.Response
	for _, v := range header {
		if strings.ContainsAny(v, "{}") && r.Status == 0 {
			r = c.Head(path)
		}
		v = strings.ReplaceAll(v, "{etag}", r.Header.Get("ETag"))
		out = append(out, strings.ReplaceAll(v, "{date}", r.Header.Get("Last-Modified")))
	}
	return out
}

const alphabet = oracles.Alphabet

func TestRangesAgreeWithFileServer(t *testing.T) {
	t.Parallel()
	want, all := oracle(t, map[string][]byte{"x.txt": []byte(alphabet)})
	eachStore(t, all, func(t *testing.T, s store) {
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			agree(t, want, s, "/x.txt", method, nil)
			agree(t, want, s, "/missing.txt", method, nil)
			for _, v := range oracles.Ranges {
				agree(t, want, s, "/x.txt", method, []string{"Range", v})
			}
		}
	})
}

func TestPreconditionsAgreeWithFileServer(t *testing.T) {
	t.Parallel()
	want, all := oracle(t, map[string][]byte{"x.txt": []byte(alphabet)})
	eachStore(t, all, func(t *testing.T, s store) {
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			for _, cond := range oracles.Conditions {
				agree(t, want, s, "/x.txt", method, cond)
				agree(t, want, s, "/x.txt", method, append([]string{"Range", "bytes=5-9"}, cond...))
			}
		}
	})
}

func TestMalformedRangesAreIgnored(t *testing.T) {
	t.Parallel()
	_, all := oracle(t, map[string][]byte{"x.txt": []byte(alphabet)})
	eachStore(t, all, func(t *testing.T, s store) {
		for _, v := range oracles.Malformed {
			wantBody(t, fmt.Sprintf("GET with Range: %q", v), s.Get("/x.txt", "Range", v), http.StatusOK, []byte(alphabet))
			wantStatus(t, fmt.Sprintf("HEAD with Range: %q", v), s.Head("/x.txt", "Range", v), http.StatusOK)
		}
	})
}

// An empty object with a range is 200, as net/http has it, and never a failure.
func TestCase053RangesOfAnEmptyObject(t *testing.T) {
	t.Parallel()
	want, all := oracle(t, map[string][]byte{"empty.txt": nil})
	eachStore(t, all, func(t *testing.T, s store) {
		for _, v := range []string{"bytes=0-", "bytes=0-0", "bytes=5-9"} {
			agree(t, want, s, "/empty.txt", http.MethodGet, []string{"Range", v})
			agree(t, want, s, "/empty.txt", http.MethodHead, []string{"Range", v})
		}
		r := s.Get("/empty.txt")
		wantBody(t, "GET of the empty object", r, http.StatusOK, nil)
		if r.Length != 0 {
			t.Errorf("Content-Length = %d, want 0", r.Length)
		}
	})
}

func TestCase100ARangeThatReachesPastTheEndIsClamped(t *testing.T) {
	t.Parallel()
	_, all := oracle(t, map[string][]byte{"ten.txt": []byte("0123456789")})
	eachStore(t, all, func(t *testing.T, s store) {
		r := s.Get("/ten.txt", "Range", "bytes=0-999999")
		wantBody(t, "GET", r, http.StatusPartialContent, []byte("0123456789"))
		if v := r.Header.Get("Content-Range"); v != "bytes 0-9/10" {
			t.Errorf("Content-Range = %q", v)
		}
	})
}

// Positions beyond 64 bits are well formed; net/http, the oracle elsewhere, takes them for nonsense.
func TestRangesWithHugePositions(t *testing.T) {
	t.Parallel()
	_, all := oracle(t, map[string][]byte{"x.txt": []byte(alphabet)})
	eachStore(t, all, func(t *testing.T, s store) {
		r := s.Get("/x.txt", "Range", "bytes=99999999999999999999-")
		wantStatus(t, "GET from beyond the end", r, http.StatusRequestedRangeNotSatisfiable)
		if got := r.Header.Get("Content-Range"); got != "bytes */26" {
			t.Errorf("Content-Range = %q", got)
		}
		wantBody(t, "GET up to beyond the end", s.Get("/x.txt", "Range", "bytes=5-99999999999999999999"), http.StatusPartialContent, []byte(alphabet[5:]))
	})
}

func TestCase055HeadHasTheHeadersOfGet(t *testing.T) {
	t.Parallel()
	_, all := oracle(t, map[string][]byte{"x.txt": someBytes(100_000), "empty.txt": nil})
	eachStore(t, all, func(t *testing.T, s store) {
		for _, path := range []string{"/x.txt", "/empty.txt", "/missing.txt"} {
			for _, header := range [][]string{nil, {"Range", "bytes=1-5"}, {"If-None-Match", "*"}} {
				get, head := s.Get(path, header...), s.Head(path, header...)
				for _, h := range []http.Header{get.Header, head.Header} {
					h.Del("Date")
					if get.Status >= 400 { // of an error page net/http declares the length for GET alone
						h.Del("Content-Length")
					}
				}
				if fmt.Sprint(get.Status, get.Header) != fmt.Sprint(head.Status, head.Header) {
					t.Errorf("%s %v\nHEAD = %d %v\nGET  = %d %v", path, header, head.Status, head.Header, get.Status, get.Header)
				}
			}
		}
	})
}

func TestBigObjectsAreServedWholeByEachBackend(t *testing.T) {
	t.Parallel()
	body := someBytes(9 << 20)
	_, all := oracle(t, map[string][]byte{"big.txt": body})
	eachStore(t, all, func(t *testing.T, s store) {
		wantBody(t, "GET", s.Get("/big.txt"), http.StatusOK, body)
		wantBody(t, "GET of a range", s.Get("/big.txt", "Range", "bytes=1000000-8000000"), http.StatusPartialContent, body[1_000_000:8_000_001])
	})
}

// What encode makes of our answers is what it makes of file_server's.
func TestCase050ValidatorsAndVaryUnderEncode(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFile(t, dir, "d/x.txt", bytes.Repeat([]byte("compressible "), 1000))
	c := rig.Start(t, strings.ReplaceAll(oracleConfig, "} {\n", "} {\n\tencode gzip\n"), rig.InDir(dir))
	memory := c.On("PORT4")
	memory.Put("/x.txt", strings.Repeat("compressible ", 1000), "Content-Type", "text/plain; charset=utf-8")
	for _, s := range []store{{Caddy: c.On("PORT2"), name: "file"}, {Caddy: memory, name: "memory"}} {
		for _, header := range [][]string{
			{"Accept-Encoding", "gzip"},
			{"Accept-Encoding", "gzip", "Range", "bytes=0-9"},
			{"Accept-Encoding", "gzip", "If-None-Match", "{etag}"},
			{"Accept-Encoding", "identity"},
		} {
			agree(t, c, s, "/x.txt", http.MethodGet, header)
		}
		plain := s.Get("/x.txt").Header.Get("ETag")
		coded := s.Get("/x.txt", "Accept-Encoding", "gzip").Header.Get("ETag")
		if plain == coded {
			t.Errorf("%s: the gzip-coded answer has the entity tag of the plain one, %s", s.name, plain)
		}
	}
}
