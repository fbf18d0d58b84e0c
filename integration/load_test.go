package integration_test

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/integration/rig"
)

// load is a few clients that ask for /x until they are stopped.
type load struct {
	c        *rig.Caddy
	answered atomic.Int64
	stopped  atomic.Bool
	clients  sync.WaitGroup
}

// loadOn begins to ask c. Every answer must be 200 and "body".
func loadOn(t *testing.T, c *rig.Caddy) *load {
	l := &load{c: c}
	for range 4 {
		l.clients.Go(func() {
			for !l.stopped.Load() {
				r, err := c.Try(rig.Request{Path: "/x"})
				if err != nil {
					continue // a connection that the old listener took and nobody will serve: Caddy's own
				}
				if r.Status != http.StatusOK || r.Cause() != nil || string(r.Body) != "body" {
					t.Errorf("GET under reloads = %d %q, %v", r.Status, r.Body, r.Cause())
					return
				}
				l.answered.Add(1)
			}
		})
	}
	return l
}

// goesOn waits for more answers than there had been before the config changed: seen, and those under way.
func (l *load) goesOn(t *testing.T, seen int64) {
	t.Helper()
	l.c.Eventually(soon, "answers of the new config", func() error {
		if n := l.answered.Load() - seen; n < 8 && !t.Failed() {
			return fmt.Errorf("%d answers", n)
		}
		return nil
	})
}

// stop waits for the clients.
func (l *load) stop() {
	l.stopped.Store(true)
	l.clients.Wait()
}
