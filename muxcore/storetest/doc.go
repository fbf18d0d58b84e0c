// Package storetest tells whether a store keeps the contract of [muxcore.Store], and breaks stores on purpose.
//
// [Run] is a whole test: a backend's own conformance test is a [Harness] and one call. Each check opens a fresh store and
// reports every problem that it finds, not only the first. The suite uses nothing that is not exported, so a backend in
// another module runs it as ours do.
//
// [Faulty] wraps a store that works and lets it fail, stall, panic and lie on a script: what a mux, and what a door,
// must live with.
package storetest
