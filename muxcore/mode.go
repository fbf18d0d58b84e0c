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
