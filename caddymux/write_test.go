package caddymux

import (
	"bufio"
	"crypto/md5" // Content-MD5 is what is tested
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

func TestDigestsAreVerified(t *testing.T) {
	const body = "the body"
	md, s256, s512 := md5.Sum([]byte(body)), sha256.Sum256([]byte(body)), sha512.Sum512([]byte(body))
	b64 := base64.StdEncoding.EncodeToString
	good256, good512 := "sha-256=:"+b64(s256[:])+":", "sha-512=:"+b64(s512[:])+":"
	c := run(t, "storage_mux memory: {\n writable\n}")
	for i, tt := range []struct {
		field, value string
		status       int
	}{
		{"Content-MD5", b64(md[:]), 201},
		{"Content-MD5", b64(make([]byte, 16)), 400},
		{"Content-MD5", b64(make([]byte, 15)), 400},
		{"Content-MD5", "no base64!", 400},
		{"Content-MD5", "", 400},
		{"Repr-Digest", good256, 201},
		{"Repr-Digest", good512, 201},
		{"Repr-Digest", good256 + " , " + good512, 201},
		{"Repr-Digest", good256 + `;a=1;b="x\"y", md4=:AAAA:, other=(1 2.5 "x" tok);q, flag`, 201},
		{"Repr-Digest", strings.TrimRight(good256, "=:") + ":", 201}, // RFC 9651: padding may be missing
		{"Repr-Digest", "", 201},
		{"Repr-Digest", "md4=nonsense", 201}, // unknown: its value is not looked at
		{"Repr-Digest", "sha-256=:" + b64(make([]byte, 32)) + ":", 400},
		{"Repr-Digest", "sha-256=:" + b64(make([]byte, 31)) + ":", 400},
		{"Repr-Digest", good256 + ", sha-512=:" + b64(make([]byte, 64)) + ":", 400},
		{"Repr-Digest", "sha-256=token", 400},
		{"Repr-Digest", "sha-256", 400},
		{"Repr-Digest", "sha-256=:AAA", 400},
		{"Repr-Digest", "sha-256=(:AAAA:)", 400},
		{"Repr-Digest", good256 + ",", 400},
		{"Repr-Digest", "SHA-256=:AAAA:", 400}, // keys are lower-case
		{"Repr-Digest", `x="unclosed`, 400},
		{"Repr-Digest", "x=(1 2", 400},
		{"Repr-Digest", "=1", 400},
		{"Repr-Digest", "x=1;=2", 400},
		{"Content-Digest", good256 + ", " + good512, 201},
		{"Content-Digest", "sha-512=:" + b64(make([]byte, 64)) + ":", 400},
		{"Content-Digest", "sha-256=token", 400},
	} {
		target := fmt.Sprintf("/%d", i)
		if got := c.do("PUT", target, body, tt.field, tt.value); got.status != tt.status {
			t.Errorf("PUT with %s: %s = %d, want %d", tt.field, tt.value, got.status, tt.status)
		}
		want := http.StatusOK
		if tt.status == 400 {
			want = http.StatusNotFound
		}
		c.expect(want, "GET", target, "")
	}
	if got := c.do("PUT", "/two", body, "Repr-Digest", good256, "Content-Digest", "sha-256=:"+b64(make([]byte, 32))+":"); got.status != 400 {
		t.Errorf("PUT with two digests that differ = %d", got.status)
	}
}

func FuzzReprDigest(f *testing.F) {
	for _, v := range []string{"sha-256=:AAAA:", `a;b="c\\", d=(1 2);e`, "sha-512=::", ",", "a=?1, *x=@1"} {
		f.Add(v)
	}
	f.Fuzz(func(t *testing.T, field string) {
		d, err := declaredDigests(http.Header{"Repr-Digest": {field}})
		if err != nil && !strings.HasPrefix(err.Error(), "Repr-Digest: ") {
			t.Errorf("error %q does not name the field", err)
		}
		if d.SHA256 != nil && len(d.SHA256) != 32 || d.SHA512 != nil && len(d.SHA512) != 64 || d.MD5 != nil {
			t.Errorf("digests of a wrong length: %+v", d)
		}
	})
}

func TestWhatIsNoObjectIsRefusedAndNothingStored(t *testing.T) {
	c := run(t, "storage_mux memory: {\n writable\n max_size 1000\n}")
	for _, tt := range []struct {
		name   string
		status int
		body   string
		fields []string
	}{
		{"aws-chunked", 501, "x", []string{"Content-Encoding", "aws-chunked"}},
		{"aws-chunked with gzip", 501, "x", []string{"Content-Encoding", "gzip, AWS-Chunked"}},
		{"streaming signature", 501, "x", []string{"X-Amz-Content-Sha256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"}},
		{"part of an object", 400, "x", []string{"Content-Range", "bytes 0-0/2"}},
		{"too large", 413, strings.Repeat("x", 1001), nil},
		{"metadata over 2 KiB", 400, "x", []string{"X-Meta-A", strings.Repeat("m", 1024), "X-Meta-B", strings.Repeat("m", 1024)}},
		{"metadata that is no ASCII", 400, "x", []string{"X-Meta-A", "gr\u00fcn"}},
		{"metadata without a name", 400, "x", []string{"X-Meta-", "x"}},
		{"precondition", 412, "x", []string{"If-Match", "*"}},
	} {
		if got := c.do("PUT", "/x", tt.body, tt.fields...); got.status != tt.status {
			t.Errorf("%s: %d, want %d", tt.name, got.status, tt.status)
		}
		c.expect(http.StatusNotFound, "GET", "/x", "")
	}
	chunked := io.MultiReader(strings.NewReader(strings.Repeat("x", 1001)))
	if got, err := c.try("PUT", "/x", chunked); err != nil || got.status != http.StatusRequestEntityTooLarge {
		t.Errorf("too large, chunked: %d, %v", got.status, err)
	}
	c.expect(http.StatusNotFound, "GET", "/x", "")
	c.expect(http.StatusCreated, "PUT", "/x", strings.Repeat("x", 1000), "X-Meta-A", strings.Repeat("m", 2047))
}

func TestMetadataComesBackLowerCased(t *testing.T) {
	c := run(t, "storage_mux memory: {\n writable\n}")
	c.expect(http.StatusCreated, "PUT", "/x", "x", "X-META-some-Name", "Value", "X-Meta-Twice", "a", "X-Meta-Twice", "b")
	h := c.expect(http.StatusOK, "GET", "/x", "").header
	if got := fmt.Sprint(h["X-Meta-Some-Name"], h["X-Meta-Twice"]); got != "[Value] [a, b]" {
		t.Errorf("metadata = %s", got)
	}
}

func TestConditionalWrites(t *testing.T) {
	c := run(t, "storage_mux memory: {\n writable\n}")
	tag := c.expect(http.StatusCreated, "PUT", "/x", "one", "If-None-Match", "*").header.Get("ETag")
	c.expect(http.StatusPreconditionFailed, "PUT", "/x", "two", "If-None-Match", "*")
	c.expect(http.StatusPreconditionFailed, "PUT", "/x", "two", "If-Match", `"other"`)
	c.expect(http.StatusPreconditionFailed, "PUT", "/x", "two", "If-Unmodified-Since", "Thu, 01 Jan 1970 00:00:01 GMT")
	c.expect(http.StatusPreconditionFailed, "DELETE", "/x", "", "If-Match", `"other"`)
	if got := c.expect(http.StatusOK, "GET", "/x", ""); got.body != "one" {
		t.Errorf("body = %q, want one", got.body)
	}
	c.expect(http.StatusNoContent, "PUT", "/x", "two", "If-Match", tag)
	c.expect(http.StatusPreconditionFailed, "DELETE", "/x", "", "If-Match", tag)
	c.expect(http.StatusNoContent, "DELETE", "/x", "", "If-Match", "*")
}

// What is no condition must not be taken for none.
func TestAMalformedConditionOfAWriteIs400(t *testing.T) {
	c := run(t, "storage_mux memory: {\n writable\n}")
	tag := c.expect(http.StatusCreated, "PUT", "/x", "one").header.Get("ETag")
	for _, field := range []string{"If-Match", "If-None-Match"} {
		for _, value := range []string{"foo bar", "abc", `"a`, `"a" "b"`, `"a", b`, `*, "a"`, `"a", *`, "**", `w/"a"`, ",", "", " ", strings.Trim(tag, `"`)} {
			for _, method := range []string{"PUT", "DELETE"} {
				c.expect(http.StatusBadRequest, method, "/x", "two", field, value)
			}
			if got := c.expect(http.StatusOK, "GET", "/x", ""); got.body != "one" {
				t.Fatalf("%s: %s: body = %q, want one", field, value, got.body)
			}
		}
	}
	for _, value := range []string{`"a"`, `"a",W/"b"`, `"a" , "b,c"`, `, "a",, "b",`, `W/"a"`} {
		c.expect(http.StatusNoContent, "PUT", "/x", "two", "If-None-Match", value)
	}
	c.expect(http.StatusPreconditionFailed, "PUT", "/x", "two", "If-Match", `"a", W/"b"`)
	c.expect(http.StatusNoContent, "PUT", "/x", "two", "If-Match", "\t* ")
}

func TestAShortBodyIs400AndStoresNothing(t *testing.T) {
	c := run(t, "storage_mux memory: {\n writable\n}")
	half := strings.Repeat("h", 500)
	for name, request := range map[string]string{
		"length":  "PUT /x HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n" + half,
		"chunked": "PUT /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1f4\r\n" + half + "\r\n",
		"garbage": "PUT /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nnothex\r\n",
	} {
		conn, err := net.Dial("unix", c.socket)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, request)
		_ = conn.(*net.UnixConn).CloseWrite()
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %v, %v, want 400", name, resp, err)
		}
		_ = conn.Close()
		c.expect(http.StatusNotFound, "GET", "/x", "")
	}
}

