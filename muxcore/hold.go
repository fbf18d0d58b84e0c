package muxcore

import (
	"sync/atomic"
	"time"
)

const (
	// maxAbandoned is how many calls of a backend may hang on without anybody waiting for them. Beyond, it is not asked.
	maxAbandoned = 64

	// hangTime is how long none of them must have come back for that: a store that is merely busy goes on.
	hangTime = time.Second
)

// holds are the reasons why a backend's store may not be closed yet: that it is a member, and each goroutine inside of it.
type holds struct {
	n         atomic.Int64 // closed at 0
	abandoned atomic.Int64 // goroutines that nobody waits for
	moved     atomic.Int64 // when one of too many last came back, or when they became too many: Unix time in nanoseconds
}

// overrun tells whether too many calls hang on.
func (b *backend) overrun() bool {
	return b.holds.abandoned.Load() > maxAbandoned && time.Now().UnixNano()-b.holds.moved.Load() > int64(hangTime)
}

// letGo gives back a hold on the store. The last one closes it.
func (b *backend) letGo() error {
	if b.holds.n.Add(-1) > 0 {
		return nil
	}
	if b.Release != nil {
		return b.Release()
	}
	return Close(b.Store)
}

// holdAll keeps the stores of all backends open, whatever their state, until release is called.
func (m *Mux) holdAll() (held []*backend, release func()) {
	for _, b := range m.snapshot.Load().all {
		for n := b.holds.n.Load(); n > 0; n = b.holds.n.Load() {
			if b.holds.n.CompareAndSwap(n, n+1) {
				held = append(held, b)
				break
			}
		}
	}
	return held, func() {
		for _, b := range held {
			_ = b.letGo()
		}
	}
}

// hold keeps a backend's store open for a goroutine that may be abandoned. Whoever is first decides: it has ended in
// time, or it was abandoned.
type hold struct {
	b    *backend
	over atomic.Bool
}

func (b *backend) hold() *hold {
	b.holds.n.Add(1)
	return &hold{b: b}
}

// ended is what the goroutine says when it is out of the store. It tells whether it was in time; if not, it has to clear
// up after itself. [backend.letGo] must follow.
func (h *hold) ended() bool {
	if !h.over.Swap(true) {
		return true
	}
	h.b.holds.count(-1)
	return false
}

// abandon leaves the goroutine behind, and tells whether it was still inside.
func (h *hold) abandon() bool {
	if h.over.Swap(true) {
		return false
	}
	h.b.holds.count(1)
	return true
}

func (s *holds) count(by int64) {
	if n := s.abandoned.Add(by); by < 0 && n >= maxAbandoned || n == maxAbandoned+1 {
		s.moved.Store(time.Now().UnixNano())
	}
}
