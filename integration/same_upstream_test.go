package integration_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/fcgi"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/suaveplan/caddy-storage-mux/integration/rig"
)

// backstage is the servers behind the proxies that are compared, and what they
// were asked.
type backstage struct {
	words map[string]string // of the Caddyfile: where each server is
	begun chan struct{}     // the beginning of a long body is here

	mu      sync.Mutex
	log     []string
	aborted []string // requests that broke off
}

// beginning is as much of a long body as a server waits for before it says that
// the body has begun.
const beginning = 512 << 10

// newBackstage starts one server of each kind. They end with the test.
func newBackstage(t *testing.T) *backstage {
	t.Helper()
	b := &backstage{words: make(map[string]string), begun: make(chan struct{}, 1)}
	listen := func(network, addr string) net.Listener {
		ln, err := net.Listen(network, addr)
		if err != nil {
			t.Fatal(err)
		}
		return ln
	}
	serve := func(name string, ln net.Listener, prepare func(*httptest.Server)) *httptest.Server {
		s := httptest.NewUnstartedServer(b.handler(name))
		s.Listener.Close()
		s.Listener = ln
		s.Config.ErrorLog = log.New(io.Discard, "", 0)
		prepare(s)
		if s.TLS == nil && !s.EnableHTTP2 {
			s.Start()
		}
		t.Cleanup(func() {
			s.CloseClientConnections()
			s.Close()
		})
		b.words[name] = ln.Addr().String()
		return s
	}
	local := "127.0.0.1:0"
	plain := func(*httptest.Server) {}
	secure := func(h2 bool) func(*httptest.Server) {
		return func(s *httptest.Server) {
			s.EnableHTTP2 = h2
			s.StartTLS()
		}
	}
	cleartext := func(s *httptest.Server) {
		s.Config.Protocols = new(http.Protocols)
		s.Config.Protocols.SetHTTP1(true)
		s.Config.Protocols.SetUnencryptedHTTP2(true)
	}
	announced := func(s *httptest.Server) {
		cleartext(s)
		s.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, announcedKey{}, c)
		}
	}
	serve("A", listen("tcp", local), plain)
	serve("B", listen("tcp", local), plain)
	serve("TLS", listen("tcp", local), secure(false))
	serve("TLS2", listen("tcp", local), secure(true))
	serve("H2C", listen("tcp", local), cleartext)
	serve("PROXY", announcedListener{listen("tcp", local)}, announced)
	serve("UNIX", listen("unix", filepath.Join(t.TempDir(), "s")), plain)

	_, b.words["A_PORT"], _ = strings.Cut(b.words["A"], ":")
	b.words["DEAD"] = rig.FreeAddress(t)

	b.serveNames(t)

	raw := listen("tcp", local)
	b.words["RAW"] = raw.Addr().String()
	go b.serveRaw(raw)
	t.Cleanup(func() { raw.Close() })

	script := listen("tcp", local)
	b.words["FCGI"] = script.Addr().String()
	go func() { _ = fcgi.Serve(script, b.handler("FCGI")) }()
	t.Cleanup(func() { script.Close() })
	return b
}

// serveRaw notes the heads of requests as they come, byte for byte.
func (b *backstage) serveRaw(ln net.Listener) {
	for {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		_ = conn.SetDeadline(time.Now().Add(soon))
		in := bufio.NewReader(conn)
		for line := ""; line != "\r\n"; {
			if line, err = in.ReadString('\n'); err != nil {
				break
			}
			b.note("RAW %q", line)
		}
		fmt.Fprint(conn, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nx-oDD: kept\r\nConnection: close\r\n\r\nbody")
		conn.Close()
	}
}

// broke notes that a request broke off.
func (b *backstage) broke(name string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.aborted = append(b.aborted, fmt.Sprintf("%s: %v", name, err))
}

// note adds a line to the log.
func (b *backstage) note(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.log = append(b.log, fmt.Sprintf(format, args...))
}

// fill puts addresses in the place of words, as Caddy does in its Caddyfile.
func (b *backstage) fill(s string) string {
	for word, addr := range b.words {
		s = strings.ReplaceAll(s, "{$"+word+"}", addr)
	}
	return s
}

// asked returns the log since the last call.
func (b *backstage) asked() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	asked := b.log
	b.log = nil
	return asked
}

