package bolt

import (
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	_ "github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp"
	_ "github.com/caddyserver/caddy/v2/modules/filestorage"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/storetest"
)

func open(tb testing.TB) *Store {
	tb.Helper()
	s, err := New(Settings{File: filepath.Join(tb.TempDir(), "objects.db")})
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func TestConformance(t *testing.T) {
	storetest.Run(t, storetest.Harness{New: func(tb testing.TB) muxcore.Store {
		s := open(tb)
		tb.Cleanup(func() { s.Close() })
		return s
	}})
}

func TestConformanceInAMux(t *testing.T) {
	skip := map[string]string{
		"a store's own ETag is not a stored one":     "a mux stores the identity that it gives",
		"an overwrite takes the old attributes away": "likewise",
	}
	storetest.Run(t, storetest.Harness{Skip: skip, New: func(tb testing.TB) muxcore.Store {
		m, err := muxcore.New(muxcore.Settings{}, muxcore.Backend{Name: "bolt", Store: open(tb)})
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { m.Close() })
		return m
	}})
}

func TestAnObjectThatIsTooLargeIsRefused(t *testing.T) {
	s, err := New(Settings{File: filepath.Join(t.TempDir(), "objects.db"), MaxSize: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Put(t.Context(), "key", strings.NewReader("body"), 4, muxcore.PutOptions{}); muxcore.CodeOf(err) != muxcore.CodeTooLarge {
		t.Errorf("Put of 4 bytes where 3 are the most = %v, want %s", err, muxcore.CodeTooLarge)
	}
}

// The module is one that Caddy's configs can name, and its options are checked with their line.
func TestCaddyServesFromIt(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	ln.Close()
	dir := t.TempDir()
	config := `{
	admin off
	persist_config off
	storage file_system ` + dir + `
}
http://` + addr + ` {
	storage_mux {
		writable
		backend db bolt ` + filepath.Join(dir, "objects.db") + ` {
			max_size 1MiB
			weight 2
		}
	}
}`
	adapted, err := adapt(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := caddy.Load(adapted, true); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { caddy.Stop() })
	url := "http://" + addr + "/key"
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, url, strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	put, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	put.Body.Close()
	got, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	body, err := io.ReadAll(got.Body)
	if put.StatusCode != http.StatusCreated || string(body) != "body" || err != nil || got.Header.Get("ETag") != put.Header.Get("ETag") {
		t.Errorf("PUT = %d, GET = %d %q, %v, ETags %s and %s", put.StatusCode, got.StatusCode, body, err, put.Header.Get("ETag"), got.Header.Get("ETag"))
	}
	for bad, want := range map[string]string{"bolt": "file is missing", "bolt f {\n max_size none\n}": "max_size", "bolt f {\n colour red\n}": "known are max_size, weight"} {
		if _, err := adapt("http://:80 {\nstorage_mux {\nbackend db " + bad + "\n}\n}"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q gives %v, want an error that has %q", bad, err, want)
		}
	}
}

func adapt(config string) ([]byte, error) {
	adapted, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(config), map[string]any{"filename": "Caddyfile"})
	return adapted, err
}
