module github.com/suaveplan/caddy-storage-mux/integration

go 1.26.0

toolchain go1.27.3

replace github.com/suaveplan/caddy-storage-mux => ..

require (
	github.com/failsafe-go/failsafe-go v0.9.8
	github.com/sony/gobreaker/v2 v2.4.0
	github.com/suaveplan/caddy-storage-mux v0.0.0
)

require (
	github.com/bits-and-blooms/bitset v1.25.0 // indirect
	github.com/stretchr/testify v1.12.1 // indirect
)
