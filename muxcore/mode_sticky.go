package muxcore

import (
	"math"
	"slices"
)

// stickyByKey: one backend is asked at a time. Each key has a backend of its own, by hash over those that are up: its
// fnv1a (32 bit) modulo their number, or with rendezvous the one with the highest weighted score, which moves no key that
// it need not. One that fails is followed by the next in the list, or in score. A Put goes to the first that takes it, a
// Delete to all; operations without a key take turns.
var stickyByKey = rule{first: ownBackend, rest: restOfKey}

func ownBackend(m *Mux, p *pool, key string) int {
	switch {
	case key == "":
		return nextInTurn(m, p, key)
	case !m.set.Rendezvous:
		return int(fnv1a(key) % uint32(len(p.ready)))
	}
	best, highest := 0, math.Inf(-1)
	for i, b := range p.ready {
		if s := b.score(key); s > highest {
			best, highest = i, s
		}
	}
	return best
}

func restOfKey(m *Mux, p *pool, key string, first int) []int {
	if key == "" || !m.set.Rendezvous {
		return nil
	}
	rest := make([]int, 0, len(p.ready)-1)
	scores := make([]float64, len(p.ready))
	for i, b := range p.ready {
		scores[i] = b.score(key)
		if i != first {
			rest = append(rest, i)
		}
	}
	slices.SortStableFunc(rest, func(a, b int) int {
		switch {
		case scores[a] > scores[b]:
			return -1
		case scores[a] < scores[b]:
			return 1
		}
		return 0
	})
	return rest
}

// score of key on the backend for weighted rendezvous hashing: -w / ln(h), h being the hash in (0, 1) (Schindelhauer and
// Schomaker, Weighted Distributed Hash Tables, SPAA 2005).
func (b *backend) score(key string) float64 {
	h := mix64(fnv1a64(b.Name) ^ mix64(fnv1a64(key)))
	unit := (float64(h>>11) + 0.5) / (1 << 53)
	return -float64(b.weight.Load()) / math.Log(unit)
}

// fnv1a is the 32-bit FNV-1a hash of the key's bytes.
func fnv1a(s string) uint32 {
	h := uint32(2166136261)
	for i := range len(s) {
		h = (h ^ uint32(s[i])) * 16777619
	}
	return h
}

// fnv1a64 is the 64-bit FNV-1a hash.
func fnv1a64(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}

// mix64 spreads a hash over all its bits: the finalizer of MurmurHash3.
func mix64(h uint64) uint64 {
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
