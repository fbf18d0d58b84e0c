package rig

import "testing"

func TestRacesOfCaddyItselfAreNoTroubleOfOurs(t *testing.T) {
	const (
		we   = "github.com/suaveplan/caddy-storage-mux/caddybreaker.(*Handler).ServeHTTP()"
		rest = "\n      /src/x.go:1 +0x1\n\nPrevious read at 0x00c0 by goroutine 2:\n  x.Close()\n"
	)
	for frame, trouble := range map[string]bool{
		"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy.(*bodyNopCloserIfNotRead).Read()": false,
		"github.com/caddyserver/caddy/v2/modules/caddyhttp.(*lengthReader).Read()":                        false,
		"github.com/caddyserver/caddy/v2/modules/caddytls.(*TLS).CaddyModule()":                           false,
		"github.com/caddyserver/caddy/v2/modules/caddyhttp.(*lengthReader).Read()\n  " + we:               false,
		"x.Read()\n\nGoroutine 1 (running) created at:\n  " + we:                                          false,
		"x.Read()\n  " + we: true,
		we:                  true,
	} {
		l := new(Log)
		_, _ = l.Write([]byte("==================\nWARNING: DATA RACE\nWrite at 0x00c0 by goroutine 1:\n  " + frame + rest + "==================\n"))
		if got := l.trouble(); (got != "") != trouble {
			t.Errorf("a race in %s is trouble: %q", frame, got)
		}
	}
}