func TestABodyThatAnEarlierHandlerLimitsKeepsItsStatus(t *testing.T) {
	c := run(t, "request_body {\n max_size 10\n}\nstorage_mux memory: {\n writable\n}")
	chunked := io.MultiReader(strings.NewReader("more than ten bytes"))
	if got, err := c.try("PUT", "/x", chunked); err != nil || got.status != http.StatusRequestEntityTooLarge {
		t.Errorf("PUT = %d, %v, want 413", got.status, err)
	}
	c.expect(http.StatusNotFound, "GET", "/x", "")
}

func TestTheBodyIsAskedForOnlyOnceABackendWillTakeIt(t *testing.T) {
	f := scripted(t, "expect")
	c := run(t, "storage_mux {\n writable\n max_size 10MB\n cooldown 1h\n backend f scripted expect\n}")
	const waits = "Host: a\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: "
	c.expect(http.StatusCreated, "PUT", "/held", "held")
	for request, status := range map[string]string{
		"PUT /a//b HTTP/1.1\r\n" + waits + "1000\r\n\r\n":                               "400",
		"PUT /x HTTP/1.1\r\n" + waits + "99999999\r\n\r\n":                              "413",
		"PUT /x HTTP/1.1\r\nContent-Encoding: aws-chunked\r\n" + waits + "1000\r\n\r\n": "501",
		"PUT /held HTTP/1.1\r\nIf-None-Match: *\r\n" + waits + "1000\r\n\r\n":           "412",
	} {
		if got := c.raw(request); !strings.HasPrefix(got, "HTTP/1.1 "+status+" ") {
			t.Errorf("%.30q = %.40q, want %s", request, got, status)
		}
	}
	conn, err := net.Dial("unix", c.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "PUT /x HTTP/1.1\r\n"+waits+"4\r\n\r\n")
	in := bufio.NewReader(conn)
	if line, err := in.ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 100 ") {
		t.Fatalf("answer to a good one = %q, %v, want 100", line, err)
	}
	_, _ = in.ReadString('\n')
	_, _ = io.WriteString(conn, "body")
	if line, err := in.ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 201 ") {
		t.Fatalf("then = %q, %v, want 201", line, err)
	}

	f.Break(&muxcore.Error{Code: muxcore.CodeUnavailable})
	c.expect(http.StatusServiceUnavailable, "PUT", "/x", "found out")
	got := c.raw("PUT /x HTTP/1.1\r\n" + waits + "1000\r\n\r\n")
	if !strings.HasPrefix(got, "HTTP/1.1 503 ") || !strings.Contains(got, "Retry-After: ") {
		t.Errorf("with all backends down = %q, want 503 at once", got)
	}
}

func TestAPartialWriteNamesTheBackendsThatMissedIt(t *testing.T) {
	f := scripted(t, "partial")
	c := run(t, "storage_mux mirror {\n writable\n cooldown 1ms\n backend m memory\n backend f scripted partial\n}")
	if got := c.expect(http.StatusCreated, "PUT", "/x", "body"); got.header.Get("Storage-Mux-Partial") != "" {
		t.Errorf("Storage-Mux-Partial = %q", got.header.Get("Storage-Mux-Partial"))
	}
	f.Break(&muxcore.Error{Code: muxcore.CodeUnavailable})
	if got := c.expect(http.StatusNoContent, "PUT", "/x", "again"); got.header.Get("Storage-Mux-Partial") != "f" {
		t.Errorf("PUT: Storage-Mux-Partial = %q, want f", got.header.Get("Storage-Mux-Partial"))
	}
	if got := c.expect(http.StatusNoContent, "DELETE", "/x", ""); got.header.Get("Storage-Mux-Partial") != "f" {
		t.Errorf("DELETE: Storage-Mux-Partial = %q, want f", got.header.Get("Storage-Mux-Partial"))
	}
}
