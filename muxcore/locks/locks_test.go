package locks_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/filestore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/locks"
	"github.com/suaveplan/caddy-storage-mux/muxcore/memstore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/storetest"
)

const ttl = 20 * time.Second // the default

// kinds are the stores that locks are kept in, made anew for each test.
var kinds = map[string]func(t *testing.T) muxcore.Store{
	"memory": func(t *testing.T) muxcore.Store { return memory(t) },
	"file": func(t *testing.T) muxcore.Store {
		s, err := filestore.New(filestore.Settings{Root: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		return s
	},
	"a store whose deletes know no conditions": func(t *testing.T) muxcore.Store {
		return &rigged{Store: memory(t), remove: func(ctx context.Context, s muxcore.Store, key string, _ muxcore.DeleteOptions) (muxcore.DeleteResult, error) {
			return s.Delete(ctx, key, muxcore.DeleteOptions{})
		}}
	},
}

func memory(t *testing.T) *memstore.Store {
	t.Helper()
	s, err := memstore.New(memstore.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// eachKind runs a test in a bubble with each kind of store.
func eachKind(t *testing.T, test func(t *testing.T, s muxcore.Store)) {
	t.Helper()
	for name, open := range kinds {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := open(t)
				test(t, s)
				if err := muxcore.Close(s); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// teller collects events.
type teller struct {
	mu  sync.Mutex
	all []locks.Event
}

func (e *teller) observe(one locks.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, one)
}

func (e *teller) kinds() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var words []string
	for _, one := range e.all {
		words = append(words, string(one.Kind))
	}
	return strings.Join(words, " ")
}

func newLocker(t *testing.T, s muxcore.Store, set locks.Settings) *locks.Locker {
	t.Helper()
	l, err := locks.New(s, set)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func lock(t *testing.T, l *locks.Locker, name string) {
	t.Helper()
	if err := l.Lock(t.Context(), name); err != nil {
		t.Fatalf("Lock(%q) = %v", name, err)
	}
}

func unlock(t *testing.T, l *locks.Locker, name string) {
	t.Helper()
	if err := l.Unlock(t.Context(), name); err != nil {
		t.Fatalf("Unlock(%q) = %v", name, err)
	}
}

func tryLock(t *testing.T, l *locks.Locker, name string, want bool) {
	t.Helper()
	if got, err := l.TryLock(t.Context(), name); got != want || err != nil {
		t.Fatalf("TryLock(%q) = %v, %v, want %v", name, got, err, want)
	}
}

func TestALockIsHeldByOneAtATime(t *testing.T) {
	eachKind(t, func(t *testing.T, s muxcore.Store) {
		var inside, taken atomic.Int32
		var all sync.WaitGroup
		for range 3 { // lockers, as in three processes
			l := newLocker(t, s, locks.Settings{})
			for range 3 {
				all.Go(func() {
					lock(t, l, "one/name")
					if inside.Add(1) != 1 {
						t.Error("two hold the lock")
					}
					time.Sleep(3 * time.Second)
					inside.Add(-1)
					taken.Add(1)
					unlock(t, l, "one/name")
				})
			}
		}
		all.Wait()
		if taken.Load() != 9 {
			t.Errorf("%d of 9 had the lock", taken.Load())
		}
	})
}

func TestAHolderThatLivesKeepsItsLock(t *testing.T) {
	eachKind(t, func(t *testing.T, s muxcore.Store) {
		a, b := newLocker(t, s, locks.Settings{}), newLocker(t, s, locks.Settings{})
		lock(t, a, "x")
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(storetest.Times(4, 20))*ttl)
		defer cancel()
		if err := b.Lock(ctx, "x"); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("a second Lock = %v", err)
		}
		tryLock(t, b, "x", false)
		tryLock(t, b, "another", true)
		unlock(t, b, "another")
		if err := a.Renew(t.Context(), "x"); err != nil {
			t.Errorf("Renew = %v", err)
		}
		unlock(t, a, "x")
		tryLock(t, b, "x", true)
		unlock(t, b, "x")
	})
}

func TestTheLockOfADeadHolderIsTakenOver(t *testing.T) {
	eachKind(t, func(t *testing.T, s muxcore.Store) {
		var told teller
		a, b := newLocker(t, s, locks.Settings{Owner: "the dead"}), newLocker(t, s, locks.Settings{Observe: told.observe})
		lock(t, a, "x")
		a.Die("x")
		began := time.Now()
		lock(t, b, "x")
		if took := time.Since(began); took < ttl || took > ttl+2*time.Second {
			t.Errorf("taken over after %v", took)
		}
		if told.kinds() != "taken-over" || told.all[0].Owner != "the dead" || told.all[0].Name != "x" {
			t.Errorf("told %+v", told.all)
		}
		if err := a.Renew(t.Context(), "x"); !errors.Is(err, locks.ErrLost) {
			t.Errorf("Renew of a lost lock = %v", err)
		}
		unlock(t, a, "x") // is none of a's any more
		tryLock(t, a, "x", false)
		unlock(t, b, "x")
		tryLock(t, a, "x", true)
		unlock(t, a, "x")
	})
}

func TestTryLockRemembersWhatItSaw(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory(t)
		a, b := newLocker(t, s, locks.Settings{}), newLocker(t, s, locks.Settings{})
		lock(t, a, "x")
		tryLock(t, b, "x", false)
		time.Sleep(10 * ttl)
		tryLock(t, b, "x", false) // it has changed since
		a.Die("x")
		time.Sleep(ttl - time.Second)
		tryLock(t, b, "x", false)
		time.Sleep(ttl)
		tryLock(t, b, "x", true)
		unlock(t, b, "x")
	})
}

func TestALockOfThisProcessIsHandedOnAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLocker(t, memory(t), locks.Settings{Poll: time.Hour})
		lock(t, l, "x")
		go func() {
			time.Sleep(time.Second)
			unlock(t, l, "x")
		}()
		began := time.Now()
		lock(t, l, "x")
		if took := time.Since(began); took != time.Second {
			t.Errorf("handed on after %v", took)
		}
		unlock(t, l, "x")
	})
}

