package muxcore

import (
	"fmt"
	"slices"
	"strings"
)

// Mode is the rule by which a mux composes its backends.
type Mode string

// The modes.
const (
	Failover    Mode = "failover"
	RoundRobin  Mode = "round_robin"
	Weighted    Mode = "weighted"
	StickyByKey Mode = "sticky_by_key"
	Shield      Mode = "shield"
	Mirror      Mode = "mirror"
)

// rule is what a mode is to the rest of the mux: an order in which backends are asked, and what asking means.
type rule struct {
	// first picks, from the ready backends of a pool, who is asked first. It is called only if there is a choice.
	first func(m *Mux, p *pool, key string) int

	// rest is the order of the others, should the first not answer. nil: in turn, after the first.
	rest func(m *Mux, p *pool, key string, first int) []int

	race   bool // reads ask all at once, and a miss is final only when all have said it
	fanout bool // a Put goes to all writable backends
	origin bool // the first backend decides a Put, and must be there
}

// rules is the one table of modes.
var rules = map[Mode]rule{
	Failover:    failover,
	RoundRobin:  roundRobin,
	Weighted:    weighted,
	StickyByKey: stickyByKey,
	Shield:      shield,
	Mirror:      mirror,
}

// Modes lists the modes a mux can have.
func Modes() []Mode { return []Mode{Failover, RoundRobin, Weighted, StickyByKey, Shield, Mirror} }

// ParseMode reads a mode's name; hyphens are as good as underscores. The error lists the known ones.
func ParseMode(name string) (Mode, error) {
	mode := Mode(strings.ReplaceAll(name, "-", "_"))
	if slices.Contains(Modes(), mode) {
		return mode, nil
	}
	return "", fmt.Errorf("unknown mode %q, known are %v", name, Modes())
}
