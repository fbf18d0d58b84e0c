package muxcore

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore/journal"
)

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
	// consecutive failures before. Grown ones are shortened at random by up to a tenth, so that many nodes do not try again
	// in step. Default: 1s, at most 1m.
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

	// ReadRepair copies what a later backend answered to those asked before it that do not have it, in the background and
	// at a bounded rate; never to a read-only backend, and never over an existing object. Only where a miss is not final:
	// in mirror, and with OnMissNext. Default: false.
	ReadRepair bool

	// ReadRepairIf, if set, is asked before a key is taken up for ReadRepair. Default: always.
	ReadRepairIf func() bool

	// RepairRate is how many bytes a second the copies to this mux's backends move, all together: those of [Mux.Repair], of
	// what backends missed, and of ReadRepair. Negative: no bound. Default: 64 MiB.
	RepairRate int64

	// LastResort tries the backend that is due back first when all are down. Default: false.
	LastResort bool

	// Rendezvous makes sticky_by_key hash by highest random weight instead of modulo. Default: false.
	Rendezvous bool

	// Spool holds bodies on their way that not all backends have read yet, and those that may have to be sent again.
	// Default: one of this mux alone, in memory.
	Spool *Spool

	// Hedge reads, in any mode but mirror, which asks all at once. Default: off.
	Hedge Hedge

	// Journal remembers what backends miss, and has it repaired. nil: nothing is remembered. Default: nil.
	Journal *journal.Scope

	// State is what the mux knew whose place this one takes: it goes on with it, see [State]. Default: nothing.
	State *State

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

	// Release is called in place of closing the store, for one that has other users. nil: the store is the mux's to close.
	Release func() error

	// Spec is what the backend was made of, for whoever made it: the mux only hands it back, in its [State].
	Spec any
}

// fillIn sets the defaults.
func (s *Settings) fillIn() {
	orDefault(&s.Mode, Failover)
	orDefault(&s.Timeout, 30*time.Second)
	orDefault(&s.Retry.Delay, 50*time.Millisecond)
	orDefault(&s.Retry.MaxDelay, max(time.Second, s.Retry.Delay))
	orDefault(&s.Cooldown, time.Second)
	orDefault(&s.MaxCooldown, max(time.Minute, s.Cooldown))
	orDefault(&s.WriteQuorum, 1)
	orDefault(&s.RepairRate, 64<<20)
	orDefault(&s.Hedge.Share, 0.05)
	if s.Spool == nil {
		s.Spool = NewSpool(SpoolSettings{})
	}
	if s.Now == nil {
		s.Now = time.Now
	}
	if s.Float64 == nil {
		s.Float64 = defaultFloat64
	}
}

func orDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Check tells whether a mux can be made of backends, naming the field or the backend that is at fault. Errors have
// CodeBackendNameConflict, CodeInvalidWeight, CodeWeightedRequiresWeights, CodeMirrorOriginRequired,
// CodeRecursionDepthExceeded, CodeBackendNotFound (there is none), or none.
func Check(set Settings, backends ...Backend) error {
	set.fillIn()
	if _, err := ParseMode(string(set.Mode)); err != nil {
		return err
	}
	if err := set.check(); err != nil {
		return err
	}
	seen := make(map[string]bool)
	for i := range backends {
		b := &backends[i]
		if err := checkBackend(b); err != nil {
			return err
		}
		if seen[b.Name] {
			return conflict(b.Name)
		}
		seen[b.Name] = true
		if 1+depthOf(b.Store) > MaxDepth {
			return tooDeep(b.Name)
		}
	}
	return checkTogether(set, backends)
}

