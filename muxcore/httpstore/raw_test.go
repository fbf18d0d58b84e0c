package httpstore_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/httpstore"
)

// rawOrigin answers each request with what script writes, byte for byte. The connection is kept while script says so.
func rawOrigin(tb testing.TB, script func(conn net.Conn, r *http.Request) (keep bool)) string {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	conns := map[net.Conn]bool{}
	wg.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns[conn] = true
			mu.Unlock()
			wg.Go(func() {
				defer conn.Close()
				in := bufio.NewReader(conn)
				for {
					r, err := http.ReadRequest(in)
					if err != nil || !script(conn, r) {
						return
					}
				}
			})
		}
	})
	tb.Cleanup(func() {
		listener.Close()
		mu.Lock()
		for conn := range conns {
			conn.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return "http://" + listener.Addr().String()
}

// says makes a store of an origin that answers everything with one text.
func says(tb testing.TB, answer string) *httpstore.Store {
	tb.Helper()
	return open(tb, httpstore.Settings{BaseURL: rawOrigin(tb, func(conn net.Conn, r *http.Request) bool {
		text := answer
		if head, _, ok := strings.Cut(answer, "\r\n\r\n"); ok && r.Method == http.MethodHead {
			text = head + "\r\n\r\n"
		}
		_, _ = io.WriteString(conn, text)
		return false
	})})
}

// answer writes an HTTP answer out of a head in short form and a body.
func answer(head, body string) string {
	return "HTTP/1.1 " + strings.ReplaceAll(head, "|", "\r\n") + "\r\n\r\n" + body
}

func sized(status int, fields, body string) string {
	if fields != "" {
		fields += "\r\n"
	}
	return fmt.Sprintf("HTTP/1.1 %d X\r\nContent-Length: %d\r\n%s\r\n%s", status, len(body), strings.ReplaceAll(fields, "|", "\r\n"), body)
}

// read gets a key, and reads it to its end or error.
func read(tb testing.TB, s muxcore.Store, key string, opts muxcore.GetOptions) (*muxcore.Object, string, error) {
	tb.Helper()
	o, err := s.Get(tb.Context(), key, opts)
	if err != nil {
		return nil, "", err
	}
	defer o.Body.Close()
	body, err := io.ReadAll(o.Body)
	return o, string(body), err
}

// within fails the test if f hangs.
func within(tb testing.TB, what string, f func()) {
	tb.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(2 * time.Minute):
		tb.Fatalf("%s hangs", what)
	}
}
