// Package reload loads configs into the Caddy of a test's process.
//
// Caddy ends the servers of the config before in the background: for a while they go on taking connections of a socket
// that they share with the new ones, and serve them by modules that are gone. A test that asks right after a reload
// would be answered by either.
package reload

import (
	"runtime"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/suaveplan/caddy-storage-mux/internal/acceptors"
)

// Load has Caddy run a config, and returns when no other one takes connections any more: the servers of the config
// before, or those that this one started before it failed.
func Load(config []byte) error {
	before := acceptors.In(stacks())
	err := caddy.Load(config, true)
	for {
		over := true
		for id := range acceptors.In(stacks()) {
			if before[id] == (err == nil) {
				over = false
			}
		}
		if over {
			return err
		}
		<-time.After(time.Millisecond)
	}
}

func stacks() string {
	for size := 1 << 20; ; size *= 2 {
		all := make([]byte, size)
		if n := runtime.Stack(all, true); n < size {
			return string(all[:n])
		}
	}
}
