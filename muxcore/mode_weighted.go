package muxcore

// weighted: one backend is asked at a time. The first is drawn at random in proportion to the weights of those that are
// up, in constant time (see aliasTable). One that fails is followed by further draws, and at last by whoever was not
// drawn. A Put goes to the first that takes it, a Delete to all.
var weighted = rule{first: drawFirst, rest: drawRest}

func drawFirst(m *Mux, p *pool, _ string) int { return p.alias.draw(m.set.Float64()) }

// drawRest draws again, as often as there are backends, and then takes what is left in order.
func drawRest(m *Mux, p *pool, _ string, first int) []int {
	n := len(p.ready)
	drawn := make([]bool, n)
	drawn[first] = true
	rest := make([]int, 0, n-1)
	take := func(i int) {
		if !drawn[i] {
			drawn[i] = true
			rest = append(rest, i)
		}
	}
	for range n {
		take(p.alias.draw(m.set.Float64()))
	}
	for i := range n {
		take(i)
	}
	return rest
}

// aliasTable draws an index in proportion to weights in constant time: Walker's alias method (Electronics Letters 10,
// 1974), built as Vose showed (IEEE Transactions on Software Engineering 17, 1991). It is immutable.
type aliasTable struct {
	keep  []float64 // chance to stay in a slot
	other []int     // where to go else
}

// newAliasTable makes the table of backends with positive weights, at least one.
func newAliasTable(backends []*backend) *aliasTable {
	n := len(backends)
	t := &aliasTable{keep: make([]float64, n), other: make([]int, n)}
	share := make([]float64, n) // of the average, which is 1
	sum := 0.0
	for _, b := range backends {
		sum += float64(b.weight.Load())
	}
	var small, large []int
	for i, b := range backends {
		share[i] = float64(b.weight.Load()) * float64(n) / sum
		t.keep[i], t.other[i] = 1, i
		if share[i] < 1 {
			small = append(small, i)
		} else {
			large = append(large, i)
		}
	}
	for len(small) > 0 && len(large) > 0 {
		s, l := small[len(small)-1], large[len(large)-1]
		small = small[:len(small)-1]
		t.keep[s], t.other[s] = share[s], l
		share[l] -= 1 - share[s]
		if share[l] < 1 {
			large = large[:len(large)-1]
			small = append(small, l)
		}
	}
	return t
}

// draw turns one random number in [0, 1) into an index: its whole part chooses the slot, its fraction whether to stay.
func (t *aliasTable) draw(random float64) int {
	at := random * float64(len(t.keep))
	slot := min(int(at), len(t.keep)-1)
	if at-float64(slot) < t.keep[slot] {
		return slot
	}
	return t.other[slot]
}
