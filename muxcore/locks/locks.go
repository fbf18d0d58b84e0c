package locks

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// Settings of a locker. The zero value works.
type Settings struct {
	// TTL is how long a lock outlives a holder that is gone. Default: 20s.
	TTL time.Duration

	// Refresh is the pause between refreshes of a lock that is held. Default: a quarter of TTL.
	Refresh time.Duration

	// Poll is the longest pause between looks at a lock that somebody else holds. Default: 1s.
	Poll time.Duration

	// Timeout of each call to the store. Default: a quarter of TTL, so that a refresh that hangs leaves time for others; at most 10s.
	Timeout time.Duration

	// Owner says to people whose locks these are. Default: the host's name and the process's number.
	Owner string

	// Observe is told of what happens to locks. It must be fast and safe for concurrent use. Default: nobody.
	Observe func(Event)

	// Now reads the clock. Default: time.Now.
	Now func() time.Time

	// Float64 is a random number in [0, 1). Default: math/rand/v2.
	Float64 func() float64
}

// EventKind says what happened to a lock.
type EventKind string

// What happens to locks.
const (
	EventTakenOver EventKind = "taken-over" // its holder was gone, and now it is ours
	EventAtRisk    EventKind = "at-risk"    // it could not be refreshed within its time to live: others may take it
	EventLost      EventKind = "lost"       // somebody else has it, or has removed it, while we thought it was ours
)

// Event is one of them.
type Event struct {
	Kind  EventKind
	Name  string // of the lock
	Owner string // the other one, where known
	Err   error
}

var (
	// ErrNotHeld is why a lock cannot be given back or renewed.
	ErrNotHeld = errors.New("this lock is not held")

	// ErrLost is why a lock that was held cannot be renewed.
	ErrLost = errors.New("this lock was lost")

	// ErrNotHonoured is why there can be no locks in a store.
	ErrNotHonoured = errors.New("conditional writes are not honoured, so there can be no locks here")

	errNoAnswer = errors.New("no answer from the store of the locks in time")
)

// Locker takes locks in one store. It is safe for concurrent use.
type Locker struct {
	store muxcore.Store
	set   Settings
	trial trial

	mu   sync.Mutex
	held map[string][]*lease // by name, oldest first: all but the last are lost
	seen map[string]sighting // of others' locks, by name
}

// New makes a locker of a store with Capabilities.Locks. It calls nobody.
func New(store muxcore.Store, set Settings) (*Locker, error) {
	if !muxcore.CapabilitiesOf(store).Locks {
		return nil, &muxcore.Error{Code: muxcore.CodeUnsupported, Err: errors.New("locks: the store decides conditional writes for itself alone, or not at all")}
	}
	for name, d := range map[string]time.Duration{"TTL": set.TTL, "Refresh": set.Refresh, "Poll": set.Poll, "Timeout": set.Timeout} {
		if d < 0 {
			return nil, fmt.Errorf("locks: %s: must not be negative, got %v", name, d)
		}
	}
	set.fillIn()
	if set.Refresh >= set.TTL {
		return nil, fmt.Errorf("locks: Refresh: must be shorter than TTL, got %v and %v", set.Refresh, set.TTL)
	}
	return &Locker{
		store: store, set: set, trial: trial{turn: make(chan struct{}, 1)},
		held: make(map[string][]*lease), seen: make(map[string]sighting),
	}, nil
}

func (s *Settings) fillIn() {
	for _, field := range []struct {
		d       *time.Duration
		initial func() time.Duration
	}{
		{&s.TTL, func() time.Duration { return 20 * time.Second }},
		{&s.Refresh, func() time.Duration { return s.TTL / 4 }},
		{&s.Poll, func() time.Duration { return time.Second }},
		{&s.Timeout, func() time.Duration { return min(10*time.Second, s.TTL/4) }},
	} {
		if *field.d == 0 {
			*field.d = field.initial()
		}
	}
	if s.Owner == "" {
		host, _ := os.Hostname() // without a name, the number has to do
		s.Owner = fmt.Sprintf("%s (process %d)", host, os.Getpid())
	}
	if s.Observe == nil {
		s.Observe = func(Event) {}
	}
	if s.Now == nil {
		s.Now = time.Now
	}
	if s.Float64 == nil {
		s.Float64 = rand.Float64
	}
}

