package locks

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// lease is a lock that is held.
type lease struct {
	l          *Locker
	name, key  string
	freed      chan struct{} // closed when it was given back
	cancel     context.CancelFunc
	refreshing sync.WaitGroup

	turn  chan struct{} // a place for whoever changes the record, and guards the following
	is    record
	etag  string
	lost  bool
	ended bool
	until time.Time // before which nobody can hold it for stale
}

func newLease(l *Locker, name, key string, is record) *lease {
	return &lease{l: l, name: name, key: key, is: is, freed: make(chan struct{}), turn: make(chan struct{}, 1)}
}

// enter takes the turn; leave must follow if there is no error.
func (le *lease) enter(ctx context.Context) error {
	select {
	case le.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (le *lease) leave() { <-le.turn }

// begin refreshes the lock from now on.
func (le *lease) begin() {
	ctx, cancel := context.WithCancel(context.Background())
	le.cancel = cancel
	le.refreshing.Go(func() { le.keep(ctx) })
}

// keep refreshes the lock until ctx ends or it is lost. After a refresh that failed it tries again soon: there is time for it.
func (le *lease) keep(ctx context.Context) {
	pause := le.l.set.Refresh
	for told := false; ; {
		if le.l.pause(ctx, pause, nil) != nil {
			return
		}
		err := le.renew(ctx)
		if pause = le.l.set.Refresh; err != nil {
			pause = min(pause, le.l.set.Poll)
		}
		switch {
		case err == nil:
			told = false
		case errors.Is(err, ErrLost), ctx.Err() != nil:
			return
		case !told && le.overdue(ctx):
			told = true
			le.l.set.Observe(Event{Kind: EventAtRisk, Name: le.name, Err: err})
		}
	}
}

// overdue tells whether others may hold the lock for stale by now.
func (le *lease) overdue(ctx context.Context) bool {
	if le.enter(ctx) != nil {
		return false
	}
	defer le.leave()
	return !le.l.set.Now().Before(le.until)
}

// renew writes the record once more, with the next number.
func (le *lease) renew(ctx context.Context) error {
	if err := le.enter(ctx); err != nil {
		return err
	}
	defer le.leave()
	switch {
	case le.lost:
		return ErrLost
	case le.ended: // while this one waited for its turn
		return ErrNotHeld
	}
	for tries := 0; ; tries++ {
		next := le.is
		next.Sequence++
		began := le.l.set.Now()
		etag, err := le.l.put(ctx, le.key, next, muxcore.Conditions{IfMatch: le.etag})
		if refused(err) {
			if err = le.recover(ctx, tries); err == nil && le.is.Sequence < next.Sequence {
				continue
			}
			if gone, ok := errors.AsType[goneError](err); ok {
				err = le.lose(gone.owner)
			}
			etag = le.etag // of this very write, if it is there
		}
		if err != nil {
			return err
		}
		le.is, le.etag, le.until = next, etag, began.Add(next.TTL)
		return nil
	}
}

// goneError says that there is no record of ours where there should be one.
type goneError struct {
	taken bool   // by somebody else
	owner string // where known
}

func (goneError) Error() string { return "the lock is gone" }

// recover looks at what is there instead of the record that we know of. If it is ours, then a write of ours went through of
// which we did not hear; else the error is a goneError.
func (le *lease) recover(ctx context.Context, tries int) error {
	now, err := le.l.look(ctx, le.key)
	switch {
	case err != nil:
		return err
	case now == nil, now.Token == le.is.Token && now.Free:
		return goneError{}
	case now.Token == le.is.Token && tries < maxTries:
		le.is, le.etag = now.record, now.etag
		return nil
	}
	return goneError{true, now.Owner}
}

// lose tells that the lock is lost, to its owner by now.
func (le *lease) lose(owner string) error {
	le.lost = true
	le.l.set.Observe(Event{Kind: EventLost, Name: le.name, Owner: owner, Err: ErrLost})
	return ErrLost
}

// end stops refreshing the lock, and gives it back unless it is lost.
func (le *lease) end(ctx context.Context) error {
	le.cancel()
	if err := le.enter(ctx); err != nil { // a refresh hangs
		return err
	}
	defer le.leave()
	le.refreshing.Wait() // it cannot be in the turn any more, nor enter it
	le.ended = true
	if le.lost {
		return nil
	}
	var err error
	for sent := range maxTries {
		err = le.remove(ctx, sent > 0)
		if err == nil || errors.Is(err, ErrLost) || errors.Is(err, goneError{}) {
			return nil
		}
		if !passing(ctx, err) || le.l.pause(ctx, le.l.set.Poll, nil) != nil {
			break
		}
	}
	return err
}

// maxTries is how often a lock is given back to a store that fails, and how often a record of ours may turn up that we did
// not know of.
const maxTries = 3

// remove takes the record away, if it is still ours. again says that this was tried before, and may have been done although we were
// told that it failed: then it is no loss if others have the lock. It must be called in the turn.
func (le *lease) remove(ctx context.Context, again bool) error {
	for tries := 0; ; tries++ {
		err := le.l.drop(ctx, le.key, le.is.Token, le.etag)
		if err == nil || !refused(err) {
			return err
		}
		err = le.recover(ctx, tries)
		if gone, ok := errors.AsType[goneError](err); ok && gone.taken && !again {
			return le.lose(gone.owner)
		} else if ok {
			return goneError{}
		}
		if err != nil {
			return err
		}
	}
}
