package muxcore

import (
	"sync/atomic"
	"time"
)

// backend is a member of a mux at run time. It outlives the views that list it: an operation that started on one ends on it.
type backend struct {
	Backend // as configured; Weight is only where it began
	waits   Waits
	caps    Capabilities
	nested  *Mux // Store, where it is a mux

	weight  atomic.Int64 // as it stands
	checker atomic.Pointer[checker]
	drain   drainState
	reads   health
	writes  health
	stats   counters
}

func newBackend(cfg Backend, timeout time.Duration, now time.Time) *backend {
	b := &backend{Backend: cfg, waits: WaitsOf(cfg.Store), caps: CapabilitiesOf(cfg.Store)}
	b.nested, _ = cfg.Store.(*Mux)
	if b.Timeout == 0 {
		b.Timeout = timeout
	}
	b.weight.Store(1)
	if cfg.Weight != nil {
		b.weight.Store(int64(*cfg.Weight))
	}
	b.reads.since, b.writes.since = now, now
	return b
}

// health of the kind of operation that op is: a backend whose writes fail keeps serving reads.
func (b *backend) health(op Op) *health {
	if op.Writes() {
		return &b.writes
	}
	return &b.reads
}

// writable tells whether writes may ever go to the backend.
func (b *backend) writable() bool { return !b.ReadOnly && b.caps.Write }

// dotted is the backend's name in front of one inside it.
func (b *backend) dotted(inner string) string {
	if inner == "" {
		return b.Name
	}
	return b.Name + "." + inner
}