// Lock takes the lock of that name, and waits for it until ctx ends.
func (l *Locker) Lock(ctx context.Context, name string) error {
	var giveUp time.Time // on a store that fails while we wait
	for pause := l.set.Poll / 16; ; pause = min(2*pause, l.set.Poll) {
		freed := l.freed(name)
		held, err := l.attempt(ctx, name)
		switch {
		case held:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil:
			giveUp = l.set.Now().Add(l.set.TTL)
		case !passing(ctx, err) || !l.set.Now().Before(giveUp):
			return err
		}
		if err := l.pause(ctx, pause, freed); err != nil {
			return err
		}
	}
}

// passing tells whether an error says that the store has failed for now, and not that it refuses.
func passing(ctx context.Context, err error) bool {
	class := muxcore.Classify(ctx, err)
	return class == muxcore.ClassTransient || class == muxcore.ClassTimeout
}

// pause waits for about d, spread so that those who wait for one lock do not fall into step, or for the end of either.
func (l *Locker) pause(ctx context.Context, d time.Duration, freed <-chan struct{}) error {
	timer := time.NewTimer(time.Duration(float64(d) * (0.5 + l.set.Float64()/2)))
	defer timer.Stop()
	select {
	case <-freed:
		return nil
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// freed is closed when this locker gives back the lock of that name; nil if it does not hold it.
func (l *Locker) freed(name string) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if all := l.held[name]; len(all) > 0 {
		return all[len(all)-1].freed
	}
	return nil
}

// TryLock takes the lock of that name if it is free, or its holder is known to be gone: the lock was seen unchanged, by this
// locker, for its whole time to live.
func (l *Locker) TryLock(ctx context.Context, name string) (bool, error) {
	return l.attempt(ctx, name)
}

// attempt takes the lock if it can be had now.
func (l *Locker) attempt(ctx context.Context, name string) (bool, error) {
	err := l.try(ctx)
	var le *lease
	if err == nil {
		le, err = l.take(ctx, name)
	}
	if err != nil {
		return false, fmt.Errorf("locking %q: %w", name, err)
	}
	if le == nil {
		return false, nil
	}
	le.begin() //nolint:contextcheck // a lock outlives the call that takes it
	l.mu.Lock()
	l.held[name] = append(l.held[name], le)
	l.mu.Unlock()
	return true, nil
}

// Unlock gives back a lock that this locker holds. One that was lost meanwhile is left to whoever has it. After an error the
// lock may be there still, and runs out by itself.
func (l *Locker) Unlock(ctx context.Context, name string) error {
	l.mu.Lock()
	le := l.oldest(name)
	if le != nil {
		l.held[name] = l.held[name][1:]
		if len(l.held[name]) == 0 {
			delete(l.held, name)
		}
	}
	l.mu.Unlock()
	if le == nil {
		return fmt.Errorf("unlocking %q: %w", name, ErrNotHeld)
	}
	defer close(le.freed)
	if err := le.end(ctx); err != nil {
		return fmt.Errorf("unlocking %q: %w", name, err)
	}
	return nil
}

// Renew refreshes a lock that this locker holds, at once.
func (l *Locker) Renew(ctx context.Context, name string) error {
	l.mu.Lock()
	le := l.oldest(name)
	l.mu.Unlock()
	err := ErrNotHeld
	if le != nil {
		err = le.renew(ctx)
	}
	if err != nil {
		return fmt.Errorf("renewing %q: %w", name, err)
	}
	return nil
}

// oldest must be called with l.mu held. Of two leases of one name the older one was lost, and its holder has yet to say that
// it is done.
func (l *Locker) oldest(name string) *lease {
	if all := l.held[name]; len(all) > 0 {
		return all[0]
	}
	return nil
}
