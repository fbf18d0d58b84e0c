// Package wire is what the stores that speak HTTP have in common: connections and their pool, bodies that never end early,
// uploads that can be taken back, ranges, validators, and whose fault an error is.
package wire
