module github.com/suaveplan/caddy-storage-mux/integration

go 1.26.0

toolchain go1.27.3

replace github.com/suaveplan/caddy-storage-mux => ..
