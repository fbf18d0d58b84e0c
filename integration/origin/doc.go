// Package origin is an HTTP origin that fails on script. It serves objects from
// memory over a real socket on the loopback interface, takes PUT and DELETE,
// remembers every request as it came, and misbehaves as its Faults say: at the
// level of the answer (status, validators, ranges, lengths), of the body
// (resets, stalls, drips) and of the connection (refused, never answered).
//
// Everything can be switched while requests are under way; a request keeps the
// faults it started with.
package origin