// handler answers as the path says, after noting all that can be seen of the request.
func (b *backstage) handler(name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "" {
			b.note("%s %s", name, view(r, received{}))
			upgrade(w, r)
			return
		}
		if strings.HasPrefix(r.URL.Path, "/duplex") {
			duplex(w, r)
			return
		}
		if r.URL.Path == "/early" {
			b.early(w, r, name)
			return
		}
		body, err := b.receive(r)
		if err != nil {
			// It is chance how much of it gets here, and how soon that is known.
			b.broke(name, err)
			return
		}
		b.note("%s %s", name, view(r, body))
		act(w, r, name, body)
	})
}

// received is the body of a request.
type received struct {
	n   int64
	sum []byte
}

// receive reads the body of a request to its end. Of a long one it is told when
// its beginning is here.
func (b *backstage) receive(r *http.Request) (received, error) {
	sum := sha256.New()
	n, err := io.CopyN(sum, r.Body, beginning)
	if errors.Is(err, io.EOF) {
		return received{n: n, sum: sum.Sum(nil)}, nil // that was all
	}
	if err == nil {
		select {
		case b.begun <- struct{}{}:
		default:
		}
		var more int64
		more, err = io.Copy(sum, r.Body)
		n += more
	}
	return received{n: n, sum: sum.Sum(nil)}, err
}

// early refuses a body of which only the beginning is here, and lets the rest
// come, so that over HTTP/1 no reset overtakes the answer.
func (b *backstage) early(w http.ResponseWriter, r *http.Request, name string) {
	_, err := io.CopyN(io.Discard, r.Body, beginning)
	b.note("%s %s %s length=%d, its beginning: %v", name, r.Method, r.RequestURI, r.ContentLength, err)
	const why = "that is too much"
	control := http.NewResponseController(w)
	_ = control.EnableFullDuplex() // which HTTP/2 has
	w.Header().Set("Content-Length", strconv.Itoa(len(why)))
	w.WriteHeader(http.StatusRequestEntityTooLarge)
	fmt.Fprint(w, why)
	_ = control.Flush()
	if r.ProtoMajor == 1 {
		_, _ = io.Copy(io.Discard, r.Body)
	}
}

// view is what a server sees of a request.
func view(r *http.Request, body received) string {
	var s strings.Builder
	fmt.Fprintf(&s, "%s %s %s host=%s length=%d coding=%v body=%d:%x", r.Proto, r.Method, r.RequestURI,
		r.Host, r.ContentLength, r.TransferEncoding, body.n, body.sum)
	if r.TLS != nil {
		fmt.Fprintf(&s, " sni=%s alpn=%s", r.TLS.ServerName, r.TLS.NegotiatedProtocol)
	}
	if c, ok := r.Context().Value(announcedKey{}).(*announcedConn); ok {
		fmt.Fprintf(&s, " announced=%s", c.client)
	}
	for _, part := range []http.Header{r.Header, r.Trailer} {
		for _, name := range slices.Sorted(maps.Keys(part)) {
			fmt.Fprintf(&s, " %s=%q", name, part[name])
		}
		s.WriteString(" |")
	}
	return s.String()
}

