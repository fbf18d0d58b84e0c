package origin_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/suaveplan/caddy-storage-mux/integration/origin"
)

var payload = bytes.Repeat([]byte("0123456789"), 10_000)

// answer is a whole exchange: what came, and the error that ended the body.
type answer struct {
	*http.Response
	body []byte
	err  error
}

func ask(t *testing.T, method, url, body string, header ...string) (answer, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	client := &http.Client{
		Transport:     &http.Transport{DisableCompression: true, DisableKeepAlives: true},
		Timeout:       2 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return answer{Response: resp, body: b, err: err}, nil
}

func start(t *testing.T, f origin.Faults) *origin.Origin {
	t.Helper()
	o := origin.New(t)
	o.Put("/x", origin.Object{Body: payload, Header: http.Header{"Content-Type": {"text/plain"}}})
	o.Script(f)
	return o
}

func TestAWellOriginServesWholeObjectsRangesAndPreconditions(t *testing.T) {
	o := start(t, origin.Faults{})
	for _, tt := range []struct {
		name, header, value string
		status, length      int
	}{
		{"whole", "Accept", "*/*", 200, len(payload)},
		{"range", "Range", "bytes=5-9", 206, 5},
		{"not modified", "If-None-Match", origin.Tag(payload), 304, 0},
		{"not satisfiable", "Range", "bytes=999999-", 416, -1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ask(t, "GET", o.URL()+"/x", "", tt.header, tt.value)
			if err != nil || got.err != nil {
				t.Fatal(err, got.err)
			}
			if got.StatusCode != tt.status || (tt.length >= 0 && len(got.body) != tt.length) {
				t.Errorf("GET = %d with %d bytes, want %d with %d", got.StatusCode, len(got.body), tt.status, tt.length)
			}
		})
	}
}

func TestFaultsOfTheAnswer(t *testing.T) {
	for _, tt := range []struct {
		name   string
		faults origin.Faults
		header []string
		check  func(answer) bool
	}{
		{"status and body", origin.Faults{Status: 503, Body: "why"}, nil, func(a answer) bool { return a.StatusCode == 503 && string(a.body) == "why" }},
		{"header", origin.Faults{Status: 503, Header: http.Header{"Retry-After": {"7"}}}, nil, func(a answer) bool { return a.Header.Get("Retry-After") == "7" }},
		{"redirect", origin.Faults{Redirect: "http://127.0.0.1:1/y"}, nil, func(a answer) bool { return a.StatusCode == 302 && a.Header.Get("Location") == "http://127.0.0.1:1/y" }},
		{"range ignored", origin.Faults{IgnoreRange: true}, []string{"Range", "bytes=5-"}, func(a answer) bool { return a.StatusCode == 200 && len(a.body) == len(payload) }},
		{"range shifted", origin.Faults{Shift: 3}, []string{"Range", "bytes=5-"}, func(a answer) bool {
			return a.StatusCode == 206 && strings.HasPrefix(a.Header.Get("Content-Range"), "bytes 8-") && a.body[0] == '8'
		}},
		{"chunked", origin.Faults{Chunked: true}, nil, func(a answer) bool { return a.ContentLength == -1 && len(a.body) == len(payload) && a.err == nil }},
		{"longer length than body", origin.Faults{ShortBy: 10}, nil, func(a answer) bool {
			return a.ContentLength == int64(len(payload)+10) && errors.Is(a.err, io.ErrUnexpectedEOF)
		}},
		{"gzip unasked", origin.Faults{Gzip: true}, nil, func(a answer) bool {
			z, err := gzip.NewReader(bytes.NewReader(a.body))
			return err == nil && a.Header.Get("Content-Encoding") == "gzip" && equalTo(z)
		}},
		{"weak tag", origin.Faults{ETag: origin.ETagWeak}, nil, func(a answer) bool { return a.Header.Get("ETag") == "W/"+origin.Tag(payload) }},
		{"unquoted tag", origin.Faults{ETag: origin.ETagUnquoted}, nil, func(a answer) bool { return a.Header.Get("ETag") == strings.Trim(origin.Tag(payload), `"`) }},
		{"no tag", origin.Faults{ETag: origin.ETagNone, NoLastModified: true}, nil, func(a answer) bool { return a.Header.Get("ETag")+a.Header.Get("Last-Modified") == "" }},
		{"drip", origin.Faults{Drip: 30_000, DripEvery: time.Millisecond}, nil, func(a answer) bool { return bytes.Equal(a.body, payload) }},
		{"reset", origin.Faults{ResetAfter: 1000}, nil, func(a answer) bool { return len(a.body) <= 1000 && errors.Is(a.err, syscall.ECONNRESET) }},
		{"cut", origin.Faults{CutAfter: 1000}, nil, func(a answer) bool { return len(a.body) == 1000 && errors.Is(a.err, io.ErrUnexpectedEOF) }},
		{"cut while chunked", origin.Faults{CutAfter: 1000, Chunked: true}, nil, func(a answer) bool { return len(a.body) == 1000 && errors.Is(a.err, io.ErrUnexpectedEOF) }},
		{"stall", origin.Faults{StallAfter: 1000}, nil, func(a answer) bool { return len(a.body) == 1000 && os.IsTimeout(a.err) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := start(t, tt.faults)
			got, err := ask(t, "GET", o.URL()+"/x", "", tt.header...)
			if err != nil {
				t.Fatal(err)
			}
			if !tt.check(got) {
				t.Errorf("GET = %v, %d bytes, error %v", got.Header, len(got.body), got.err)
			}
		})
	}
}

