// Package storagemux makes the whole plugin one module to build Caddy with:
// importing it registers both the storage_mux and the relay_breaker modules.
package storagemux

import (
	_ "github.com/suaveplan/caddy-storage-mux/caddybreaker" // relay_breaker: a breaker per upstream
	_ "github.com/suaveplan/caddy-storage-mux/caddymux"     // storage_mux: one store out of many
)