// act answers one request.
func act(w http.ResponseWriter, r *http.Request, name string, body received) {
	h, flush := w.Header(), http.NewResponseController(w).Flush
	h.Set("X-Server", name)
	if code := r.URL.Query().Get("status"); code != "" {
		h.Set("X-Reason", "asked for")
		status, _ := strconv.Atoi(code)
		w.WriteHeader(status)
		fmt.Fprint(w, "why")
		return
	}
	switch r.URL.Path {
	case "/trailers":
		h.Set("Trailer", "X-Announced")
		fmt.Fprint(w, "body")
		h.Set("X-Announced", "1")
		h.Set(http.TrailerPrefix+"X-Surprise", "2")
	case "/early-hints":
		h.Set("Link", "</a.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		h.Set("Link", "</b.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		fmt.Fprint(w, "body")
	case "/health":
		if name == "B" {
			w.WriteHeader(http.StatusInternalServerError)
		}
	case "/empty":
		w.WriteHeader(http.StatusNoContent)
	case "/not-modified":
		h.Set("ETag", `"v1"`)
		w.WriteHeader(http.StatusNotModified)
	case "/redirect":
		http.Redirect(w, r, "/elsewhere", http.StatusFound)
	case "/cookies":
		h["Set-Cookie"] = []string{"a=1; Path=/", "b=2; HttpOnly"}
		h["X-Internal"] = []string{"secret"}
		h.Set("Connection", "X-Hop")
		h.Set("X-Hop", "by hop")
		fmt.Fprint(w, "body")
	case "/large":
		h.Set("Content-Length", "3000000")
		_, _ = w.Write(bytes.Repeat([]byte("abc"), 1_000_000))
	case "/chunked":
		for range 5 {
			fmt.Fprint(w, "chunk ")
			_ = flush()
		}
	case "/events":
		h.Set("Content-Type", "text/event-stream")
		for i := range 3 {
			fmt.Fprintf(w, "data: %d\n\n", i)
			_ = flush()
		}
	case "/gzip":
		h.Set("Content-Encoding", "gzip")
		h.Set("Content-Type", "text/plain")
		_, _ = w.Write(zip([]byte("a body that was zipped")))
	case "/header-only", "/partial", "/cut-chunks":
		if r.URL.Path != "/cut-chunks" {
			h.Set("Content-Length", "500")
		}
		w.WriteHeader(http.StatusOK)
		if r.URL.Path != "/header-only" {
			fmt.Fprint(w, "partial")
		}
		_ = flush()
		panic(http.ErrAbortHandler)
	case "/nothing":
		panic(http.ErrAbortHandler)
	default:
		fmt.Fprintf(w, "%s here, got %d bytes", name, body.n)
	}
}

// duplex answers each line as it comes, with the request's body still open.
func duplex(w http.ResponseWriter, r *http.Request) {
	control := http.NewResponseController(w)
	_ = control.EnableFullDuplex()
	w.WriteHeader(http.StatusOK)
	_ = control.Flush()
	lines := bufio.NewScanner(r.Body)
	for lines.Scan() {
		fmt.Fprintf(w, "heard %s\n", lines.Text())
		_ = control.Flush()
	}
}

// upgrade switches to a protocol in which each line is answered, and the end of
// one direction by a last line.
func upgrade(w http.ResponseWriter, r *http.Request) {
	conn, both, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer conn.Close()
	fmt.Fprintf(both, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\nX-Server: upgraded\r\n\r\n", r.Header.Get("Upgrade"))
	_ = both.Flush()
	for {
		line, err := both.ReadString('\n')
		if err != nil {
			fmt.Fprintf(both, "the end\n")
			_ = both.Flush()
			return
		}
		fmt.Fprintf(both, "heard %s", line)
		_ = both.Flush()
	}
}

// announcedListener takes connections that begin with a PROXY protocol header.
type announcedListener struct{ net.Listener }

type announcedKey struct{}

// Accept implements net.Listener.
func (l announcedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &announcedConn{Conn: c, in: bufio.NewReader(c)}, nil
}

// announcedConn reads the header before anything else.
type announcedConn struct {
	net.Conn
	in     *bufio.Reader
	once   sync.Once
	client string
}

// Read implements net.Conn.
func (c *announcedConn) Read(p []byte) (int, error) {
	c.once.Do(func() {
		_ = c.SetReadDeadline(time.Now().Add(soon))
		c.client = readAnnouncement(c.in)
		_ = c.SetReadDeadline(time.Time{})
	})
	return c.in.Read(p)
}

// readAnnouncement reads either version of the header; ports are left out.
func readAnnouncement(in *bufio.Reader) string {
	if start, _ := in.Peek(6); string(start) == "PROXY " {
		line, _ := in.ReadString('\n')
		words := strings.Fields(line)
		return fmt.Sprint("v1 ", words[:min(len(words), 4)])
	}
	head := make([]byte, 16)
	if _, err := io.ReadFull(in, head); err != nil || string(head[:12]) != "\r\n\r\n\x00\r\nQUIT\n" {
		return fmt.Sprintf("none: %q", head)
	}
	rest := make([]byte, binary.BigEndian.Uint16(head[14:]))
	if _, err := io.ReadFull(in, rest); err != nil || len(rest) < 8 {
		return fmt.Sprintf("v2, cut off: %x", rest)
	}
	return fmt.Sprintf("v2 %x %v %v", head[12:14], net.IP(rest[:4]), net.IP(rest[4:8]))
}
