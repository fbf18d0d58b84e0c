package caddymux

import (
	"bytes"
	"fmt"
	"math/big"
	"math/rand/v2"
	"mime"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/google/go-cmp/cmp"

	"github.com/suaveplan/caddy-storage-mux/internal/oracles"
	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// oracle is one object, served by a handler and by http.ServeContent.
type oracle struct {
	h    *Handler
	body string
	info muxcore.Info
}

func newOracle(t testing.TB, body string) *oracle {
	t.Helper()
	h := provisioned(t, "storage_mux memory:")
	tr, err := h.tree.acquire()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tr.release)
	put, err := tr.store.Put(t.Context(), "x.txt", strings.NewReader(body), int64(len(body)), muxcore.PutOptions{
		ModTime: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC),
	})
	if err != nil {
		t.Fatal(err)
	}
	return &oracle{h, body, put.Info}
}

// compared is what both must agree on.
type compared struct {
	Status int
	Header http.Header
	Body   string
}

// fields that net/http sets for what it serves.
var served = []string{"Accept-Ranges", "Content-Length", "Content-Range", "Content-Type", "Etag", "Last-Modified"}

func (o *oracle) ours(t testing.TB, r *http.Request) compared {
	t.Helper()
	w := httptest.NewRecorder()
	err := o.h.ServeHTTP(w, r, caddyhttp.HandlerFunc(func(http.ResponseWriter, *http.Request) error { return nil }))
	if err != nil {
		var herr caddyhttp.HandlerError
		if !asHandlerError(err, &herr) {
			t.Fatalf("ServeHTTP = %v, want a Caddy error", err)
		}
		w.Code = herr.StatusCode
	}
	return reduced(t, w)
}

func (o *oracle) theirs(t testing.TB, r *http.Request) compared {
	t.Helper()
	w := httptest.NewRecorder()
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Etag", o.info.ETag)
	http.ServeContent(w, r, "x.txt", o.info.ModTime, strings.NewReader(o.body))
	return reduced(t, w)
}

func asHandlerError(err error, into *caddyhttp.HandlerError) bool {
	herr, ok := err.(caddyhttp.HandlerError) //nolint:errorlint // Caddy looks at the outermost as well
	*into = herr
	return ok
}

// reduced leaves out error pages, and boundaries.
func reduced(t testing.TB, w *httptest.ResponseRecorder) compared {
	t.Helper()
	c := compared{Status: w.Code, Header: make(http.Header)}
	if w.Code >= 400 {
		for _, name := range []string{"Content-Range", "Etag", "Last-Modified"} {
			if v := w.Header()[name]; len(v) > 0 {
				c.Header[name] = v
			}
		}
		return c
	}
	for _, name := range served {
		if v := w.Header()[name]; len(v) > 0 {
			c.Header[name] = v
		}
	}
	c.Body = w.Body.String()
	kind, params, err := mime.ParseMediaType(c.Header.Get("Content-Type"))
	if err == nil && kind == "multipart/byteranges" {
		if n, err := strconv.Atoi(c.Header.Get("Content-Length")); c.Body != "" && (err != nil || n != len(c.Body)) {
			t.Errorf("Content-Length = %s, body has %d bytes", c.Header.Get("Content-Length"), len(c.Body))
		}
		c.Header.Set("Content-Type", kind)
		c.Header.Del("Content-Length") // boundaries differ in length
		if c.Body != "" {
			c.Body = oracles.Parts(t, c.Body, params["boundary"])
		}
	}
	return c
}

// agree asks both the same.
func (o *oracle) agree(t testing.TB, method string, fields ...string) {
	t.Helper()
	r := request(t, method, "/x.txt", nil)
	for i := 0; i < len(fields); i += 2 {
		value := strings.ReplaceAll(fields[i+1], "{etag}", o.info.ETag)
		value = strings.ReplaceAll(value, "{date}", o.info.ModTime.Format(http.TimeFormat))
		r.Header.Add(fields[i], value)
	}
	if diff := cmp.Diff(o.theirs(t, r), o.ours(t, r)); diff != "" {
		t.Errorf("%s %q (-http.ServeContent +storage_mux):\n%s", method, fields, diff)
	}
}

const alphabet = oracles.Alphabet

func TestWellFormedRangesAndPreconditionsAgreeWithServeContent(t *testing.T) {
	o := newOracle(t, alphabet)
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		o.agree(t, method)
		for _, v := range oracles.Ranges {
			o.agree(t, method, "Range", v)
		}
		for _, cond := range oracles.Conditions {
			o.agree(t, method, cond...)
			o.agree(t, method, append([]string{"Range", "bytes=5-9"}, cond...)...)
			o.agree(t, method, append([]string{"Range", "bytes=5-9,11-12"}, cond...)...)
			o.agree(t, method, append([]string{"Range", "bytes=0-"}, cond...)...)
		}
	}
}

func TestRangesOfAnEmptyObjectAgreeWithServeContent(t *testing.T) {
	o := newOracle(t, "")
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		for _, v := range []string{"bytes=0-", "bytes=0-0", "bytes=5-9", "bytes=5-9,11-12"} {
			o.agree(t, method, "Range", v)
		}
		o.agree(t, method, "If-None-Match", "*")
		o.agree(t, method, "If-Match", `"other"`)
	}
}

