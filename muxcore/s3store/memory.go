package s3store

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

const (
	memoryParts = 16 // of bodies under way in memory, unless the settings say otherwise

	// memoryTime is how long an upload that cannot do without memory waits for some: less than it takes until a backend that
	// makes no progress is held to be down, which it is not.
	memoryTime = 5 * time.Second
)

var errMemory = errors.New("all memory for uploads is in use")

// memory is what the bodies under way may take, of all uploads of a store together. Who waits for some is served in turn. It is
// safe for concurrent use.
type memory struct {
	most int64

	mu    sync.Mutex
	used  int64
	queue []*claim
}

// claim is somebody's who waits.
type claim struct {
	size    int64
	granted chan struct{}
}

// take takes memory if there is some at once, and spare is left of it.
func (m *memory) take(size, spare int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.queue) == 0 && m.grant(size, spare)
}

// grant must be called with m.mu held. What is larger than all of it is taken alone.
func (m *memory) grant(size, spare int64) bool {
	if m.used+size > m.most-spare && (m.used > 0 || spare > 0) {
		return false
	}
	m.used += size
	return true
}

// wait takes memory as soon as there is some, within memoryTime.
func (m *memory) wait(ctx context.Context, size int64) error {
	m.mu.Lock()
	if len(m.queue) == 0 && m.grant(size, 0) {
		m.mu.Unlock()
		return nil
	}
	c := &claim{size, make(chan struct{})}
	m.queue = append(m.queue, c)
	m.mu.Unlock()
	late := time.NewTimer(memoryTime)
	defer late.Stop()
	select {
	case <-c.granted:
		return nil
	case <-late.C:
	case <-ctx.Done():
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	i := slices.Index(m.queue, c)
	if i < 0 {
		return nil // at the last moment
	}
	m.queue = slices.Delete(m.queue, i, i+1)
	m.serve() // it may have stood before smaller ones
	if err := ctx.Err(); err != nil {
		return err
	}
	return &muxcore.Error{Code: muxcore.CodeUnavailable, Unsure: true, RetryAfter: time.Second, Err: errMemory}
}

// giveBack gives memory to those who wait.
func (m *memory) giveBack(size int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used -= size
	m.serve()
}

// serve must be called with m.mu held.
func (m *memory) serve() {
	for len(m.queue) > 0 && m.grant(m.queue[0].size, 0) {
		close(m.queue[0].granted)
		m.queue = m.queue[1:]
	}
}