func equalTo(r io.Reader) bool {
	b, err := io.ReadAll(r)
	return err == nil && bytes.Equal(b, payload)
}

func TestAChangingTagDiffersEachTime(t *testing.T) {
	o := start(t, origin.Faults{ETag: origin.ETagChanging})
	first, err := ask(t, "GET", o.URL()+"/x", "")
	if err != nil {
		t.Fatal(err)
	}
	second, err := ask(t, "GET", o.URL()+"/x", "")
	if err != nil {
		t.Fatal(err)
	}
	if a, b := first.Header.Get("ETag"), second.Header.Get("ETag"); a == b {
		t.Errorf("two answers have the tag %s", a)
	}
}

func TestFaultsOfTheConnection(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(*origin.Origin)
		want func(error) bool
	}{
		{"drop", func(o *origin.Origin) { o.Script(origin.Faults{Drop: true}) }, func(err error) bool { return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.EOF) }},
		{"hang", func(o *origin.Origin) { o.Script(origin.Faults{Hang: true}) }, os.IsTimeout},
		{"refuse", (*origin.Origin).Refuse, func(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }},
		{"blackhole", (*origin.Origin).Blackhole, os.IsTimeout},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := start(t, origin.Faults{})
			tt.do(o)
			if _, err := ask(t, "GET", o.URL()+"/x", ""); !tt.want(err) {
				t.Errorf("GET: %v", err)
			}
			o.Heal()
			if got, err := ask(t, "GET", o.URL()+"/x", ""); err != nil || got.StatusCode != 200 {
				t.Errorf("GET after Heal: %v", err)
			}
		})
	}
}

func TestAnEarlyAnswerLeavesTheBodyUnread(t *testing.T) {
	o := start(t, origin.Faults{Early: 413})
	got, err := ask(t, "PUT", o.URL()+"/y", "body")
	if err != nil || got.StatusCode != 413 {
		t.Fatalf("PUT = %v, %v, want 413", got.Response, err)
	}
	if r := o.Log()[0]; r.Body != 0 {
		t.Errorf("%d bytes of the body were read", r.Body)
	}
}

func TestWritesAreStoredWholeOrNotAtAll(t *testing.T) {
	o := start(t, origin.Faults{})
	if got, err := ask(t, "PUT", o.URL()+"/a%20b", "body", "X-Meta-Who", "me"); err != nil || got.StatusCode != 201 {
		t.Fatalf("PUT = %v, %v, want 201", got.Response, err)
	}
	if obj, ok := o.Object("/a b"); !ok || string(obj.Body) != "body" || obj.Header.Get("X-Meta-Who") != "me" {
		t.Errorf("stored %v %v", obj, ok)
	}
	if line := o.Log()[0].Line; line != "PUT /a%20b HTTP/1.1" {
		t.Errorf("request line %q", line)
	}
	if got, err := ask(t, "PUT", o.URL()+"/a%20b", "body", "If-None-Match", "*"); err != nil || got.StatusCode != 412 {
		t.Errorf("PUT with If-None-Match: * = %v, %v, want 412", got.Response, err)
	}
	conn, err := net.Dial("tcp", o.Addr())
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(conn, "PUT /short HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf")
	conn.(*net.TCPConn).CloseWrite()
	io.Copy(io.Discard, conn)
	conn.Close()
	if _, ok := o.Object("/short"); ok {
		t.Error("half a body was stored")
	}
	for _, want := range []int{204, 404} {
		if got, err := ask(t, "DELETE", o.URL()+"/a%20b", ""); err != nil || got.StatusCode != want {
			t.Errorf("DELETE = %v, %v, want %d", got.Response, err, want)
		}
	}
}

func TestFaultsMeetOnlyTheRequestsTheyAreMeantFor(t *testing.T) {
	o := start(t, origin.Faults{
		Status: 500, Times: 1,
		Only: func(r *http.Request) bool { return r.Method == http.MethodGet },
	})
	for i, want := range []int{500, 200} {
		if got, err := ask(t, "HEAD", o.URL()+"/x", ""); err != nil || got.StatusCode != 200 {
			t.Errorf("HEAD %d = %v, %v, want 200", i, got.Response, err)
		}
		if got, err := ask(t, "GET", o.URL()+"/x", ""); err != nil || got.StatusCode != want {
			t.Errorf("GET %d = %v, %v, want %d", i, got.Response, err, want)
		}
	}
	if n := o.Hits("GET"); n != 2 {
		t.Errorf("Hits(GET) = %d, want 2", n)
	}
}

func TestNobodyIsLetInAtADeadEnd(t *testing.T) {
	conn, err := net.DialTimeout("tcp", origin.DeadEnd(t), 300*time.Millisecond)
	if err == nil {
		conn.Close()
		t.Fatal("the connection was established")
	}
	if !os.IsTimeout(err) {
		t.Errorf("dialing: %v, want a timeout", err)
	}
}
