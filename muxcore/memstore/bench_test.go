package memstore_test

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/memstore"
)

func benchmarkGet(b *testing.B, size int) {
	b.Helper()
	s := newStore(b, memstore.Settings{})
	if err := put(b, s, "k", strings.Repeat("x", size), -1); err != nil {
		b.Fatal(err)
	}
	ctx := b.Context()
	b.SetBytes(int64(size))
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			o, err := s.Get(ctx, "k", muxcore.GetOptions{})
			if err != nil {
				b.Error(err)
				return
			}
			_, _ = o.Body.(io.WriterTo).WriteTo(io.Discard)
			o.Body.Close()
		}
	})
}

func BenchmarkGet1KiB(b *testing.B) { benchmarkGet(b, 1<<10) }

func BenchmarkGet1MiBWriteTo(b *testing.B) { benchmarkGet(b, 1<<20) }

func BenchmarkPut(b *testing.B) {
	for _, size := range []int{1 << 10, 1 << 20} {
		for _, declared := range []int64{int64(size), -1} {
			b.Run(fmt.Sprintf("%dKiB/declared=%d", size>>10, declared), func(b *testing.B) {
				s := newStore(b, memstore.Settings{})
				body := strings.Repeat("x", size)
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for b.Loop() {
					if err := put(b, s, "k", body, declared); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func BenchmarkListFirst1000(b *testing.B) {
	for _, n := range []int{1_000, 100_000} {
		b.Run(fmt.Sprintf("of%d", n), func(b *testing.B) {
			s := newStore(b, memstore.Settings{})
			for i := range n {
				if err := put(b, s, fmt.Sprintf("dir%d/file%d", i%100, i), "x", 1); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				for _, err := range s.List(b.Context(), muxcore.ListOptions{Limit: 1000}) {
					if err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
