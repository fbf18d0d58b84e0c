package caddybreaker

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// echo answers with what it was asked, in the way the path says.
func echo(w http.ResponseWriter, r *http.Request) {
	sum := sha256.New()
	n, err := io.Copy(sum, r.Body)
	switch r.URL.Path {
	case "/trailers":
		w.Header().Set("Trailer", "X-Announced")
		fmt.Fprint(w, "body")
		w.Header().Set("X-Announced", "1")
		w.Header().Set(http.TrailerPrefix+"X-Surprise", "2")
	case "/early-hints":
		w.Header().Set("Link", "</a.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		fmt.Fprint(w, "body")
	case "/empty":
		w.WriteHeader(http.StatusNoContent)
	case "/not-modified":
		w.Header().Set("ETag", `"v1"`)
		w.WriteHeader(http.StatusNotModified)
	case "/large":
		w.Header().Set("Content-Length", "3000000")
		_, _ = w.Write(bytes.Repeat([]byte("abc"), 1000000))
	case "/chunked":
		for range 5 {
			fmt.Fprint(w, "chunk ")
			_ = http.NewResponseController(w).Flush()
		}
	default:
		fmt.Fprintf(w, "%s %s got %d bytes %x %v, trailer %v, length %d",
			r.Method, r.URL.Path, n, sum.Sum(nil)[:4], err, r.Trailer.Get("X-Sum"), r.ContentLength)
	}
}

// seen is all that a client can tell.
type seen struct {
	Status  int
	Header  http.Header
	Body    string
	Err     string
	Trailer http.Header
	Hints   []string
}

func TestProxyingIsTheSameWithAndWithoutTheWrapper(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(echo))
	defer upstream.Close()
	without, with := make(map[string]seen), make(map[string]seen)
	for more, into := range map[string]map[string]seen{
		"": without,
		"lb_policy relay_breaker\ntransport relay_breaker {\nmax_concurrent 10\nslow_call 1m\n}": with,
	} {
		r := start(t, "", fmt.Sprintf("reverse_proxy %s {\n%s\n}", upstream.Listener.Addr(), more))
		for name, ask := range requests() {
			into[name] = observe(t, r, ask())
		}
	}
	for _, name := range slices.Sorted(maps.Keys(without)) {
		if diff := cmp.Diff(without[name], with[name]); diff != "" {
			t.Errorf("%s (-without +with):\n%s", name, diff)
		}
	}
	if got := with["early hints"]; len(got.Hints) != 1 {
		t.Errorf("early hints: %v, want 1", got.Hints)
	}
	if got := with["trailers"]; got.Trailer.Get("X-Announced") != "1" || got.Trailer.Get("X-Surprise") != "2" {
		t.Errorf("trailers: %v", got.Trailer)
	}
}

func requests() map[string]func() *http.Request {
	plain := func(method, path string, body func() io.Reader) func() *http.Request {
		return func() *http.Request {
			var b io.Reader
			if body != nil {
				b = body()
			}
			req, err := http.NewRequest(method, "http://caddy.test"+path, b) //nolint:noctx // gets one where it is sent
			if err != nil {
				panic(err)
			}
			return req
		}
	}
	megabytes := func() io.Reader { return bytes.NewReader(make([]byte, 5<<20)) }
	return map[string]func() *http.Request{
		"get":                 plain("GET", "/", nil),
		"head of a large one": plain("HEAD", "/large", nil),
		"large":               plain("GET", "/large", nil),
		"chunked":             plain("GET", "/chunked", nil),
		"trailers":            plain("GET", "/trailers", nil),
		"early hints":         plain("GET", "/early-hints", nil),
		"no content":          plain("GET", "/empty", nil),
		"not modified":        plain("GET", "/not-modified", nil),
		"delete":              plain("DELETE", "/x", nil),
		"upload":              plain("PUT", "/x", megabytes),
		"upload in chunks":    plain("PUT", "/x", func() io.Reader { return io.MultiReader(megabytes()) }),
		"upload with a trailer": func() *http.Request {
			req := plain("POST", "/x", func() io.Reader { return io.MultiReader(strings.NewReader("data")) })()
			req.Trailer = http.Header{"X-Sum": {"abc"}}
			return req
		},
		"upload after a continue": func() *http.Request {
			req := plain("PUT", "/x", megabytes)()
			req.Header.Set("Expect", "100-continue")
			return req
		},
	}
}

func observe(t *testing.T, r *rig, req *http.Request) seen {
	t.Helper()
	var s seen
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			if code != http.StatusContinue {
				s.Hints = append(s.Hints, fmt.Sprint(code, h))
			}
			return nil
		},
	})
	res, err := r.client.Do(req.WithContext(ctx))
	if err != nil {
		t.Fatalf("%s %s: %v", req.Method, req.URL, err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	s.Status, s.Header, s.Body, s.Trailer = res.StatusCode, res.Header, string(body), res.Trailer
	s.Err = fmt.Sprint(err)
	delete(s.Header, "Date")
	return s
}

func TestThePROXYProtocolReachesTheUpstreamThroughTheWrapper(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	first := make(chan string, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(patience))
		in := bufio.NewReader(conn)
		line, _ := in.ReadString('\n')
		first <- line
		if req, err := http.ReadRequest(in); err == nil {
			_, _ = io.Copy(io.Discard, req.Body)
			fmt.Fprint(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
		}
	}()
	r := startTCP(t, fmt.Sprintf(`reverse_proxy %s {
		transport relay_breaker {
			transport http {
				proxy_protocol v1
			}
		}
	}`, listener.Addr()))
	r.want("/", 200)
	if line := <-first; !strings.HasPrefix(line, "PROXY TCP4 127.0.0.1 ") {
		t.Errorf("first line %q, want PROXY TCP4 and the client", line)
	}
}
