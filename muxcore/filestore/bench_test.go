package filestore

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

func BenchmarkGet1KiB(b *testing.B) {
	s := newStore(b, Settings{})
	put(b, s, "dir/k.txt", strings.Repeat("x", 1<<10), muxcore.PutOptions{ETag: `"id"`})
	ctx, buf := b.Context(), make([]byte, 2<<10)
	b.ReportAllocs()
	for b.Loop() {
		o, err := s.Get(ctx, "dir/k.txt", muxcore.GetOptions{})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(o.Body, buf[:o.Length]); err != nil {
			b.Fatal(err)
		}
		o.Body.Close()
	}
}

func BenchmarkGet1MiBWriteTo(b *testing.B) {
	s := newStore(b, Settings{})
	put(b, s, "k", strings.Repeat("x", 1<<20), muxcore.PutOptions{})
	b.SetBytes(1 << 20)
	b.ReportAllocs()
	for b.Loop() {
		o, err := s.Get(b.Context(), "k", muxcore.GetOptions{})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := o.Body.(io.WriterTo).WriteTo(struct{ io.Writer }{io.Discard}); err != nil {
			b.Fatal(err)
		}
		o.Body.Close()
	}
}

func BenchmarkMiss(b *testing.B) {
	s := newStore(b, Settings{})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Stat(b.Context(), "dir/none", muxcore.Conditions{}); err == nil {
			b.Fatal("found")
		}
	}
}

func BenchmarkPut(b *testing.B) {
	for _, size := range []int{1 << 10, 1 << 20} {
		for name, q := range map[string]quirks{"synced": {}, "unsynced": {noSync: true}} {
			b.Run(fmt.Sprintf("%dKiB/%s", size>>10, name), func(b *testing.B) {
				s := newStore(b, Settings{})
				s.quirks = q
				body := strings.Repeat("x", size)
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for b.Loop() {
					put(b, s, "dir/k", body, muxcore.PutOptions{ETag: `"id"`})
				}
			})
		}
	}
}

func BenchmarkListFirst100Of50000(b *testing.B) {
	root := b.TempDir()
	for i := range 50_000 {
		if err := os.WriteFile(filepath.Join(root, fmt.Sprintf("file-%05d.txt", i)), nil, 0o600); err != nil {
			b.Fatal(err)
		}
	}
	s := newStore(b, Settings{Root: root})
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		for _, err := range s.List(b.Context(), muxcore.ListOptions{Limit: 100}) {
			if err != nil {
				b.Fatal(err)
			}
			n++
		}
		if n != 100 {
			b.Fatal(n)
		}
	}
}

// BenchmarkPutSummed is a large Put whose SHA-256 is found out on the way, as by a mux.
func BenchmarkPutSummed(b *testing.B) {
	const size = 64 << 20
	body := strings.Repeat("x", size)
	for name, q := range map[string]quirks{"synced": {}, "unsynced": {noSync: true}} {
		b.Run(name, func(b *testing.B) {
			s := newStore(b, Settings{})
			s.quirks = q
			m, err := muxcore.New(muxcore.Settings{}, muxcore.Backend{Name: "file", Store: s})
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(size)
			b.ReportAllocs()
			for b.Loop() {
				put(b, m, "dir/k", body, muxcore.PutOptions{})
			}
		})
	}
}
