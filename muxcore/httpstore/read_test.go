package httpstore_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/httpstore"
)

func TestKeysAreEncodedExactlyOnce(t *testing.T) {
	var line atomic.Value
	s := open(t, httpstore.Settings{BaseURL: rawOrigin(t, func(conn net.Conn, r *http.Request) bool {
		line.Store(r.RequestURI)
		_, _ = io.WriteString(conn, sized(200, "", "x"))
		return true
	}) + "/b%2Fc/d%20e"})
	for key, want := range map[string]string{
		"plain.txt":       "plain.txt",
		"a b":             "a%20b",
		"a+b":             "a%2Bb",
		"a%2Bb":           "a%252Bb",
		"100%":            "100%25",
		"q?x=1&y=2#z":     "q%3Fx=1&y=2%23z",
		"semi;colon":      "semi%3Bcolon",
		"@scope/pkg@1.2":  "@scope/pkg@1.2",
		"~!$&'()*,=:-._":  "~!$&'()*,=:-._",
		"日/😀":             "%E6%97%A5/%F0%9F%98%80",
		`"<>[]{}|^` + "`": "%22%3C%3E%5B%5D%7B%7D%7C%5E%60",
		"caf\u00e9":       "caf%C3%A9",
		"cafe\u0301":      "cafe%CC%81",
	} {
		if _, _, err := read(t, s, key, muxcore.GetOptions{}); err != nil {
			t.Errorf("Get(%q) = %v", key, err)
		}
		if got := line.Load(); got != "/b%2Fc/d%20e/"+want {
			t.Errorf("Get(%q) asks for %s, want /b%%2Fc/d%%20e/%s", key, got, want)
		}
	}
}

func TestEveryStatusHasItsCode(t *testing.T) {
	type want struct {
		code  muxcore.Code
		class muxcore.Class
	}
	denied := want{muxcore.CodeDenied, muxcore.ClassDenied}
	transient := want{muxcore.CodeUnavailable, muxcore.ClassTransient}
	absent := want{muxcore.CodeKeyNotFound, muxcore.ClassSemantic}
	semantic := want{muxcore.CodeUnavailable, muxcore.ClassSemantic}
	unsupported := want{muxcore.CodeUnsupported, muxcore.ClassSemantic}
	unasked := want{muxcore.CodeUnavailable, muxcore.ClassDenied}
	for _, row := range []struct {
		status         int
		read, put, del want
	}{
		{400, semantic, semantic, semantic},
		{401, denied, denied, denied},
		{402, semantic, semantic, semantic},
		{403, denied, denied, denied},
		{404, absent, semantic, absent},
		{405, unsupported, want{muxcore.CodeReadOnly, muxcore.ClassSemantic}, want{muxcore.CodeReadOnly, muxcore.ClassSemantic}},
		{407, denied, denied, denied},
		{408, transient, transient, transient},
		{409, semantic, want{muxcore.CodeKeyConflict, muxcore.ClassSemantic}, want{muxcore.CodeKeyConflict, muxcore.ClassSemantic}},
		{410, absent, semantic, absent},
		{411, semantic, unsupported, unsupported},
		{412, unasked, semantic, semantic},
		{413, semantic, want{muxcore.CodeTooLarge, muxcore.ClassSemantic}, want{muxcore.CodeTooLarge, muxcore.ClassSemantic}},
		{414, want{muxcore.CodeInvalidKey, muxcore.ClassSemantic}, want{muxcore.CodeInvalidKey, muxcore.ClassSemantic}, want{muxcore.CodeInvalidKey, muxcore.ClassSemantic}},
		{416, unasked, semantic, semantic},
		{429, transient, transient, transient},
		{500, transient, transient, transient},
		{501, transient, unsupported, unsupported},
		{502, transient, transient, transient},
		{503, transient, transient, transient},
		{504, transient, transient, transient},
		{507, transient, transient, transient},
		{599, transient, transient, transient},
	} {
		s := open(t, httpstore.Settings{BaseURL: serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Retry-After", "3")
			w.WriteHeader(row.status)
			_, _ = io.WriteString(w, "secret diagnostics")
		}))})
		_, _, gerr := read(t, s, "k", muxcore.GetOptions{})
		_, serr := s.Stat(t.Context(), "k", muxcore.Conditions{})
		_, perr := s.Put(t.Context(), "k", strings.NewReader("x"), 1, muxcore.PutOptions{})
		_, derr := s.Delete(t.Context(), "k", muxcore.DeleteOptions{})
		for call, got := range map[string]struct {
			err error
			want
		}{"Get": {gerr, row.read}, "Stat": {serr, row.read}, "Put": {perr, row.put}, "Delete": {derr, row.del}} {
			e, ok := errors.AsType[*muxcore.Error](got.err)
			if !ok || e.Code != got.code || muxcore.Classify(t.Context(), e) != got.class {
				t.Errorf("%s answered with %d = %v (%v), want %s (%v)", call, row.status, got.err, muxcore.Classify(t.Context(), got.err), got.code, got.class)
				continue
			}
			if e.Status != row.status || e.RetryAfter != 3*time.Second || e.Key != "k" || e.Op == muxcore.OpNone || strings.Contains(e.Error(), "secret") {
				t.Errorf("%s answered with %d = %#v", call, row.status, e)
			}
		}
	}
}

