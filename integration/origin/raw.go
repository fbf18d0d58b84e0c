package origin

import (
	"bufio"
	"net"
	"net/http"
	"sync"
	"testing"
)

// Raw starts a server that answers each request with what script writes to its connection, byte for byte, which is what an
// [Origin] cannot do: it speaks HTTP as net/http does. The connection is kept while script says so. It returns the base URL.
func Raw(tb testing.TB, script func(conn *net.TCPConn, r *http.Request) (keep bool)) string {
	tb.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatalf("starting a raw origin: %v", err)
	}
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		conns []net.Conn
	)
	wg.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, conn)
			mu.Unlock()
			wg.Go(func() {
				defer func() { _ = conn.Close() }()
				in := bufio.NewReader(conn)
				for {
					r, err := http.ReadRequest(in)
					if err != nil || !script(conn.(*net.TCPConn), r) {
						return
					}
				}
			})
		}
	})
	tb.Cleanup(func() {
		_ = ln.Close()
		mu.Lock()
		for _, conn := range conns {
			_ = conn.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return "http://" + ln.Addr().String()
}
