package caddybreaker

import (
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"

	"github.com/suaveplan/caddy-storage-mux/internal/configfuzz"
)

func FuzzCaddyfileOfATransport(f *testing.F) {
	configfuzz.Caddyfile(f, "relay_breaker", new(Transport), configfuzz.Unmarshal(new(Transport)))
}

func FuzzCaddyfileOfAHandler(f *testing.F) {
	configfuzz.Caddyfile(f, "relay_breaker", new(Handler), func(d *caddyfile.Dispenser) (any, error) {
		return parseHandler(httpcaddyfile.Helper{Dispenser: d, State: map[string]any{}}, place{})
	})
}

func FuzzCaddyfileOfAPolicy(f *testing.F) {
	configfuzz.Caddyfile(f, "relay_breaker", new(Selection), configfuzz.Unmarshal(new(Selection)))
}

func FuzzJSONOfATransport(f *testing.F) {
	configfuzz.JSON(f, new(Transport), "protocol", "relay_breaker")
}

func FuzzJSONOfAHandler(f *testing.F) { configfuzz.JSON(f, new(Handler), "handler", "relay_breaker") }

func FuzzJSONOfAPolicy(f *testing.F) { configfuzz.JSON(f, new(Selection), "policy", "relay_breaker") }
