package rig_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/integration/rig"
)

func TestCaddyServesReloadsAndStops(t *testing.T) {
	t.Parallel()
	c := rig.Start(t, `
		root {$DIR}
		file_server`)
	if err := os.WriteFile(filepath.Join(c.Dir, "x"), []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := c.Get("/x", "Range", "bytes=1-2"); got.Status != 206 || string(got.Body) != "el" || got.Cause() != nil {
		t.Errorf("GET = %d %q %v", got.Status, got.Body, got.Cause())
	}
	if got, err := c.Raw("GET /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", false); err != nil || got.Status != 200 {
		t.Errorf("raw GET = %d, %v", got.Status, err)
	}
	if n := c.Goroutines(); n < 5 {
		t.Errorf("Goroutines() = %d", n)
	}
	if msg := c.Load(`no_such_directive`); !strings.Contains(msg, "no_such_directive") {
		t.Errorf("Load of a bad Caddyfile = %q", msg)
	}
	c.Reload(`respond two`)
	if got := c.Get("/x"); string(got.Body) != "two" {
		t.Errorf("GET after the reload = %q", got.Body)
	}
	if code := c.Stop(); code != 0 {
		t.Errorf("Stop() = %d", code)
	}
}

func TestAKilledCaddyIsGoneAndItsDirStays(t *testing.T) {
	t.Parallel()
	c := rig.Start(t, `respond one`)
	c.Kill()
	if c.Running() {
		t.Error("still running")
	}
	if _, err := c.Try(rig.Request{Path: "/"}); err == nil {
		t.Error("a killed Caddy answered")
	}
	again := rig.Start(t, `respond {$WORD}`, rig.InDir(c.Dir), rig.Env("WORD", "again"))
	if got := again.Get("/"); string(got.Body) != "again" || again.Dir != c.Dir {
		t.Errorf("GET = %q, dir %q", got.Body, again.Dir)
	}
}

func TestCommandsReportExitCodeAndOutput(t *testing.T) {
	t.Parallel()
	for config, want := range map[string]int{"respond hi": 0, "respnd hi": 1} {
		if code, out := rig.Command(t, "validate", config); code != want {
			t.Errorf("validate %q = %d: %s", config, code, out)
		}
	}
}

func TestADifferenceIsFound(t *testing.T) {
	if err := rig.Same([]byte("abc"), []byte("abc")); err != nil {
		t.Error(err)
	}
	if err := rig.Same([]byte("abd"), []byte("abcx")); fmt.Sprint(err) != "3 bytes, want 4; the first difference is at 2" {
		t.Error(err)
	}
}
