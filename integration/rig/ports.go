package rig

import (
	"fmt"
	"math/rand/v2"
	"net"
	"regexp"
	"strconv"
	"sync"
	"testing"
)

// Ports are taken from below the ranges that systems use for outgoing
// connections, so that only another listener can be in the way.
const (
	firstPort = 15000
	lastPort  = 32000
)

var (
	portsMu sync.Mutex
	taken   = make(map[int]bool)
	portRef = regexp.MustCompile(`\{\$(PORT[0-9]*)(:[^}]*)?\}`)
)

// FreePort returns a port that nobody listens on and that this process has not
// given out before.
func FreePort(tb testing.TB) int {
	tb.Helper()
	portsMu.Lock()
	defer portsMu.Unlock()
	for range 1000 {
		port := firstPort + rand.IntN(lastPort-firstPort)
		if taken[port] {
			continue
		}
		ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		_ = ln.Close()
		taken[port] = true
		return port
	}
	tb.Fatal("no free port was found")
	return 0
}

// FreeAddress returns an address of this machine that nobody listens on and
// that this process has not given out before, to a Caddy or to anybody else.
func FreeAddress(tb testing.TB) string {
	tb.Helper()
	return fmt.Sprintf("127.0.0.1:%d", FreePort(tb))
}

// assignPorts gives each port that config names a number.
func assignPorts(tb testing.TB, config string) map[string]string {
	tb.Helper()
	ports := map[string]string{"ADMIN": strconv.Itoa(FreePort(tb))}
	for _, m := range portRef.FindAllStringSubmatch(config, -1) {
		if _, ok := ports[m[1]]; !ok {
			ports[m[1]] = strconv.Itoa(FreePort(tb))
		}
	}
	return ports
}
