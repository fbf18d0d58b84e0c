// Package breaker measures muxcore/breaker beside two other circuit breakers,
// gobreaker and failsafe-go, in one run:
//
//	go test -run '^$' -bench . -cpu 1,2 -count 10 -benchtime 200ms ./bench/breaker
//
// Its output is that of Go's benchmarks, for benchstat: a benchmark per state
// and load, with the contenders as its cases. The ones on one core count
// nanoseconds of one caller, those on two what a call costs when both cores
// call the same breaker, as Go counts it: time passed by calls made by both.
package breaker
