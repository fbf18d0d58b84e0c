package locks

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/safekey"
)

const (
	// maxRecord is more than any record takes.
	maxRecord = 4 << 10

	// maxTTL bounds what a record may ask for: a damaged one must not block a lock for ever.
	maxTTL = time.Hour

	// maxConflicts is how often a record is written, all told, to a store that says its place is taken by a folder or below
	// an object.
	maxConflicts = 5
)

// record is what a lock's object says.
type record struct {
	Token    string        `json:"token"`          // new with every lock that is taken
	Sequence uint64        `json:"sequence"`       // one more with every refresh
	TTL      time.Duration `json:"ttl"`            // in nanoseconds
	Owner    string        `json:"owner"`          // for people
	Free     bool          `json:"free,omitempty"` // it was given back
}

// found is a record in the store.
type found struct {
	record
	etag string
}

// sighting is when a record was first seen as it is.
type sighting struct {
	etag  string
	since time.Time
}

func newToken() string { return rand.Text() }

// keyOf is where the lock of that name lives. Names are anything, with or without slashes.
func keyOf(name string) string { return muxcore.LockPrefix + safekey.Segment(name+".lock") }

// take takes the lock if it is free, or stale by what was seen of it. It is nil if somebody has it.
func (l *Locker) take(ctx context.Context, name string) (*lease, error) {
	key := keyOf(name)
	now, err := l.look(ctx, key)
	if err != nil {
		return nil, err
	}
	stale := l.stale(name, now)
	var cond muxcore.Conditions
	switch {
	case now == nil:
		cond.IfNoneMatch = "*"
	case now.Free, stale:
		cond.IfMatch = now.etag
	default:
		return nil, nil
	}
	le := newLease(l, name, key, record{Token: newToken(), Sequence: 1, TTL: l.set.TTL, Owner: l.set.Owner})
	if ok, err := le.claim(ctx, cond); err != nil || !ok {
		return nil, err
	}
	l.forget(name)
	if stale && !now.Free {
		l.set.Observe(Event{Kind: EventTakenOver, Name: name, Owner: now.Owner})
	}
	return le, nil
}

// claim writes the first record of a lock. It is false if somebody else was faster.
func (le *lease) claim(ctx context.Context, cond muxcore.Conditions) (bool, error) {
	began := le.l.set.Now()
	etag, err := le.l.put(ctx, le.key, le.is, cond)
	if refused(err) {
		// Perhaps by itself: a client that asks again after a broken connection finds its own record.
		now, lookErr := le.l.look(ctx, le.key)
		if lookErr != nil || now == nil || now.Token != le.is.Token {
			return false, lookErr
		}
		etag, err = now.etag, nil
	}
	if err != nil {
		_ = le.l.drop(context.WithoutCancel(ctx), le.key, le.is.Token, le.is.etag()) // it may be there all the same
		return false, err
	}
	le.etag, le.until = etag, began.Add(le.is.TTL)
	return true, nil
}

// stale tells whether the record has not changed for its whole time to live, as far as this locker has seen it.
func (l *Locker) stale(name string, now *found) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now == nil {
		delete(l.seen, name)
		return false
	}
	at := l.set.Now()
	before, ok := l.seen[name]
	if !ok || before.etag != now.etag {
		l.prune(at)
		l.seen[name] = sighting{now.etag, at}
		return false
	}
	return at.Sub(before.since) >= min(max(now.TTL, l.set.TTL), maxTTL)
}

// prune forgets what was seen so long ago that nobody waits for it. It must be called with l.mu held.
func (l *Locker) prune(at time.Time) {
	for name, s := range l.seen {
		if at.Sub(s.since) > 24*maxTTL {
			delete(l.seen, name)
		}
	}
}

func (l *Locker) forget(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.seen, name)
}

// etag is the identity to store a record with.
func (r *record) etag() string { return fmt.Sprintf("%q", fmt.Sprintf("%s-%d", r.Token, r.Sequence)) }

// refused tells whether the conditions of a write did not hold.
func refused(err error) bool {
	return errors.Is(err, muxcore.ErrPreconditionFailed) || errors.Is(err, muxcore.ErrKeyNotFound)
}

// look reads the record at key; nil if there is none. What is no record counts as one that somebody has, until it is stale.
func (l *Locker) look(ctx context.Context, key string) (*found, error) {
	now, err := call(ctx, l, func(ctx context.Context) (*found, error) {
		o, err := l.store.Get(ctx, key, muxcore.GetOptions{})
		if err != nil {
			return nil, err
		}
		defer func() { _ = o.Body.Close() }()
		text, err := io.ReadAll(io.LimitReader(o.Body, maxRecord))
		if err != nil {
			return nil, err
		}
		now := &found{etag: o.ETag}
		if json.Unmarshal(text, &now.record) != nil {
			now.record = record{Owner: "unknown"}
		}
		return now, nil
	})
	if errors.Is(err, muxcore.ErrKeyNotFound) {
		return nil, nil
	}
	return now, err
}

// put writes a record on conditions, and gives its ETag in the store. Some stores remove a folder with its last object, and take
// it for a conflict if somebody else writes there at that moment: that is a race which was lost, unless it goes on.
func (l *Locker) put(ctx context.Context, key string, r record, cond muxcore.Conditions) (etag string, err error) {
	text, err := json.Marshal(r)
	if err != nil {
		return "", err
	}
	opts := muxcore.PutOptions{ETag: r.etag(), Conditions: cond}
	opts.ContentType = "application/json"
	for tries := 1; ; tries++ {
		etag, err = call(ctx, l, func(ctx context.Context) (string, error) {
			result, err := l.store.Put(ctx, key, bytes.NewReader(text), int64(len(text)), opts)
			return result.ETag, err
		})
		if !errors.Is(err, muxcore.ErrKeyConflict) || tries == maxConflicts || l.pause(ctx, l.set.Poll/16, nil) != nil {
			return etag, err
		}
	}
}

// drop removes the record that has this token and ETag. Where deletes know no conditions, it is marked as free instead: between a look
// and a delete somebody else could take it.
func (l *Locker) drop(ctx context.Context, key, token, etag string) error {
	cond := muxcore.Conditions{IfMatch: etag}
	if l.trial.deletes.Load() {
		return l.remove(ctx, key, cond)
	}
	_, err := l.put(ctx, key, record{Token: token, Free: true}, cond)
	return err
}

func (l *Locker) remove(ctx context.Context, key string, cond muxcore.Conditions) error {
	_, err := call(ctx, l, func(ctx context.Context) (muxcore.DeleteResult, error) {
		return l.store.Delete(ctx, key, muxcore.DeleteOptions{Conditions: cond})
	})
	return err
}

// call calls the store, and gives up on it after the timeout. A store whose calls may hang on is left behind then.
func call[T any](ctx context.Context, l *Locker, f func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, l.set.Timeout, &muxcore.Error{Code: muxcore.CodeBackendTimeout, Err: errNoAnswer})
	defer cancel()
	type outcome struct {
		value T
		err   error
	}
	done := make(chan outcome, 1)
	run := func() {
		value, err := f(ctx)
		done <- outcome{value, err}
	}
	if muxcore.WaitsOf(l.store) == muxcore.WaitsUnbounded {
		go run()
	} else {
		run()
	}
	select {
	case o := <-done:
		if o.err != nil && ctx.Err() != nil {
			o.err = context.Cause(ctx)
		}
		return o.value, o.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}
