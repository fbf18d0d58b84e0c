package origin

import (
	"errors"
	"fmt"
	"net"
	"syscall"
	"testing"
	"time"
)

// DeadEnd returns an address on the loopback interface whose connections are
// never established: the queue of its listener is full and nobody empties it.
func DeadEnd(tb testing.TB) string {
	tb.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		tb.Fatalf("making a socket: %v", err)
	}
	tb.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		tb.Fatalf("binding a socket: %v", err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		tb.Fatalf("listening: %v", err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		tb.Fatalf("asking for a socket's name: %v", err)
	}
	addr := fmt.Sprintf("127.0.0.1:%d", name.(*syscall.SockaddrInet4).Port)
	for range 16 {
		conn, err := net.DialTimeout("tcp", addr, 200*time.Millisecond)
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			return addr
		}
		if err != nil {
			tb.Fatalf("filling the queue of %s: %v", addr, err)
		}
		tb.Cleanup(func() { _ = conn.Close() })
	}
	tb.Fatalf("the queue of %s does not fill", addr)
	return ""
}
