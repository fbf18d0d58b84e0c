package muxcore_test

import (
	"fmt"
	"io"
	"testing"

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

func benchmarkGet(b *testing.B, s muxcore.Store) {
	b.ReportAllocs()
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
