package muxcore

import (
	"context"
	"errors"
	"io"
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

// turn is an operation's turn to commit at a key: taken once, and kept to the operation's end.
type turn struct {
	locks  *keyLocks
	key    string
	unlock func()
}

// take waits for the turn, unless the operation has it.
func (t *turn) take(ctx context.Context) (err error) {
	if t.unlock == nil {
		t.unlock, err = t.locks.lock(ctx, t.key)
	}
	return err
}

// end gives the turn to the next.
func (t *turn) end() {
	if t.unlock != nil {
		t.unlock()
		t.unlock = nil
	}
}

// before is src, whose end waits for the turn, and for ready in it: a store commits at the end of a body.
func (t *turn) before(ctx context.Context, src io.Reader, ready func() error) io.Reader {
	return readerFunc(func(p []byte) (int, error) {
		n, err := src.Read(p)
		if errors.Is(err, io.EOF) {
			late := t.take(ctx)
			if late == nil {
				late = ready()
			}
			if late != nil {
				return 0, late
			}
		}
		return n, err
	})
}

// readerFunc makes a function a reader.
type readerFunc func(p []byte) (int, error)

// Read implements io.Reader.
func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