func TestRetryAfterIsSecondsOrADate(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"": 0, "0": 0, "120": 2 * time.Minute, "-5": 0, "soon": 0, "1.5": 0,
		"9223372036854775807":                          9223372036 * time.Second,
		now.Add(time.Hour).Format(http.TimeFormat):     time.Hour,
		now.Add(-time.Hour).Format(http.TimeFormat):    0,
		"99999999999999999999999999999999999999999999": 0,
	} {
		set := httpstore.Settings{BaseURL: serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", value)
			w.WriteHeader(http.StatusServiceUnavailable)
		})), Now: func() time.Time { return now }}
		_, err := open(t, set).Stat(t.Context(), "k", muxcore.Conditions{})
		if e, ok := errors.AsType[*muxcore.Error](err); !ok || e.RetryAfter != want {
			t.Errorf("Retry-After: %s = %v, want %v", value, err, want)
		}
	}
}

func TestInfoIsWhatTheHeaderSays(t *testing.T) {
	sum := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, 32))
	md5 := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{9}, 16))
	s := says(t, sized(200, "ETag: W/\"v 1\"|ETag-Not: x|Last-Modified: Sat, 03 Feb 2001 04:05:06 GMT|Content-Type: text/x|Cache-Control: no-store|Cache-Control: private|"+
		"Content-Disposition: attachment|Content-Encoding: br|Content-Language: de|Expires: 0|X-Meta-Colour: red|X-Meta-: none|"+
		"Repr-Digest: md5=:AAAA:, sha-256=:"+sum+":|Content-MD5: "+md5, digits))
	got, err := s.Stat(t.Context(), "k", muxcore.Conditions{})
	want := muxcore.Info{
		Key: "k", Size: 10, ModTime: time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC),
		Digests: muxcore.Digests{SHA256: bytes.Repeat([]byte{7}, 32)},
		Attributes: muxcore.Attributes{
			ContentType: "text/x", CacheControl: "no-store, private", ContentDisposition: "attachment", ContentEncoding: "br",
			ContentLanguage: "de", Expires: "0", Metadata: map[string]string{"colour": "red"},
		},
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("Stat = %v, -want +got:\n%s", err, diff)
	}
	o, _, err := read(t, s, "k", muxcore.GetOptions{})
	want.Digests.MD5 = bytes.Repeat([]byte{9}, 16)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, o.Info); diff != "" {
		t.Errorf("Get: -want +got:\n%s", diff)
	}
}