func TestADamagedRecordBlocksALockNoLongerThanADeadHolder(t *testing.T) {
	for name, text := range map[string]string{"empty": "", "no record": "{", "for ever": `{"token":"x","ttl":9000000000000000000}`} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := memory(t)
				if _, err := s.Put(t.Context(), locks.KeyOf("x"), strings.NewReader(text), int64(len(text)), muxcore.PutOptions{}); err != nil {
					t.Fatal(err)
				}
				l := newLocker(t, s, locks.Settings{})
				began := time.Now()
				lock(t, l, "x")
				if took := time.Since(began); took < ttl || took > time.Hour+time.Minute {
					t.Errorf("taken after %v", took)
				}
				unlock(t, l, "x")
			})
		})
	}
}

func TestWhatIsNotHeldCannotBeGivenBack(t *testing.T) {
	l := newLocker(t, memory(t), locks.Settings{})
	for what, err := range map[string]error{"Unlock": l.Unlock(t.Context(), "x"), "Renew": l.Renew(t.Context(), "x")} {
		if !errors.Is(err, locks.ErrNotHeld) {
			t.Errorf("%s = %v", what, err)
		}
	}
	lock(t, l, "x")
	unlock(t, l, "x")
	if err := l.Unlock(t.Context(), "x"); !errors.Is(err, locks.ErrNotHeld) {
		t.Errorf("a second Unlock = %v", err)
	}
}

// A lock that another goroutine gives back the moment it is taken had nothing yet that could be ended.
func TestALockMayBeGivenBackTheMomentItIsTaken(t *testing.T) {
	l := newLocker(t, memory(t), locks.Settings{})
	for range 200 {
		done := make(chan struct{})
		go func() {
			defer close(done)
			for errors.Is(l.Unlock(t.Context(), "a"), locks.ErrNotHeld) {
				runtime.Gosched()
			}
		}()
		lock(t, l, "a")
		<-done
	}
}

func TestNothingIsLeftOfALock(t *testing.T) {
	s := memory(t)
	l := newLocker(t, s, locks.Settings{})
	for _, name := range []string{"x", "issue_cert_*.example.com", "a/b", "..", strings.Repeat("long", 200), "nul", "\x00"} {
		lock(t, l, name)
		unlock(t, l, name)
	}
	for e, err := range s.List(t.Context(), muxcore.ListOptions{Prefix: muxcore.LockPrefix}) {
		t.Errorf("%s is left, %v", e.Key, err)
	}
}

func TestBadSettingsAreRefused(t *testing.T) {
	for _, set := range []locks.Settings{{TTL: -1}, {Refresh: -1}, {Poll: -1}, {Timeout: -1}, {TTL: time.Second, Refresh: time.Second}} {
		if _, err := locks.New(memory(t), set); err == nil {
			t.Errorf("New(%+v) takes it", set)
		}
	}
	if _, err := locks.New(&rigged{Store: memory(t), cannot: true}, locks.Settings{}); !errors.Is(err, muxcore.ErrUnsupported) {
		t.Errorf("a store that cannot: %v", err)
	}
}
