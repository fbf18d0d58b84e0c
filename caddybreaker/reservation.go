package caddybreaker

import "context"

// reservationVar holds the call that the policy admitted for the transport.
const reservationVar = "relay_breaker.reservation"

// reserve admits the call before the transport is called, so that it cannot be
// refused there: many requests see the same free place of a half-open path, or a
// path that is closed until it trips a moment later. It reports whether the path
// can be used. A place that no call claims is free again when the request ends.
func (s *Selection) reserve(ctx context.Context, vars map[string]any, g *guard) bool {
	if g == nil { // nobody called it yet, or nobody can
		noteNobody(ctx)
		return true
	}
	permit, err := g.entry.breaker.TryAllow()
	switch {
	case err != nil:
		return false
	case vars == nil:
		permit.Neutral() // not a request that is served: nobody would claim it
		return true
	case !s.reported && !permit.Holds():
		return true
	}
	b := &trackedBody{call: call{guard: g, permit: permit}}
	b.keepPlace()
	if b.holds() {
		b.leave = context.AfterFunc(ctx, b.drop)
	}
	vars[reservationVar] = b
	return true
}

// claim returns the call that the policy admitted for g, or has it admitted now.
func claim(ctx context.Context, vars map[string]any, g *guard) (*trackedBody, error) {
	if b, ok := vars[reservationVar].(*trackedBody); ok && b.guard == g && b.claimed.CompareAndSwap(false, true) {
		b.stopWaiting()
		b.ctx = ctx
		return b, nil
	}
	permit, err := g.entry.breaker.Allow()
	if err != nil {
		return nil, err
	}
	b := &trackedBody{call: call{guard: g, permit: permit}, ctx: ctx}
	b.keepPlace()
	b.claimed.Store(true)
	return b, nil
}

// drop gives back what was not claimed.
func (b *trackedBody) drop() {
	if b.claimed.CompareAndSwap(false, true) {
		b.permit.Neutral()
		b.isOver()
	}
}

func dropReservation(vars map[string]any) {
	if b, ok := vars[reservationVar].(*trackedBody); ok {
		b.drop()
		delete(vars, reservationVar)
	}
}
