package muxcore

import (
	"slices"
	"sync/atomic"
	"time"
)

// backend is a member of a mux at run time. It outlives the views that list it: an operation that started on one ends on it.
type backend struct {
	Backend // as configured; Weight is only where it began
	waits   Waits
	nested  *Mux   // Store, where it is a mux
	peeker  Peeker // Store, where it is one

	weight  atomic.Int64 // as it stands
	holds   holds
	checker atomic.Pointer[checker]
	drain   drainState
	reads   health
	writes  health
	stats   *counters // shared with the backend that this one took the place of
	added   bool      // at run time
}

func newBackend(cfg Backend, timeout time.Duration, now time.Time) *backend {
	b := &backend{Backend: cfg, waits: WaitsOf(cfg.Store), stats: new(counters)}
	b.nested, _ = cfg.Store.(*Mux)
	b.peeker, _ = cfg.Store.(Peeker)
	switch {
	case b.nested != nil:
		b.waits = WaitsWithContext // whatever becomes of its backends
		orDefault(&b.Timeout, never)
	default:
		orDefault(&b.Timeout, timeout)
	}
	b.holds.n.Store(1)
	b.weight.Store(b.made())
	b.reads.since, b.writes.since = now, now
	return b
}

// made is the weight that the backend was made with.
func (b *backend) made() int64 {
	if b.Weight != nil {
		return int64(*b.Weight)
	}
	return 1
}

// health of the kind of operation that op is: a backend whose writes fail keeps serving reads.
func (b *backend) health(op Op) *health {
	if op.Writes() {
		return &b.writes
	}
	return &b.reads
}

// never is the timeout of a nested mux, unless it has one of its own: those of its backends end what hangs, and only it
// can tell whether an operation that fails over inside makes progress.
const never = time.Duration(1 << 62)

// abilities of the store as they stand. Those of a nested mux change with its backends, those of a service as it shows what it
// can do.
func (b *backend) abilities() Capabilities { return CapabilitiesOf(b.Store) }

// writable tells whether writes may ever go to the backend.
func (b *backend) writable() bool { return !b.ReadOnly && b.abilities().Write }

// canHold tells whether an object of that key can ever be there, by the key rule of the store and without asking it.
func (b *backend) canHold(key string) bool {
	if b.nested == nil {
		return CheckKeyOf(b.Store, key) == nil
	}
	return slices.ContainsFunc(b.nested.snapshot.Load().all, func(in *backend) bool { return in.writable() && in.canHold(key) })
}

// dotted is the backend's name in front of one inside it.
func (b *backend) dotted(inner string) string {
	if inner == "" {
		return b.Name
	}
	return b.Name + "." + inner
}
