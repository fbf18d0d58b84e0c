//go:build unix

package muxcore_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// What a mux adds to a read from memory: the bare store first, then through each mode over few and many backends.
func BenchmarkGet(b *testing.B) {
	store := memory(b)
	put(b, store, "k", long(1024))
	b.Run("bare", func(b *testing.B) { benchmarkGet(b, store) })
	for _, mode := range []muxcore.Mode{muxcore.Failover, muxcore.RoundRobin, muxcore.Weighted, muxcore.StickyByKey, muxcore.Shield} {
		for _, n := range []int{2, 100} {
			var backends []muxcore.Backend
			for i := range n {
				weight := 1 + i%7
				backends = append(backends, muxcore.Backend{Name: fmt.Sprint("b", i), Store: store, Weight: &weight})
			}
			m := newMux(b, muxcore.Settings{Mode: mode}, backends...)
			b.Run(fmt.Sprint(mode, "-", n), func(b *testing.B) { benchmarkGet(b, m) })
		}
	}
}

// What it costs that a read could be hedged, where none is: a plain read of stores that may wait first.
func BenchmarkHedge(b *testing.B) {
	for _, row := range []struct {
		name string
		set  muxcore.Settings
	}{
		{"plain", muxcore.Settings{Mode: muxcore.RoundRobin}},
		{"hedge", muxcore.Settings{Mode: muxcore.RoundRobin, Hedge: muxcore.Hedge{After: time.Minute}}},
	} {
		var backends []muxcore.Backend
		for i := range 3 {
			store := patient{memory(b)}
			put(b, store, "k", long(1024))
			backends = append(backends, muxcore.Backend{Name: fmt.Sprint("b", i), Store: store})
		}
		m := newMux(b, row.set, backends...)
		b.Run(row.name, func(b *testing.B) { benchmarkGet(b, m) })
	}
}

// patient is a store whose calls might wait.
type patient struct{ muxcore.Store }

func (patient) Waits() muxcore.Waits { return muxcore.WaitsWithContext }

func benchmarkGet(b *testing.B, s muxcore.Store) {
	b.ReportAllocs()
	defer reportCPU(b)()
	for b.Loop() {
		obj, err := s.Get(b.Context(), "k", muxcore.GetOptions{})
		if err != nil {
			b.Fatal(err)
		}
		if n, err := io.Copy(io.Discard, obj.Body); n != 1024 || err != nil {
			b.Fatal(n, err)
		}
		_ = obj.Body.Close()
	}
}

// reportCPU has the benchmark report what it takes of the processor from here on, garbage collection and all: on a machine that has
// others to serve, time by the clock tells little.
func reportCPU(b *testing.B) (report func()) {
	used := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	before := used()
	return func() { b.ReportMetric(float64(used()-before)/float64(b.N), "cpu-ns/op") }
}

// A large body of a store that cannot write itself, on its way into a connection.
func BenchmarkLargeBody(b *testing.B) {
	const size = 8 << 20
	backends, hooks := copies(b, 1, long(size), muxcore.PutOptions{ETag: `"one"`})
	hooks[0].wrap = func(_ context.Context, body io.ReadCloser) io.ReadCloser {
		return struct {
			io.Reader
			io.Closer
		}{body, body}
	}
	m := newMux(b, muxcore.Settings{}, backends...)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	client := make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		if err == nil {
			_, err = io.Copy(io.Discard, conn)
		}
		client <- err
	}()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(size)
	b.ReportAllocs()
	report := reportCPU(b)
	for b.Loop() {
		obj, err := m.Get(b.Context(), "k", muxcore.GetOptions{})
		if err != nil {
			b.Fatal(err)
		}
		if n, err := io.Copy(conn, obj.Body); n != size || err != nil {
			b.Fatal(n, err)
		}
		_ = obj.Body.Close()
	}
	report()
	_ = conn.Close()
	if err := <-client; err != nil {
		b.Error(err)
	}
}

// BenchmarkCapabilities of a chain of muxes, which every write asks for.
func BenchmarkCapabilities(b *testing.B) {
	for _, depth := range []int{1, 4, muxcore.MaxDepth} {
		b.Run(fmt.Sprint(depth), func(b *testing.B) {
			m := newMux(b, muxcore.Settings{}, muxcore.Backend{Name: "b", Store: memory(b)})
			for range depth - 1 {
				m = newMux(b, muxcore.Settings{}, muxcore.Backend{Name: "b", Store: m})
			}
			for b.Loop() {
				_ = m.Capabilities()
			}
		})
	}
}

// BenchmarkCheckKey of what each read checks two or three times.
func BenchmarkCheckKey(b *testing.B) {
	for name, key := range map[string]string{"letter": "k", "path": "assets/images/2026/11/0123456789abc.jpeg"} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := muxcore.CheckKey(key); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
