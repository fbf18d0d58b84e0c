//go:build linux

package nginxd

import (
	"net"
	"strings"
	"testing"
)

// Somebody else took the port between its choice and the start, and the tests of WebDAV failed for that.
func TestAnAddressThatIsTakenIsToldFromOtherTrouble(t *testing.T) {
	binary := find(t)
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if s, log := start(t, binary, other.Addr().String()); s != nil || !strings.Contains(log, taken) {
		t.Errorf("start at an address that is taken = %v, %q, want no server and that the log says so", s, log)
	}
}
