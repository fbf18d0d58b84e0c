package integration_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/integration/origin"
	"github.com/suaveplan/caddy-storage-mux/integration/rig"
)

const digits = "0123456789"

// verdict is what an odd answer is worth.
type verdict int

const (
	taken       verdict = iota // it is an answer, and what is expected comes of it
	disbelieved                // it is none: 503 alone, and another backend is asked
	cut                        // its body breaks off: the client must see that
	final                      // it is an answer that ends the read
)

// oddity is an answer of an origin, byte for byte, to a request of a client.
type oddity struct {
	name   string
	answer string
	ask    []string // header of the request
	verdict
	status int
	body   string
}

// head is an answer out of a head in short form ("|" between fields) and a body.
func head(head, body string) string {
	return "HTTP/1.1 " + strings.ReplaceAll(head, "|", "\r\n") + "\r\n\r\n" + body
}

var (
	whole  = head("200 OK|Content-Length: 10", digits)
	middle = []string{"Range", "bytes=2-4"}
	beyond = []string{"Range", "bytes=20-30"}
	early  = "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
	large  = strings.Repeat(digits, 20_000)
)

var oddities = []oddity{
	{"one interim answer", early + whole, nil, taken, 200, digits},
	{"100 that nobody asked for", "HTTP/1.1 100 Continue\r\n\r\n" + whole, nil, taken, 200, digits},
	{"a hundred interim answers", strings.Repeat(early, 100) + whole, nil, taken, 200, digits},
	{"interim answers without end", strings.Repeat(early, 100_000), nil, disbelieved, 0, ""},
	{"101", head("101 Switching Protocols|Upgrade: x|Connection: upgrade", digits), nil, disbelieved, 0, ""},
	{"203", head("203 X|Content-Length: 10", digits), nil, taken, 200, digits},
	{"204", head("204 X", ""), nil, disbelieved, 0, ""},
	{"205", head("205 X|Content-Length: 0", ""), nil, disbelieved, 0, ""},
	{"206 without a range", head("206 X|Content-Length: 5|Content-Range: bytes 0-4/10", "01234"), nil, disbelieved, 0, ""},
	{"206 of the whole without a range", head("206 X|Content-Length: 10|Content-Range: bytes 0-9/10", digits), nil, disbelieved, 0, ""},
	{"200 to a range", whole, middle, taken, 206, "234"},
	{"200 with a Content-Range", head("200 X|Content-Length: 10|Content-Range: bytes 5-14/99", digits), nil, taken, 200, digits},
	{"another range", head("206 X|Content-Length: 3|Content-Range: bytes 3-5/10", "345"), middle, disbelieved, 0, ""},
	{"a range of another length", head("206 X|Content-Length: 2|Content-Range: bytes 2-4/10", "23"), middle, disbelieved, 0, ""},
	{"a range without saying which", head("206 X|Content-Length: 3", "234"), middle, disbelieved, 0, ""},
	{"several parts for one range", head("206 X|Content-Length: 10|Content-Type: multipart/byteranges; boundary=x", digits), middle, disbelieved, 0, ""},
	{"300", head("300 X|Content-Length: 10", digits), nil, disbelieved, 0, ""},
	{"304 without a condition", head("304 X", ""), nil, disbelieved, 0, ""},
	{"304 that its ETag denies", head(`304 X|ETag: "b"`, ""), []string{"If-None-Match", `"a"`}, disbelieved, 0, ""},
	{"304", head(`304 X|ETag: "a"`, ""), []string{"If-None-Match", `"a"`}, final, 304, ""},
	{"402", head("402 X|Content-Length: 10", digits), nil, final, 402, ""},
	{"405", head("405 X|Content-Length: 0", ""), nil, taken, 501, ""},
	{"412 without a condition", head("412 X|Content-Length: 0", ""), nil, disbelieved, 0, ""},
	{"416 without a range", head("416 X|Content-Length: 0|Content-Range: bytes */10", ""), nil, disbelieved, 0, ""},
	{"416 for what is there", head("416 X|Content-Length: 0|Content-Range: bytes */100", ""), beyond, disbelieved, 0, ""},
	{"416", head("416 X|Content-Length: 0|Content-Range: bytes */10", ""), beyond, final, 416, ""},
	{"999", head("999 X|Content-Length: 0", ""), nil, disbelieved, 0, ""},
	{"a status of two digits", head("20 X|Content-Length: 10", digits), nil, disbelieved, 0, ""},
	{"coded without being asked", head("200 X|Content-Length: 10|Content-Encoding: gzip", digits), nil, taken, 200, digits},
	{"trailers that would change the header", head("200 X|Transfer-Encoding: chunked|Trailer: ETag", "a\r\n"+digits+"\r\n0\r\nETag: \"t\"\r\nX-Meta-Secret: s\r\n\r\n"), nil, taken, 200, digits},
	{"a trailer that must not be one", head("200 X|Transfer-Encoding: chunked|Trailer: Content-Length", "a\r\n"+digits+"\r\n0\r\nContent-Length: 3\r\n\r\n"), nil, disbelieved, 0, ""},
	{"a part of what has no length", head("200 X|Transfer-Encoding: chunked", "a\r\n"+digits+"\r\n0\r\n\r\n"), middle, taken, 200, digits},
	{"the rest of what has no length", head("200 X|Transfer-Encoding: chunked", "a\r\n"+digits+"\r\n0\r\n\r\n"), []string{"Range", "bytes=4-"}, taken, 200, digits},
	{"all of what has no length, as a range", head("200 X|Transfer-Encoding: chunked", "a\r\n"+digits+"\r\n0\r\n\r\n"), []string{"Range", "bytes=0-"}, taken, 200, digits},
	{"a part of an unknown whole, always", head("206 X|Content-Length: 3|Content-Range: bytes 2-4/*", "234"), middle, disbelieved, 0, ""},
	{"no last chunk", head("200 X|Transfer-Encoding: chunked", "a\r\n"+digits+"\r\n"), nil, cut, 200, ""},
	{"a chunk size that is too large", head("200 X|Transfer-Encoding: chunked", "ffffffffffffffffff\r\n"+digits+"\r\n0\r\n\r\n"), nil, disbelieved, 0, ""},
	{"a negative chunk size", head("200 X|Transfer-Encoding: chunked", "-a\r\n"+digits+"\r\n0\r\n\r\n"), nil, disbelieved, 0, ""},
	{"chunks and a length", head("200 X|Transfer-Encoding: chunked|Content-Length: 3", "a\r\n"+digits+"\r\n0\r\n\r\n"), nil, taken, 200, digits},
	{"an unknown transfer coding", head("200 X|Transfer-Encoding: gzip, chunked", "a\r\n"+digits+"\r\n0\r\n\r\n"), nil, disbelieved, 0, ""},
	{"two lengths", head("200 X|Content-Length: 10|Content-Length: 5", digits), nil, disbelieved, 0, ""},
	{"the same length twice", head("200 X|Content-Length: 10|Content-Length: 10", digits), nil, taken, 200, digits},
	{"a length with a sign", head("200 X|Content-Length: +10", digits), nil, disbelieved, 0, ""},
	{"a negative length", head("200 X|Content-Length: -1", digits), nil, disbelieved, 0, ""},
	{"a small body that is too short", head("200 X|Content-Length: 20", digits), nil, disbelieved, 0, ""},
	{"a large body that is too short", head("200 X|Content-Length: 300000", large), nil, cut, 200, ""},
	{"a body that is too long", head("200 X|Content-Length: 5", digits), nil, taken, 200, "01234"},
	{"a huge field", head("200 X|Content-Length: 10|X-Meta-A: "+strings.Repeat("a", 300_000), digits), nil, disbelieved, 0, ""},
	{"fields without end", head("200 X|Content-Length: 10"+strings.Repeat("|X-Meta-A: b", 100_000), digits), nil, disbelieved, 0, ""},
	{"HTTP/1.0 without a length", "HTTP/1.0 200 X\r\n\r\n" + digits, nil, disbelieved, 0, ""},
	{"HTTP/1.0 with a length", "HTTP/1.0 200 X\r\nContent-Length: 10\r\n\r\n" + digits, nil, taken, 200, digits},
	{"HTTP/1.1 that ends with the connection", head("200 X|Connection: close", digits), nil, disbelieved, 0, ""},
	{"a body without a head", digits, nil, disbelieved, 0, ""},
	{"noise", "\x00\x01\x02\r\n\r\n", nil, disbelieved, 0, ""},
	{"nothing", "", nil, disbelieved, 0, ""},
	{"a time to come", head("200 X|Content-Length: 10|Last-Modified: Tue, 01 Jan 2999 00:00:00 GMT", digits), nil, taken, 200, digits},
	{"a time that is none", head("200 X|Content-Length: 10|Last-Modified: yesterday", digits), nil, taken, 200, digits},
	{"two ETags", head(`200 X|Content-Length: 10|ETag: "a"|ETag: "b"`, digits), nil, taken, 200, digits},
	{"a control character in a field", head("200 X|Content-Length: 10|Content-Type: te\x01xt/plain", digits), nil, disbelieved, 0, ""},
	{"a field on two lines", head("200 X|Content-Length: 10|Content-Disposition: attachment;| filename=a", digits), nil, taken, 200, digits},
	{"a line end in a field", head("200 X|Content-Length: 10|Content-Disposition: a\rX-Meta-B: 1", digits), nil, disbelieved, 0, ""},
	{"a space before the colon", head("200 X|Content-Length : 10", digits), nil, disbelieved, 0, ""},
	{"fields for the connection", head("200 X|Content-Length: 10|Connection: X-Meta-Secret|X-Meta-Secret: s|Set-Cookie: a=b|Location: /", digits), nil, taken, 200, digits},
	{"a redirect to nowhere", head("302 X|Content-Length: 0", ""), nil, disbelieved, 0, ""},
	{"a redirect to itself", head("302 X|Content-Length: 0|Location: ?", ""), nil, disbelieved, 0, ""},
	{"a redirect to a file", head("302 X|Content-Length: 0|Location: file:///etc/passwd", ""), nil, disbelieved, 0, ""},
	{"a part deep in what is not given in parts", head("200 X|Content-Length: 5000000", strings.Repeat("x", 5_000_000)), []string{"Range", "bytes=4500000-4500009"}, taken, 200, strings.Repeat("x", 5_000_000)},
}