func TestETagsGetTheirQuotesBack(t *testing.T) {
	for sent, want := range map[string]string{
		`"abc"`: `"abc"`, `W/"abc"`: `W/"abc"`, `abc`: `"abc"`, `W/abc`: `W/"abc"`, `w/"abc"`: `W/"abc"`, `"a,b"`: `"a,b"`, `"`: "", `""`: `""`,
		`a,b`: "", `"abc`: "", `abc"`: "", `a b`: "", `"a" "b"`: "", `W/`: "", `"a b"`: "", `5f3c-gzip`: `"5f3c-gzip"`,
	} {
		info, err := says(t, sized(200, "ETag: "+sent, "")).Stat(t.Context(), "k", muxcore.Conditions{})
		if err != nil || info.ETag != want {
			t.Errorf("ETag: %s is taken for %s (%v), want %s", sent, info.ETag, err, want)
		}
	}
	info, err := says(t, sized(200, `ETag: "a"|ETag: "b"`, "")).Stat(t.Context(), "k", muxcore.Conditions{})
	if err != nil || info.ETag != "" {
		t.Errorf("two ETags are taken for %s (%v), want none", info.ETag, err)
	}
}

// TestConditionsHoldOnOriginsThatIgnoreOrMisjudgeThem is about answers that do not fit the question.
func TestConditionsHoldOnOriginsThatIgnoreOrMisjudgeThem(t *testing.T) {
	whole := sized(200, `ETag: "v1"|Last-Modified: Sat, 03 Feb 2001 04:05:06 GMT`, digits)
	at := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
	for _, try := range []struct {
		name   string
		cond   muxcore.Conditions
		answer string
		want   muxcore.Code
	}{
		{"If-None-Match ignored", muxcore.Conditions{IfNoneMatch: `"v1"`}, whole, muxcore.CodeNotModified},
		{"If-Match ignored", muxcore.Conditions{IfMatch: `"v0"`}, whole, muxcore.CodePreconditionFailed},
		{"If-Modified-Since ignored", muxcore.Conditions{IfModifiedSince: at}, whole, muxcore.CodeNotModified},
		{"If-Unmodified-Since ignored", muxcore.Conditions{IfUnmodifiedSince: at.Add(-time.Hour)}, whole, muxcore.CodePreconditionFailed},
		{"If-Match without any ETag", muxcore.Conditions{IfMatch: `"v1"`}, sized(200, "", digits), muxcore.CodePreconditionFailed},
		{"304 as asked", muxcore.Conditions{IfNoneMatch: `"v1"`}, answer(`304 X|ETag: "v1"`, ""), muxcore.CodeNotModified},
		{"304 without validators", muxcore.Conditions{IfNoneMatch: `"v1"`}, answer(`304 X`, ""), muxcore.CodeNotModified},
		{"304 with another ETag", muxcore.Conditions{IfNoneMatch: `"v1"`}, answer(`304 X|ETag: "v2"`, ""), muxcore.CodeUnavailable},
		{"304 with a later date", muxcore.Conditions{IfModifiedSince: at.Add(-time.Hour)}, answer(`304 X|Last-Modified: Sat, 03 Feb 2001 04:05:06 GMT`, ""), muxcore.CodeUnavailable},
		{"304 nobody asked for", muxcore.Conditions{}, answer(`304 X|ETag: "v1"`, ""), muxcore.CodeUnavailable},
		{"304 to If-Match", muxcore.Conditions{IfMatch: `"v1"`}, answer(`304 X|ETag: "v1"`, ""), muxcore.CodeUnavailable},
		{"412 as asked", muxcore.Conditions{IfMatch: `"v0"`}, sized(412, `ETag: "v1"`, ""), muxcore.CodePreconditionFailed},
		{"412 for ever, with the ETag asked for", muxcore.Conditions{IfMatch: `"v1"`}, sized(412, `ETag: v1`, ""), muxcore.CodeUnavailable},
		{"a condition that no field can carry", muxcore.Conditions{IfMatch: "\"v1\"\r\nX-Evil: 1"}, whole, ""},
	} {
		s := says(t, try.answer)
		_, _, err := read(t, s, "k", muxcore.GetOptions{Conditions: try.cond})
		if muxcore.CodeOf(err) != try.want {
			t.Errorf("Get, %s = %v, want %q", try.name, err, try.want)
		}
		if _, err := s.Stat(t.Context(), "k", try.cond); muxcore.CodeOf(err) != try.want && !strings.Contains(try.answer, digits) {
			t.Errorf("Stat, %s = %v, want %q", try.name, err, try.want)
		}
	}
}

