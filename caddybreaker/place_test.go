package caddybreaker

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/muxcore/breaker"
)

// streamer answers /echo by a connection that says back what it is told, and all
// else by events until the client leaves.
func streamer(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/echo" {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: 1\n\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		return
	}
	echoUpgraded(w)
}

// An outsider's WebSockets did not count for max_concurrent once they were open.
func TestAnOpenStreamHasItsPlaceUntilItIsOver(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(streamer))
	t.Cleanup(func() {
		upstream.CloseClientConnections()
		upstream.Close()
	})
	addr := upstream.Listener.Addr().String()
	for name, site := range map[string]string{
		"transport":                      "reverse_proxy %[1]s {\n transport relay_breaker {\n max_concurrent 1\n}\n}",
		"transport that flushes at once": "reverse_proxy %[1]s {\n flush_interval -1\n transport relay_breaker {\n max_concurrent 1\n}\n}",
		"with the policy":                "reverse_proxy %[1]s {\n lb_policy relay_breaker\n transport relay_breaker {\n max_concurrent 1\n}\n}",
		"slow":                           "reverse_proxy %[1]s {\n transport relay_breaker {\n max_concurrent 1\n slow_call 1ns\n failure_threshold 9999\n}\n}",
		"handler":                        "route {\n relay_breaker app {\n max_concurrent 1\n}\n reverse_proxy %[1]s\n}",
	} {
		for _, path := range []string{"/echo", "/events"} {
			t.Run(name+path, func(t *testing.T) {
				r := start(t, "", fmt.Sprintf(site, addr))
				for range 2 {
					conn, in := r.open(path)
					if got := r.get("/events"); got.status != http.StatusServiceUnavailable {
						t.Fatalf("beside an open stream: %d, want 503", got.status)
					}
					if path == "/echo" {
						fmt.Fprint(conn, "hello")
						if err := conn.(*net.UnixConn).CloseWrite(); err != nil {
							t.Fatal(err)
						}
						if echo, err := io.ReadAll(in); string(echo) != "hello" {
							t.Errorf("echo after half-close = %q, %v", echo, err)
						}
					}
					conn.Close()
					r.eventually("the place to be free", func() bool {
						for _, v := range entries() {
							if !v.breaker.Ready() {
								return false
							}
						}
						return true
					})
				}
				for _, v := range views() {
					if v.State != breaker.Closed {
						t.Errorf("the path is %v: %s", v.State, v.Reason)
					}
				}
			})
		}
	}
}

// open begins a stream over a connection of its own.
func (r *rig) open(path string) (net.Conn, *bufio.Reader) {
	r.t.Helper()
	conn, err := net.Dial("unix", r.socket)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if err := conn.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			r.t.Error(err)
		}
	})
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n", path)
	in := bufio.NewReader(conn)
	res, err := http.ReadResponse(in, nil)
	if err != nil || res.StatusCode >= 300 {
		r.t.Fatalf("GET %s = %+v, %v", path, res, err)
	}
	return conn, in
}
