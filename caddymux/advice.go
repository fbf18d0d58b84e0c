package caddymux

import (
	"fmt"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// advice lists what in the tree is allowed, and yet hardly meant: options that the mode of their mux does not look at, and
// writes that reads will not find.
func (b *branch) advice(writable bool) []string {
	var all []string
	if writable && len(b.members) > 1 && strays(&b.set) {
		all = append(all, b.name+": an object may be on another backend than the one that is asked for it; set on_miss next")
	}
	idle := func(given bool, option, where string) {
		if given {
			all = append(all, fmt.Sprintf("%s: %s has no effect in mode %s, only in %s", b.name, option, b.set.Mode, where))
		}
	}
	mode := b.set.Mode
	idle(b.set.Rendezvous && mode != muxcore.StickyByKey, "hash rendezvous", "sticky_by_key")
	idle(b.set.WriteQuorum != 0 && b.set.WriteQuorum != 1 && mode != muxcore.Mirror, "write_quorum", "mirror")
	idle((b.set.Hedge.Auto || b.set.Hedge.After > 0) && mode == muxcore.Mirror, "hedge", "the modes that do not ask all backends at once")
	idle(b.set.ReadRepair && !b.byDoors && !b.set.OnMissNext && mode != muxcore.Mirror, "read_repair", "mirror and with on_miss next")
	if mode == muxcore.Shield && b.members[0].ReadOnly && writable {
		all = append(all, b.name+": the origin of the shield is read_only, so every write will be refused")
	}
	for i := range b.members {
		if nested := b.members[i].nested; nested != nil {
			all = append(all, nested.advice(writable)...)
		}
	}
	return all
}