// TestAnOriginThatContradictsItselfIsAskedOncePlainly is about If-Range ignored, and about validators sent without quotes.
func TestAnOriginThatContradictsItselfIsAskedOncePlainly(t *testing.T) {
	var asked []http.Header
	newStore := func(h http.HandlerFunc) *httpstore.Store {
		asked = nil
		return open(t, httpstore.Settings{BaseURL: serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked = append(asked, r.Header)
			h(w, r)
		}))})
	}
	ignoresIfRange := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"v2"`)
		r.Header.Del("If-Range")
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(digits))
	}
	for _, ifRange := range []string{`"v1"`, "Sat, 03 Feb 2001 04:05:06 GMT"} {
		o, got, err := read(t, newStore(ignoresIfRange), "k", muxcore.GetOptions{Range: muxcore.Range{Offset: 5}, IfRange: ifRange})
		if err != nil || got != digits || o.Offset != 0 || len(asked) != 2 || asked[1].Get("Range") != "" {
			t.Errorf("Get with If-Range %s = %q, %v after %d requests, want all after 2", ifRange, got, err, len(asked))
		}
	}
	_, got, err := read(t, newStore(ignoresIfRange), "k", muxcore.GetOptions{Range: muxcore.Range{Offset: 5}, IfRange: `"v2"`})
	if err != nil || got != "56789" || len(asked) != 1 {
		t.Errorf("Get with an If-Range that holds = %q, %v after %d requests, want the part after 1", got, err, len(asked))
	}
	for _, ifRange := range []string{`W/"v2"`, "nonsense"} {
		_, got, err := read(t, newStore(ignoresIfRange), "k", muxcore.GetOptions{Range: muxcore.Range{Offset: 5}, IfRange: ifRange})
		if err != nil || got != digits || len(asked) != 1 || asked[0].Get("Range") != "" {
			t.Errorf("Get with If-Range %s = %q, %v, asked %v, want all, and no range asked for", ifRange, got, err, asked)
		}
	}

	unquoted := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", "v1")
		if m := r.Header.Get("If-Match"); m != "" && m != "v1" {
			w.WriteHeader(http.StatusPreconditionFailed)
			return
		}
		r.Header.Del("If-Match")
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(digits))
	}
	_, got, err = read(t, newStore(unquoted), "k", muxcore.GetOptions{Range: muxcore.Range{Offset: 5}, Conditions: muxcore.Conditions{IfMatch: `"v1"`}})
	if err != nil || got != "56789" || len(asked) != 2 {
		t.Errorf("Get with If-Match of an ETag without quotes = %q, %v after %d requests, want the part after 2", got, err, len(asked))
	}
}

// TestA412WithoutValidatorsIsLookedInto is like nginx, whose 412 describes its error page only.
func TestA412WithoutValidatorsIsLookedInto(t *testing.T) {
	var asked seen
	s := open(t, httpstore.Settings{BaseURL: serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.note(r)
		if m := r.Header.Get("If-Match"); m != "" {
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(http.StatusPreconditionFailed)
			return
		}
		if r.Header.Get("Range") == "" {
			w.Header().Set("ETag", `"v1"`)
		}
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(digits))
	}))})
	for _, get := range []bool{true, false} {
		before := asked.count()
		cond := muxcore.Conditions{IfMatch: `"v0"`, IfUnmodifiedSince: time.Unix(0, 0)}
		_, err := s.Stat(t.Context(), "k", cond)
		if get {
			_, _, err = read(t, s, "k", muxcore.GetOptions{Conditions: cond})
			before += 2
		}
		info := muxcore.InfoOf(err)
		if !errors.Is(err, muxcore.ErrPreconditionFailed) || info == nil || info.ETag != `"v1"` || info.ContentType == "text/html" || asked.count() != before+2 {
			t.Errorf("get: %t: %v with %+v after %d requests, want PRECONDITION_FAILED with the object's ETag after 2", get, err, info, asked.count()-before)
		}
	}
	_, _, err := read(t, s, "k", muxcore.GetOptions{Conditions: muxcore.Conditions{IfMatch: `"v0"`}, Range: muxcore.Range{Offset: 99}})
	if info := muxcore.InfoOf(err); !errors.Is(err, muxcore.ErrPreconditionFailed) || info == nil || info.Size != 10 {
		t.Errorf("with a range past the end = %v with %+v, want PRECONDITION_FAILED", err, info)
	}
	if r := asked.last(t); r.Header.Get("If-Unmodified-Since") != "" {
		t.Error("If-Unmodified-Since was sent beside If-Match, which overrides it")
	}
}

func TestConnectionsAreUsedAgain(t *testing.T) {
	var conns atomic.Int32
	o := new(origin)
	base := rawCounted(t, o, &conns)
	s := open(t, httpstore.Settings{BaseURL: base})
	if _, err := s.Put(t.Context(), "k", strings.NewReader(strings.Repeat("x", 5000)), 5000, muxcore.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		obj, err := s.Get(t.Context(), "k", muxcore.GetOptions{Range: muxcore.Range{Offset: -100, Length: int64(1 + i)}})
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.ReadFull(obj.Body, make([]byte, 1))
		obj.Body.Close()
		_, _, _ = read(t, s, "absent", muxcore.GetOptions{})
		_, _ = s.Stat(t.Context(), "k", muxcore.Conditions{IfNoneMatch: "*"})
		_, _, _ = read(t, s, "k", muxcore.GetOptions{Range: muxcore.Range{Offset: 9999}})
	}
	// One, unless the machine is so busy that now and then an answer's rest comes late. A kind of request that takes a connection with
	// it makes 20 of them.
	if n := conns.Load(); n > 10 {
		t.Errorf("%d connections were made for 100 requests, want 1", n)
	}
}

// rawCounted serves h, and counts the connections.
func rawCounted(tb testing.TB, h http.Handler, conns *atomic.Int32) string {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	srv := &http.Server{Handler: h, ConnState: func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			conns.Add(1)
		}
	}}
	go func() { _ = srv.Serve(listener) }()
	tb.Cleanup(func() { srv.Close() })
	return "http://" + listener.Addr().String()
}

func TestAProbeTakesAnyAnswerForASignOfLife(t *testing.T) {
	for status, alive := range map[int]bool{
		200: true, 204: true, 301: true, 401: true, 403: true, 404: true, 405: true,
		408: false, 429: false, 500: false, 501: false, 503: false,
	} {
		var asked seen
		set := httpstore.Settings{BaseURL: serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked.note(r)
			w.WriteHeader(status)
		})) + "/base", HealthURI: "/up?deep=1"}
		if err := muxcore.Probe(t.Context(), open(t, set), ""); (err == nil) != alive {
			t.Errorf("Probe answered with %d = %v", status, err)
		}
		if r := asked.last(t); r.Method != http.MethodHead || r.RequestURI != "/up?deep=1" || asked.count() != 1 {
			t.Errorf("Probe asks %s %s", r.Method, r.RequestURI)
		}
	}
	for uri, want := range map[string]string{"": "/base/", "up": "/base/up", "/": "/"} {
		var asked seen
		set := httpstore.Settings{BaseURL: serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked.note(r) })) + "/base", HealthURI: uri}
		if err := open(t, set).Probe(t.Context()); err != nil || asked.last(t).RequestURI != want {
			t.Errorf("Probe with health_uri %q asks for %s (%v), want %s", uri, asked.last(t).RequestURI, err, want)
		}
	}
	gone := open(t, httpstore.Settings{BaseURL: "http://127.0.0.1:1"})
	if err := gone.Probe(t.Context()); muxcore.Classify(t.Context(), err) != muxcore.ClassTransient {
		t.Errorf("Probe of nothing = %v, want transient", err)
	}
}

// TestARestThatDoesNotComeCostsAMoment shows in virtual time that a stalled rest costs a moment, not the caller's patience.
func TestARestThatDoesNotComeCostsAMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		s := open(t, httpstore.Settings{BaseURL: "http://origin.test", Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			in, out := io.Pipe()
			go func() { _, _ = fmt.Fprint(out, "0123") }()
			return &http.Response{StatusCode: 200, ContentLength: 10, Body: in, Request: r, Header: http.Header{}}, nil
		})})
		o, err := s.Get(ctx, "k", muxcore.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(o.Body, make([]byte, 2)); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		o.Body.Close()
		if took := time.Since(begun); took > time.Second {
			t.Errorf("Close takes %v", took)
		}
	})
}
