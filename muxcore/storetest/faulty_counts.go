package storetest

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// Calls is how often op was asked for.
func (f *Faulty) Calls(op muxcore.Op) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[op]
}

// AllCalls is how often anything was asked for.
func (f *Faulty) AllCalls() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, calls := range f.calls {
		n += calls
	}
	return n
}

// Keys are the keys of the calls of op, in their order; the prefixes for [muxcore.OpList].
func (f *Faulty) Keys(op muxcore.Op) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.keys[op])
}

// InFlight is how many calls have not returned. An open body is none.
func (f *Faulty) InFlight() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.inFlight
}

// MostInFlight is how many calls there were at once.
func (f *Faulty) MostInFlight() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.most
}

// Stalled is how many calls and bodies wait for Release.
func (f *Faulty) Stalled() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stalled
}

// OpenBodies is how many bodies were opened and not closed.
func (f *Faulty) OpenBodies() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.bodies)
}

// AwaitStalled waits until n calls and bodies stall at once.
func (f *Faulty) AwaitStalled(ctx context.Context, n int) error {
	return f.await(ctx, fmt.Sprintf("%d stalled calls", n), func() bool { return f.stalled >= n })
}

// AwaitCalls waits until op was asked for n times.
func (f *Faulty) AwaitCalls(ctx context.Context, op muxcore.Op, n int) error {
	return f.await(ctx, fmt.Sprintf("%d calls of %s", n, op), func() bool { return f.calls[op] >= n })
}

// AwaitIdle waits until no call is in flight and no body is open.
func (f *Faulty) AwaitIdle(ctx context.Context) error {
	return f.await(ctx, "the end of all calls and bodies", func() bool { return f.inFlight == 0 && len(f.bodies) == 0 })
}

func (f *Faulty) await(ctx context.Context, what string, met func() bool) error {
	for {
		f.mu.Lock()
		ok, changed := met(), f.changed
		f.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", what, ctx.Err())
		}
	}
}

// Leaks names what was opened and not closed, and what has not returned.
func (f *Faulty) Leaks() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var leaks []string
	for _, how := range f.bodies {
		leaks = append(leaks, "open body: "+how)
	}
	slices.Sort(leaks)
	if f.inFlight > 0 {
		leaks = append(leaks, fmt.Sprintf("calls that have not returned: %d", f.inFlight))
	}
	return leaks
}

// CheckLeaks fails tb if anything leaks. Call it at the end of a test, when all has settled.
func (f *Faulty) CheckLeaks(tb testing.TB) {
	tb.Helper()
	for _, leak := range f.Leaks() {
		tb.Error(leak)
	}
}