// checkTogether checks what depends on all backends.
func checkTogether(set Settings, backends []Backend) error {
	writable := 0
	for i := range backends {
		if !backends[i].ReadOnly {
			writable++
		}
	}
	given := slices.ContainsFunc(backends, func(b Backend) bool { return b.Weight != nil })
	positive := slices.ContainsFunc(backends, func(b Backend) bool { return b.Weight == nil || *b.Weight > 0 })
	switch {
	case set.Mode == Shield && (len(backends) == 0 || backends[0].Backup):
		return &Error{Code: CodeMirrorOriginRequired, Err: errors.New("shield: the first backend is the origin, and must not be a backup")}
	case len(backends) == 0:
		return &Error{Code: CodeBackendNotFound, Err: fmt.Errorf("%s: no backend", set.Mode)}
	case set.Mode != Weighted && !positive:
		return &Error{Code: CodeInvalidWeight, Err: errors.New("all weights are 0: no backend could ever be read")}
	case set.Mode == Weighted && (!given || !positive):
		return &Error{Code: CodeWeightedRequiresWeights, Err: errors.New("weighted: no backend has a positive weight")}
	case set.WriteQuorum > 1 && int(set.WriteQuorum) > writable:
		return fmt.Errorf("write_quorum: %d is more than the %d backends that can be written", set.WriteQuorum, writable)
	}
	return nil
}

// check rejects nonsense in single settings.
func (s *Settings) check() error {
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"timeout", s.Timeout},
		{"deadline", s.Deadline},
		{"cooldown", s.Cooldown},
		{"health_interval", s.HealthInterval},
		{"retry: delay", s.Retry.Delay},
		{"retry: most", s.Retry.MaxDelay},
	} {
		if d.value < 0 {
			return fmt.Errorf("%s: must not be negative", d.name)
		}
	}
	if s.MaxCooldown < s.Cooldown {
		return fmt.Errorf("cooldown: most is %v, less than %v to begin with", s.MaxCooldown, s.Cooldown)
	}
	if s.Hedge.After < 0 {
		return fmt.Errorf("hedge: must not be negative, got %v", s.Hedge.After)
	}
	if s.Hedge.Share < 0 || s.Hedge.Share > 1 {
		return fmt.Errorf("hedge: the share of extra reads must be between 0 and 1, got %v", s.Hedge.Share)
	}
	if s.HealthInterval > 0 && s.HealthInterval < time.Millisecond {
		return fmt.Errorf("health_interval: must be at least 1ms, got %v", s.HealthInterval)
	}
	if s.Retry.Max < 0 {
		return fmt.Errorf("retry: must be >= 0, got %d", s.Retry.Max)
	}
	if s.WriteQuorum < QuorumAll {
		return fmt.Errorf("write_quorum: must be positive, got %d", s.WriteQuorum)
	}
	return nil
}

func checkBackend(b *Backend) error {
	switch {
	case b.Name == "":
		return errors.New("backend without a name")
	case b.Store == nil:
		return fmt.Errorf("backend %q: no store", b.Name)
	case b.Weight != nil && !isWeight(*b.Weight):
		return invalidWeight(b.Name, *b.Weight)
	case b.Timeout < 0:
		return fmt.Errorf("backend %q: timeout: must not be negative", b.Name)
	case b.HealthKey != "":
		if err := CheckStoreKey(b.HealthKey); err != nil {
			return fmt.Errorf("backend %q: health_key: %w", b.Name, err)
		}
	}
	return nil
}

func conflict(name string) error { return &Error{Code: CodeBackendNameConflict, Backend: name} }

// MaxWeight is the largest weight of a backend. More would not come through the numbers of JSON unharmed, nor be told apart from less.
const MaxWeight = 1_000_000_000

func isWeight(weight int) bool { return weight >= 0 && weight <= MaxWeight }

func invalidWeight(name string, weight int) error {
	return &Error{Code: CodeInvalidWeight, Backend: name, Err: fmt.Errorf("weight: must be 0 to %d, got %d", MaxWeight, weight)}
}

func tooDeep(name string) error {
	return &Error{Code: CodeRecursionDepthExceeded, Backend: name, Err: fmt.Errorf("more than %d muxes in a chain", MaxDepth)}
}
