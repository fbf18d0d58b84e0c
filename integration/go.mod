module github.com/suaveplan/caddy-storage-mux/integration

go 1.26.0

toolchain go1.27.3

replace github.com/suaveplan/caddy-storage-mux => ..

require (
	github.com/chromedp/cdproto v0.160.1
	github.com/chromedp/chromedp v0.23.1
	github.com/failsafe-go/failsafe-go v0.9.8
	github.com/quic-go/quic-go v0.63.0
	github.com/sony/gobreaker/v2 v2.4.0
	github.com/suaveplan/caddy-storage-mux v0.0.0
	golang.org/x/net v0.60.0
)

require (
	github.com/bits-and-blooms/bitset v1.25.0 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/go-json-experiment/json v0.0.0-20260213210345-44df1a37e875 // indirect
	github.com/ncw/swift/v2 v2.0.5 // indirect
	github.com/quic-go/qpack v0.6.0 // indirect
	go.opentelemetry.io/otel v1.46.0 // indirect
	go.opentelemetry.io/otel/trace v1.46.0 // indirect
	golang.org/x/crypto v0.57.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
	golang.org/x/text v0.42.0 // indirect
)