// Whatever an origin answers, the client gets a right answer, an honest error or a broken connection: alone, and with
// another backend that is well, which the client must not notice but where an answer is final.
func TestOddAnswersOfOriginsAreTakenRefusedOrBrokenOff(t *testing.T) {
	t.Parallel()
	good := origin.New(t)
	answers := make(map[string]string)
	for i, odd := range oddities {
		path := fmt.Sprintf("/%d", i)
		answers[path] = odd.answer
		body := digits
		if len(odd.body) > len(digits) {
			body = odd.body
		}
		good.Put(path, origin.Object{Body: []byte(body)})
	}
	odd := origin.Raw(t, func(conn *net.TCPConn, r *http.Request) bool {
		_, _ = io.WriteString(conn, answers[r.URL.Path])
		return false
	})
	site := func(port, backends string) string {
		return "http://:{$" + port + "} {\nheader >X-Backend {http.storage_mux.backend}\nstorage_mux {\ntimeout 20s\ncooldown 1ms 1ms\nlast_resort\n" + backends + "\n}\n}\n"
	}
	c := rig.Start(t, site("PORT", "backend odd http {$ODD}")+site("PORT2", "backend odd http {$ODD}\nbackend good http {$GOOD}"),
		rig.Env("ODD", odd), rig.Env("GOOD", good.URL()))
	for i, o := range oddities {
		t.Run(o.name, func(t *testing.T) {
			path := fmt.Sprintf("/%d", i)
			r, err := c.Try(rig.Request{Path: path, Header: o.ask})
			o.judge(t, r, err)
			// In failover the odd one is asked first, unless it is in the cooldown that the last request put it into.
			r, err = c.Try(rig.Request{Path: path, Header: o.ask, Port: "PORT2"})
			switch {
			case o.verdict == cut && err != nil, r.Header.Get("X-Backend") == "odd":
				o.judge(t, r, err)
			case o.verdict == disbelieved || r.Header.Get("X-Backend") == "good":
				if rig.Aborted(r, err) || r.Status >= 500 {
					t.Errorf("with another backend: %d, %v", r.Status, err)
				}
			default:
				o.judge(t, r, err)
			}
		})
	}
}

// judge compares an answer that only the odd origin can have given.
func (o *oddity) judge(t *testing.T, r rig.Response, err error) {
	t.Helper()
	aborted := rig.Aborted(r, err)
	switch {
	case o.verdict == cut:
		if !aborted {
			t.Errorf("%d with %d bytes ended as if it were whole", r.Status, len(r.Body))
		}
	case aborted:
		t.Errorf("broke off: %v, %v", err, r.Cause())
	case o.verdict == disbelieved:
		if r.Status != http.StatusServiceUnavailable || r.Header.Get("Retry-After") == "" {
			t.Errorf("%d with Retry-After %q, want 503", r.Status, r.Header.Get("Retry-After"))
		}
	case r.Status != o.status || string(r.Body) != o.body:
		t.Errorf("%d %.40q, want %d %.40q", r.Status, r.Body, o.status, o.body)
	}
	for _, name := range []string{"Set-Cookie", "Location", "X-Meta-Secret"} {
		if v := r.Header.Get(name); v != "" {
			t.Errorf("%s: %s was passed on", name, v)
		}
	}
}
