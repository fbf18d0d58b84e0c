package muxcore

// roundRobin: one backend is asked at a time. Each operation begins with the one after that with which the last began,
// of those that are up. One that fails is followed by the next in turn. A Put goes to the first that takes it, a Delete to all.
var roundRobin = rule{first: nextInTurn}

func nextInTurn(m *Mux, p *pool, _ string) int {
	return int((m.turn.Add(1) - 1) % uint64(len(p.ready)))
}
