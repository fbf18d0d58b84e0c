package locks

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// trial is whether the store was seen to honour conditions.
type trial struct {
	turn    chan struct{} // a place for whoever tries it, and guards left
	left    string        // the key of a trial that could not be removed
	passed  atomic.Bool
	deletes atomic.Bool // conditions of deletes as well
}

// try tries out, once, whether the store refuses what it must: an endpoint that takes If-None-Match and If-Match for words
// without a meaning would give a lock to everybody.
func (l *Locker) try(ctx context.Context) error {
	if l.trial.passed.Load() {
		return nil
	}
	select {
	case l.trial.turn <- struct{}{}:
		defer func() { <-l.trial.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if l.trial.passed.Load() {
		return nil
	}
	if l.trial.left != "" {
		if err := l.clear(ctx, l.trial.left); err != nil {
			return err
		}
	}
	// No name of a lock gives a key with a tilde.
	key := muxcore.LockPrefix + "~trial-" + newToken()
	err := l.experiment(ctx, key)
	if left := l.clear(context.WithoutCancel(ctx), key); err == nil {
		err = left
	}
	l.trial.passed.Store(err == nil)
	return err
}

// clear removes what a trial has written. What cannot be removed is for the next trial to remove.
func (l *Locker) clear(ctx context.Context, key string) error {
	err := l.remove(ctx, key, muxcore.Conditions{})
	if err == nil || refused(err) {
		l.trial.left = ""
		return nil
	}
	l.trial.left = key
	return err
}

// experiment writes to key what has to be taken and what has to be refused.
func (l *Locker) experiment(ctx context.Context, key string) error {
	var etag string
	for _, step := range []struct {
		what string
		cond func() muxcore.Conditions
		want bool
	}{
		{"If-None-Match: * on nothing", func() muxcore.Conditions { return muxcore.Conditions{IfNoneMatch: "*"} }, true},
		{"If-None-Match: * on an object", func() muxcore.Conditions { return muxcore.Conditions{IfNoneMatch: "*"} }, false},
		{"If-Match on another object", func() muxcore.Conditions { return muxcore.Conditions{IfMatch: `"another"`} }, false},
		{"If-Match on the object", func() muxcore.Conditions { return muxcore.Conditions{IfMatch: etag} }, true},
	} {
		now, err := l.put(ctx, key, record{Token: newToken(), Free: true}, step.cond())
		switch {
		case err != nil && !refused(err) && !errors.Is(err, muxcore.ErrUnsupported):
			return err
		case (err == nil) != step.want:
			return &muxcore.Error{Code: muxcore.CodeUnsupported, Key: key, Err: fmt.Errorf("%w: a write with %s %s", ErrNotHonoured, step.what, wentHow(err))}
		case err == nil:
			etag = now
		}
	}
	// A store may see for itself that the object is another one, and yet have nobody to decide that in one step.
	deletes := refused(l.remove(ctx, key, muxcore.Conditions{IfMatch: `"another"`})) && l.remove(ctx, key, muxcore.Conditions{IfMatch: etag}) == nil
	l.trial.deletes.Store(deletes)
	return nil
}

func wentHow(err error) string {
	if err == nil {
		return "went through"
	}
	return "was refused: " + err.Error()
}
