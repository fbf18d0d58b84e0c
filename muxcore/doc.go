// Package muxcore makes one object store out of many.
//
// A [Store] keeps objects by key: Get, Stat, Put, Delete, List. A [Mux] is a store made of stores. Each of them is a
// backend: a store with a name, a weight, health and counters. A [Mode] is the rule by which the mux composes its
// backends. And since a mux is a store, muxes nest, up to [MaxDepth] in a chain.
//
// # How an operation goes
//
// It loads the view of the backends as they stand (view.go), one immutable snapshot for all. The mode orders those that
// may be asked (mode*.go); their health admits them one by one, freely while up, once at a time after a cooldown
// (health.go). An attempt calls one of them (attempt.go): under a watch that ends it when it makes no progress (watch.go),
// on a goroutine of its own if it may hang, and with every panic caught. What came back is classified ([Classify], the
// only place that decides what an error means), recorded and told. Reads and writes (read.go, write.go) are loops over
// attempts; what goes to all at once is a race (race.go) or a fan-out (fanout.go, broadcast.go); what some have yet to read
// of a body waits in the spool (spool.go); lists are merged (list.go).
//
// A body that a mux hands out survives its backend (resume.go): when it breaks off or stalls, the mux goes on elsewhere
// at the exact byte, but only in a copy of the same strong identity ([SameIdentity]). Where there is none, the reader gets
// an error. It never gets a byte that is not the object's, and never an early end.
//
// What has come apart is brought back together by single backends, each in its seat in the tree (seat.go), not by the mux
// as a whole. [Mux.Verify] walks the lists of all side by side (comparison.go), one row a key, and judges each (holding.go,
// judge.go); [Mux.Repair] mends what differs (repair.go, mend.go) by copies between two backends (copy.go) that commit in
// the key's turn (keylock.go), as all that changes a key does. Read repair (readrepair.go) does the same for what a read
// found missing.
//
// What a backend missed is remembered in a journal (package journal): every write has it know before and after its commits
// (pending.go), reads and lists ask those last who lack a key (pending.go, listmark.go), and once a backend is back it gets
// the newest state (replay.go; resolve.go where a kill left the end of a write open), and again should it commit late what
// it was given up for (late.go).
//
// What a mux has learnt of its backends, and what was changed in it at run time, outlives it: one that takes its place goes on
// with its [State].
//
// # Error classes
//
//   - semantic: the backend answered, and the answer is no (absent, 304, 412, 416, other 4xx). Final, and never its fault.
//   - transient: it failed (5xx, 408, 429, a broken connection, an early end, a panic). The next is asked, and it goes down.
//   - timeout: it made no progress. As transient.
//   - denied: it will not let us (401, 403, 407). The next is asked; its health is untouched.
//   - abort: the caller gave up. Final, and nobody's fault. So is whatever we cancelled ourselves.
//
// # Keys
//
// A key is UTF-8, 1 to 1024 bytes, without control characters, backslashes, and empty, "." or ".." segments. Segments
// that begin with [ReservedPrefix] belong to the storage itself, in whatever spelling a folder could take for it. Keys are
// bytes: nothing is ever normalised ([CheckKey]).
//
// # Words
//
// One word per idea, in code, config, metrics and documents alike: a backend is a member of a mux; a mode orders them; an
// attempt is one call to one backend; a permit admits it; a class is what its end means; a trial is the one attempt
// after a cooldown; a check is an active health check; a fan-out is one write to many; a miss is a write that a backend
// should have and has not; an identity is a strong ETag that is the same on every backend.
//
// What Caddy keeps in a tree for itself has locks (package locks): they live in one store, and never go through a mux.
//
// Decisions and what was rejected stand in DESIGN.md.
package muxcore
