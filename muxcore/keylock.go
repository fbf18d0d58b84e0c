package muxcore

import (
	"context"
	"sync"
)

// keyLocks put the commits of one key in an order that is the same on every backend: two writes at the same time would
// else end in one order here and in another there. The zero value is ready to use.
type keyLocks struct {
	mu    sync.Mutex
	locks map[string]*keyLock
}

// keyLock is held while its channel is full.
type keyLock struct {
	held  chan struct{}
	users int
}

// lock waits for the key's turn, or for the end of ctx. unlock must be called, and only if there is no error.
func (k *keyLocks) lock(ctx context.Context, key string) (unlock func(), err error) {
	k.mu.Lock()
	if k.locks == nil {
		k.locks = make(map[string]*keyLock)
	}
	l := k.locks[key]
	if l == nil {
		l = &keyLock{held: make(chan struct{}, 1)}
		k.locks[key] = l
	}
	l.users++
	k.mu.Unlock()
	select {
	case l.held <- struct{}{}:
		return func() {
			<-l.held
			k.leave(key, l)
		}, nil
	case <-ctx.Done():
		k.leave(key, l)
		return nil, context.Cause(ctx)
	}
}

// leave forgets a lock that nobody uses.
func (k *keyLocks) leave(key string, l *keyLock) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.users--; l.users == 0 {
		delete(k.locks, key)
	}
}
