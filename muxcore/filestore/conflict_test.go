package filestore_test

import (
	"bytes"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/filestore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/memstore"
)

// What one member of a mux can never hold, or not beside what it holds, nobody gets: not even those that could.
func TestNobodyGetsWhatOneMemberCannotHold(t *testing.T) {
	one := 1
	for _, mode := range []muxcore.Mode{muxcore.Mirror, muxcore.Shield} {
		for _, first := range []string{"file", "memory"} {
			files, err := filestore.New(filestore.Settings{Root: t.TempDir()})
			if err != nil {
				t.Fatal(err)
			}
			memory, err := memstore.New(memstore.Settings{})
			if err != nil {
				t.Fatal(err)
			}
			backends := []muxcore.Backend{{Name: "file", Store: files, Weight: &one}, {Name: "memory", Store: memory, Weight: &one}}
			if first == "memory" {
				backends[0], backends[1] = backends[1], backends[0]
			}
			m, err := muxcore.New(muxcore.Settings{Mode: mode}, backends...)
			if err != nil {
				t.Fatal(err)
			}
			for _, key := range []string{"object", "folder/object"} {
				if _, err := m.Put(t.Context(), key, strings.NewReader("x"), 1, muxcore.PutOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			for key, code := range map[string]muxcore.Code{
				"object/below": muxcore.CodeKeyConflict, "object/far/below": muxcore.CodeKeyConflict, "folder": muxcore.CodeKeyConflict,
				"CON": muxcore.CodeInvalidKey, strings.Repeat("n", 256): muxcore.CodeInvalidKey,
			} {
				for _, n := range []int{0, 10, 3 << 20} {
					body := iotest.HalfReader(bytes.NewReader(make([]byte, n)))
					if _, err := m.Put(t.Context(), key, body, int64(n), muxcore.PutOptions{}); muxcore.CodeOf(err) != code {
						t.Errorf("%s, %s first: Put(%.20q) of %d bytes = %v, want %s", mode, first, key, n, err, code)
					}
					if _, err := memory.Stat(t.Context(), key, muxcore.Conditions{}); err == nil {
						t.Fatalf("%s, %s first: memory has committed %.20q of %d bytes", mode, first, key, n)
					}
				}
			}
			for i, s := range m.Stats().Backends {
				if s.WritesDown {
					t.Errorf("%s: a conflict counts against backend %d", mode, i)
				}
			}
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
