// Package caddymux serves a muxcore tree from Caddy.
//
// Read it in this order. A config is words: [Mux] is one level of a tree as it is typed (tree.go), [Backend] what all
// types of backends share, and each type is a guest module in the namespace storage_mux.backends (backend.go is their
// contract, backend_memory.go the smallest). Caddyfiles become these structs in caddyfile.go and caddyfile_mux.go, by the
// parse tables of options.go; locations in location.go.
//
// When Caddy provisions a config, resolve.go replaces the placeholders and loads the modules, settings.go and check.go check what must hold.
// What comes out is built into a tree, once for all configs that say the same (pool.go): so health and counters
// survive a reload, and a request keeps what it uses. Named trees are declared by a global option (caddyfile_global.go);
// each place in a config that uses a tree is a door to it (door.go).
//
// A request is served by [Handler] (handler.go), as an exchange (exchange.go): keys and hidden keys (key.go), reads
// (serve.go, range.go, serve_ranges.go, respond.go), writes (serve_write.go, digest.go), lists (serve_list.go).
// httperror.go alone decides which HTTP status an error becomes.
//
// What operators see of trees: [App] (app.go) has those of a config; observe.go tells the log and the events app,
// metrics.go Prometheus, admin.go the admin API.
package caddymux
