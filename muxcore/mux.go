package muxcore

import "time"

// MaxDepth is how many muxes may stand in a chain, the outermost included.
const MaxDepth = 8

// Retry repeats a failed call on the same backend: up to Max more times, after a delay that doubles from Delay to
// MaxDelay, each with full jitter.
type Retry struct {
	Max      int           // Default: 0.
	Delay    time.Duration // Default: 50ms.
	MaxDelay time.Duration // Default: 1s.
}

// Quorum is how many backends must hold a mirror write: a number, or one of the two below.
type Quorum int

// Quorums that depend on the number of backends.
const (
	QuorumMajority Quorum = -1
	QuorumAll      Quorum = -2
)

// Settings of a mux. The zero value works.
type Settings struct {
	// Name of the tree, for events and spans.
	Name string

	// Mode decides who is asked. Default: Failover.
	Mode Mode

	// Timeout is the longest a backend may make no progress: to its answer, then between body bytes. Default: 30s.
	Timeout time.Duration

	// Deadline is the longest an operation may take up to its first body byte, split over the attempts that are
	// left. Default: none.
	Deadline time.Duration

	// Retry on the same backend. Default: none.
	Retry Retry

	// Cooldown is how long a failed backend is left alone: Cooldown * 2^min(f, 6), at most MaxCooldown, f being the
	// consecutive failures before. Default: 1s, at most 1m.
	Cooldown    time.Duration
	MaxCooldown time.Duration

	// HealthInterval is the pause between active health checks of each backend, jittered by a tenth. Default: none.
	HealthInterval time.Duration

	// OnMissNext asks the next backend when one does not have a key, instead of taking its word. Default: false.
	OnMissNext bool

	// FailPartialWrites makes a fan-out that missed a backend an error. Default: false.
	FailPartialWrites bool

	// WriteQuorum of mirror. Default: 1.
	WriteQuorum Quorum

	// LastResort tries the backend that is due back first when all are down. Default: false.
	LastResort bool

	// Rendezvous makes sticky_by_key hash by highest random weight instead of modulo. Default: false.
	Rendezvous bool

	// Observe is told of every event, never with a lock held. It must be fast and safe for concurrent use; it is
	// called on the path of requests. Default: nobody.
	Observe func(Event)

	// Now reads the clock. Default: time.Now.
	Now func() time.Time

	// Float64 is a random number in [0, 1). Default: math/rand/v2.
	Float64 func() float64
}

// Backend is a named store as a member of a mux.
type Backend struct {
	Name  string
	Store Store

	// Weight is the share under weighted, and in rendezvous hashing. nil: 1. 0: never chosen, yet written to in a fan-out.
	Weight *int

	// ReadOnly keeps writes away.
	ReadOnly bool

	// Backup is asked only when all others are down or have failed.
	Backup bool

	// Timeout in place of Settings.Timeout. 0: that.
	Timeout time.Duration

	// HealthKey is the key that active checks ask for. "": the cheapest request the store has.
	HealthKey string
}