func TestMalformedRangesAreIgnored(t *testing.T) {
	o := newOracle(t, alphabet)
	for _, v := range oracles.Malformed {
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			r := request(t, method, "/x.txt", nil)
			r.Header.Set("Range", v)
			if got := o.ours(t, r); got.Status != http.StatusOK || got.Header.Get("Content-Length") != "26" {
				t.Errorf("%s with Range: %q = %d %v, want 200 and the whole", method, v, got.Status, got.Header)
			}
		}
	}
}

// What is well-formed by RFC 9110, and read otherwise by net/http: a suffix of no bytes, numbers past 63 bits, and the
// unit in capitals.
func TestRangesThatServeContentReadsOtherwise(t *testing.T) {
	o := newOracle(t, alphabet)
	for v, want := range map[string]string{
		"bytes=-0":                       "416 bytes */26",
		"bytes=-0,-0":                    "416 bytes */26",
		"bytes=-0,0-1":                   "206 bytes 0-1/26",
		"bytes=99999999999999999999-":    "416 bytes */26",
		"bytes=3-99999999999999999999":   "206 bytes 3-25/26",
		"bytes=-99999999999999999999999": "206 bytes 0-25/26",
		"BYTES=0-1":                      "206 bytes 0-1/26",
	} {
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			r := request(t, method, "/x.txt", nil)
			r.Header.Set("Range", v)
			got := o.ours(t, r)
			if text := fmt.Sprint(got.Status, " ", got.Header.Get("Content-Range")); text != want {
				t.Errorf("%s with Range: %q = %s, want %s", method, v, text, want)
			}
		}
	}
}

// misplaced tells whether a range has a last byte before its first, or one that is none. net/http overlooks that where the
// first lies past the end.
func misplaced(field string) bool {
	for spec := range strings.SplitSeq(strings.TrimPrefix(field, "bytes="), ",") {
		first, last, _ := strings.Cut(textproto.TrimString(spec), "-")
		from, ok := new(big.Int).SetString(first, 10)
		if !ok || last == "" {
			continue
		}
		if to, ok := new(big.Int).SetString(last, 10); !ok || to.Cmp(from) < 0 || strings.Trim(last, "0123456789") != "" {
			return true
		}
	}
	return false
}

func FuzzServeRange(f *testing.F) {
	for _, v := range oracles.Ranges {
		f.Add(v, "", true)
	}
	f.Add("bytes=0-3", "{etag}", false)
	f.Add("bytes=-0", `"x"`, true)
	o := newOracle(f, alphabet)
	f.Fuzz(func(t *testing.T, field, ifRange string, get bool) {
		method := http.MethodHead
		if get {
			method = http.MethodGet
		}
		r := request(t, method, "/x.txt", nil)
		r.Header.Set("Range", field)
		if ifRange != "" {
			r.Header.Set("If-Range", strings.ReplaceAll(ifRange, "{etag}", o.info.ETag))
		}
		ours := o.ours(t, r)
		if misplaced(field) {
			r.Header.Del("Range") // it is ignored
		}
		theirs := o.theirs(t, r)
		if theirs.Status == http.StatusRequestedRangeNotSatisfiable && theirs.Header.Get("Content-Range") == "" {
			// To net/http it is malformed. To us too, or it is one of the forms above; never an error of another kind.
			if ours.Status != http.StatusOK && ours.Status != http.StatusPartialContent && ours.Status != http.StatusRequestedRangeNotSatisfiable {
				t.Fatalf("Range: %q = %d", field, ours.Status)
			}
			return
		}
		if bytes.Contains([]byte(strings.ToLower(field)), []byte("-0")) || !strings.HasPrefix(field, "bytes=") || strings.ContainsAny(field, " \t") {
			return // read otherwise on purpose
		}
		if diff := cmp.Diff(theirs, ours); diff != "" {
			t.Fatalf("%s Range: %q If-Range: %q (-http.ServeContent +storage_mux):\n%s", method, field, ifRange, diff)
		}
	})
}

// TestRandomRangesAgreeWithServeContent is the fuzz test without its engine, which would have to rebuild all of Caddy.
func TestRandomRangesAgreeWithServeContent(t *testing.T) {
	o := newOracle(t, alphabet)
	rnd := rand.New(rand.NewPCG(1, 2))
	number := func() string { return strconv.Itoa(1 + rnd.IntN(40)) }
	for range 3000 {
		var specs []string
		for range 1 + rnd.IntN(4) {
			// Never inverted: net/http overlooks that where the first byte is past the end.
			from := 1 + rnd.IntN(30)
			specs = append(specs, []string{fmt.Sprintf("%d-%d", from, from+rnd.IntN(9)), number() + "-", "-" + number(), ""}[rnd.IntN(4)])
		}
		r := request(t, []string{http.MethodGet, http.MethodHead}[rnd.IntN(2)], "/x.txt", nil)
		r.Header.Set("Range", "bytes="+strings.Join(specs, ","))
		theirs, ours := o.theirs(t, r), o.ours(t, r)
		if diff := cmp.Diff(theirs, ours); diff != "" {
			t.Fatalf("%s Range: %q (-http.ServeContent +storage_mux):\n%s", r.Method, r.Header.Get("Range"), diff)
		}
	}
}
