package locks_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/locks"
)

// rigged is a store with calls that a test replaces.
type rigged struct {
	muxcore.Store
	put    func(ctx context.Context, s muxcore.Store, key string, body io.Reader, size int64, opts muxcore.PutOptions) (muxcore.PutResult, error)
	remove func(ctx context.Context, s muxcore.Store, key string, opts muxcore.DeleteOptions) (muxcore.DeleteResult, error)
	fails  atomic.Bool // every call
	hangs  atomic.Bool // every call, whatever its context
	cannot bool
}

func (r *rigged) Capabilities() muxcore.Capabilities {
	c := muxcore.CapabilitiesOf(r.Store)
	c.Locks = !r.cannot
	return c
}

func (r *rigged) Waits() muxcore.Waits { return muxcore.WaitsUnbounded }

var errBroken = &muxcore.Error{Code: muxcore.CodeUnavailable, Err: errors.New("broken")}

func (r *rigged) trouble() error {
	for r.hangs.Load() {
		time.Sleep(time.Second)
	}
	if r.fails.Load() {
		return errBroken
	}
	return nil
}

func (r *rigged) Get(ctx context.Context, key string, opts muxcore.GetOptions) (*muxcore.Object, error) {
	if err := r.trouble(); err != nil {
		return nil, err
	}
	return r.Store.Get(ctx, key, opts)
}

func (r *rigged) Put(ctx context.Context, key string, body io.Reader, size int64, opts muxcore.PutOptions) (muxcore.PutResult, error) {
	if err := r.trouble(); err != nil {
		return muxcore.PutResult{}, err
	}
	if r.put != nil {
		return r.put(ctx, r.Store, key, body, size, opts)
	}
	return r.Store.Put(ctx, key, body, size, opts)
}

func (r *rigged) Delete(ctx context.Context, key string, opts muxcore.DeleteOptions) (muxcore.DeleteResult, error) {
	if err := r.trouble(); err != nil {
		return muxcore.DeleteResult{}, err
	}
	if r.remove != nil {
		return r.remove(ctx, r.Store, key, opts)
	}
	return r.Store.Delete(ctx, key, opts)
}

// unhonoured are endpoints that take conditions for words without a meaning, or know none.
var unhonoured = map[string]func(opts *muxcore.PutOptions) error{
	"it ignores If-None-Match": func(opts *muxcore.PutOptions) error { opts.Conditions.IfNoneMatch = ""; return nil },
	"it ignores If-Match":      func(opts *muxcore.PutOptions) error { opts.Conditions.IfMatch = ""; return nil },
	"it knows no If-Match": func(opts *muxcore.PutOptions) error {
		if opts.Conditions.IfMatch == "" {
			return nil
		}
		return &muxcore.Error{Code: muxcore.CodeUnsupported}
	},
	"it refuses every If-Match": func(opts *muxcore.PutOptions) error {
		if opts.Conditions.IfMatch == "" {
			return nil
		}
		return &muxcore.Error{Code: muxcore.CodePreconditionFailed}
	},
}

func TestAnEndpointThatDoesNotHonourConditionsIsAnErrorAtTheFirstLock(t *testing.T) {
	for name, change := range unhonoured {
		t.Run(name, func(t *testing.T) {
			inner := memory(t)
			l := newLocker(t, &rigged{Store: inner, put: func(ctx context.Context, s muxcore.Store, key string, body io.Reader, size int64, opts muxcore.PutOptions) (muxcore.PutResult, error) {
				if err := change(&opts); err != nil {
					return muxcore.PutResult{}, err
				}
				return s.Put(ctx, key, body, size, opts)
			}}, locks.Settings{})
			for range 2 {
				if err := l.Lock(t.Context(), "x"); !errors.Is(err, locks.ErrNotHonoured) || !errors.Is(err, muxcore.ErrUnsupported) {
					t.Errorf("Lock = %v", err)
				}
			}
			for e := range inner.List(t.Context(), muxcore.ListOptions{Prefix: muxcore.LockPrefix}) {
				t.Errorf("%s is left", e.Key)
			}
		})
	}
}

// versitygw removes a folder with its last object, and says conflict to whoever writes there at that moment.
func TestAConflictThatPassesIsALostRace(t *testing.T) {
	for _, row := range []struct {
		conflicts int32
		locked    bool
	}{{1, true}, {4, true}, {5, false}} {
		synctest.Test(t, func(t *testing.T) {
			var n atomic.Int32
			l := newLocker(t, &rigged{Store: memory(t), put: func(ctx context.Context, s muxcore.Store, key string, body io.Reader, size int64, opts muxcore.PutOptions) (muxcore.PutResult, error) {
				if n.Add(1) <= row.conflicts {
					return muxcore.PutResult{}, &muxcore.Error{Code: muxcore.CodeKeyConflict}
				}
				return s.Put(ctx, key, body, size, opts)
			}}, locks.Settings{})
			switch err := l.Lock(t.Context(), "x"); {
			case row.locked && err != nil:
				t.Errorf("Lock after %d conflicts = %v", row.conflicts, err)
			case row.locked:
				unlock(t, l, "x")
			case !errors.Is(err, muxcore.ErrKeyConflict):
				t.Errorf("Lock after %d conflicts = %v, want %v", row.conflicts, err, muxcore.ErrKeyConflict)
			}
		})
	}
}

func TestWhatATrialCouldNotRemoveTheNextOneDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := memory(t)
		r := &rigged{Store: inner}
		r.put = func(ctx context.Context, s muxcore.Store, key string, body io.Reader, size int64, opts muxcore.PutOptions) (muxcore.PutResult, error) {
			result, err := s.Put(ctx, key, body, size, opts)
			r.fails.Store(true)
			return result, err
		}
		l := newLocker(t, r, locks.Settings{})
		if err := l.Lock(t.Context(), "x"); !errors.Is(err, errBroken) {
			t.Errorf("Lock = %v, want %v", err, errBroken)
		}
		r.fails.Store(false)
		r.put = nil
		lock(t, l, "x")
		unlock(t, l, "x")
		for e := range inner.List(t.Context(), muxcore.ListOptions{Prefix: muxcore.LockPrefix}) {
			t.Errorf("%s is left", e.Key)
		}
	})
}

func TestAHolderThatCannotRefreshIsToldWhatBecomesOfItsLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory(t)
		mine := &rigged{Store: s}
		var told teller
		a := newLocker(t, mine, locks.Settings{Observe: told.observe})
		b := newLocker(t, s, locks.Settings{Owner: "b"})
		lock(t, a, "x")
		mine.fails.Store(true)
		time.Sleep(ttl / 2)
		if told.kinds() != "" {
			t.Errorf("told %q before the lock was at risk", told.kinds())
		}
		time.Sleep(ttl)
		if told.kinds() != "at-risk" {
			t.Errorf("told %q, want at-risk", told.kinds())
		}
		mine.fails.Store(false)
		time.Sleep(ttl)
		if err := a.Renew(t.Context(), "x"); err != nil {
			t.Errorf("nobody took it, and yet: %v", err)
		}
		mine.fails.Store(true)
		lock(t, b, "x")
		time.Sleep(ttl)
		mine.fails.Store(false)
		time.Sleep(ttl)
		if told.kinds() != "at-risk at-risk lost" || told.all[2].Owner != "b" {
			t.Errorf("told %+v", told.all)
		}
		unlock(t, a, "x")
		tryLock(t, a, "x", false)
		unlock(t, b, "x")
	})
}

// Of two goroutines of a process, the one that lost the lock must not give back that of the other.
func TestWhoLostALockDoesNotGiveBackItsSuccessors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory(t)
		a, b := newLocker(t, s, locks.Settings{}), newLocker(t, s, locks.Settings{})
		lock(t, a, "x")
		a.Die("x")
		lock(t, a, "x") // by the second goroutine
		unlock(t, a, "x")
		tryLock(t, b, "x", false)
		unlock(t, a, "x")
		tryLock(t, b, "x", true)
		unlock(t, b, "x")
	})
}

func TestAWriteWhoseAnswerIsLostLosesNoLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory(t)
		var n atomic.Int32
		broken := &rigged{Store: s, put: func(ctx context.Context, s muxcore.Store, key string, body io.Reader, size int64, opts muxcore.PutOptions) (muxcore.PutResult, error) {
			result, err := s.Put(ctx, key, body, size, opts)
			if strings.HasSuffix(key, "x.lock") && err == nil && n.Add(1)%2 == 0 {
				return muxcore.PutResult{}, errBroken
			}
			return result, err
		}}
		var told teller
		a, b := newLocker(t, broken, locks.Settings{Observe: told.observe}), newLocker(t, s, locks.Settings{})
		lock(t, a, "x")
		time.Sleep(10 * ttl)
		tryLock(t, b, "x", false)
		unlock(t, a, "x")
		if told.kinds() != "" || n.Load() < 30 {
			t.Errorf("told %q after %d writes", told.kinds(), n.Load())
		}
		// The first write of a lock: it fails, and nothing stays behind that would block others.
		n.Store(1)
		if err := a.Lock(t.Context(), "x"); !errors.Is(err, errBroken) {
			t.Errorf("Lock = %v", err)
		}
		tryLock(t, b, "x", true)
		unlock(t, b, "x")
	})
}

// A client that asks again after a broken connection gets 412 for what it wrote itself.
func TestAWriteThatWasSentTwiceIsStillOurs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory(t)
		twice := &rigged{Store: s, put: func(ctx context.Context, s muxcore.Store, key string, body io.Reader, size int64, opts muxcore.PutOptions) (muxcore.PutResult, error) {
			text, err := io.ReadAll(body)
			if err != nil {
				return muxcore.PutResult{}, err
			}
			result, err := s.Put(ctx, key, strings.NewReader(string(text)), size, opts)
			if err == nil && strings.HasSuffix(key, "x.lock") {
				return s.Put(ctx, key, strings.NewReader(string(text)), size, opts)
			}
			return result, err
		}, remove: func(ctx context.Context, s muxcore.Store, key string, opts muxcore.DeleteOptions) (muxcore.DeleteResult, error) {
			result, err := s.Delete(ctx, key, opts)
			if err == nil && strings.HasSuffix(key, "x.lock") {
				return s.Delete(ctx, key, opts)
			}
			return result, err
		}}
		var told teller
		a := newLocker(t, twice, locks.Settings{Observe: told.observe})
		lock(t, a, "x")
		time.Sleep(10 * ttl)
		unlock(t, a, "x")
		if told.kinds() != "" {
			t.Errorf("told %q", told.kinds())
		}
	})
}

func TestAStoreThatFailsIsWaitedForOnlyInTheMiddle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory(t)
		mine := &rigged{Store: s}
		a, b := newLocker(t, mine, locks.Settings{}), newLocker(t, s, locks.Settings{})
		mine.fails.Store(true)
		if err := a.Lock(t.Context(), "x"); !errors.Is(err, errBroken) {
			t.Errorf("Lock at once = %v", err)
		}
		mine.fails.Store(false)
		lock(t, b, "x")
		time.AfterFunc(5*time.Second, func() { mine.fails.Store(true) })
		time.AfterFunc(15*time.Second, func() { mine.fails.Store(false) })
		time.AfterFunc(30*time.Second, func() { unlock(t, b, "x") })
		lock(t, a, "x")
		unlock(t, a, "x")
		lock(t, b, "x")
		time.AfterFunc(5*time.Second, func() { mine.fails.Store(true) })
		if err := a.Lock(t.Context(), "x"); !errors.Is(err, errBroken) {
			t.Errorf("Lock over a store that stays broken = %v", err)
		}
		unlock(t, b, "x")
	})
}

func TestAStoreThatHangsIsLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine := &rigged{Store: memory(t)}
		l := newLocker(t, mine, locks.Settings{})
		lock(t, l, "held")
		mine.hangs.Store(true)
		began := time.Now()
		err := l.Lock(t.Context(), "x")
		if took := time.Since(began); muxcore.CodeOf(errors.Unwrap(err)) != muxcore.CodeBackendTimeout || took > 10*time.Second {
			t.Errorf("Lock = %v after %v", err, took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := l.Lock(ctx, "x"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Lock = %v", err)
		}
		if err := l.Unlock(t.Context(), "held"); err == nil {
			t.Error("Unlock says that it gave the lock back")
		}
		mine.hangs.Store(false) // let the goroutines end
		time.Sleep(time.Minute)
	})
}

func TestALockThatSomebodyRemovesIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory(t)
		var told teller
		l := newLocker(t, s, locks.Settings{Observe: told.observe})
		lock(t, l, "x")
		if _, err := s.Delete(t.Context(), locks.KeyOf("x"), muxcore.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(ttl)
		if told.kinds() != "lost" {
			t.Errorf("told %q", told.kinds())
		}
		unlock(t, l, "x")
	})
}

// One refresh that hangs takes a part of the lock's time, and not so much that somebody else finds the lock unchanged for all of it.
func TestARefreshThatHangsLosesNoLock(t *testing.T) {
	for name, set := range map[string]locks.Settings{
		"by default":       {},
		"seldom refreshed": {Refresh: ttl / 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := memory(t)
				var n atomic.Int32
				mine := &rigged{Store: s, put: func(ctx context.Context, s muxcore.Store, key string, body io.Reader, size int64, opts muxcore.PutOptions) (muxcore.PutResult, error) {
					if strings.HasSuffix(key, "x.lock") && n.Add(1)%2 == 0 { // every other one
						<-ctx.Done()
						return muxcore.PutResult{}, ctx.Err()
					}
					return s.Put(ctx, key, body, size, opts)
				}}
				var told teller
				set.Observe, set.Float64 = told.observe, func() float64 { return 0.999 } // the longest pauses
				a, b := newLocker(t, mine, set), newLocker(t, s, locks.Settings{})
				lock(t, a, "x")
				for range 10 * ttl / time.Second {
					tryLock(t, b, "x", false)
					time.Sleep(time.Second)
				}
				unlock(t, a, "x")
				if told.kinds() != "" || n.Load() < 10 {
					t.Errorf("told %q after %d writes", told.kinds(), n.Load())
				}
			})
		})
	}
}

// Where a lock is given back by a write whose answer is lost, somebody else may have it by the next try. That is no loss.
func TestALockThatIsGivenBackUnheardIsNotLost(t *testing.T) {
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			for what, next := range map[string]func(t *testing.T, b *locks.Locker){
				"nobody wants it":     func(*testing.T, *locks.Locker) {},
				"somebody has it":     func(t *testing.T, b *locks.Locker) { lock(t, b, "x") },
				"somebody has had it": func(t *testing.T, b *locks.Locker) { lock(t, b, "x"); unlock(t, b, "x") },
			} {
				t.Run(what, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						s := kind(t)
						b := newLocker(t, s, locks.Settings{})
						unheard := false
						deaf := func(key string, ended bool) error {
							if unheard && ended && strings.HasSuffix(key, "x.lock") {
								unheard = false
								next(t, b)
								return errBroken
							}
							return nil
						}
						mine := &rigged{Store: s, put: func(ctx context.Context, s muxcore.Store, key string, body io.Reader, size int64, opts muxcore.PutOptions) (muxcore.PutResult, error) {
							result, err := s.Put(ctx, key, body, size, opts)
							return result, errors.Join(err, deaf(key, err == nil))
						}, remove: func(ctx context.Context, s muxcore.Store, key string, opts muxcore.DeleteOptions) (muxcore.DeleteResult, error) {
							result, err := s.Delete(ctx, key, opts)
							return result, errors.Join(err, deaf(key, err == nil))
						}}
						var told teller
						a := newLocker(t, mine, locks.Settings{Observe: told.observe})
						lock(t, a, "x")
						unheard = true
						unlock(t, a, "x")
						if told.kinds() != "" || unheard {
							t.Errorf("told %q", told.kinds())
						}
						tryLock(t, b, "x", what != "somebody has it")
						unlock(t, b, "x")
						if err := muxcore.Close(s); err != nil {
							t.Error(err)
						}
					})
				})
			}
		})
	}
}

// A refresh on request that waits for a lock to be given back has nothing to refresh any more.
func TestALockThatIsGivenBackMeanwhileIsNotRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told teller
		gate := make(chan struct{})
		mine := &rigged{Store: memory(t), remove: func(ctx context.Context, s muxcore.Store, key string, opts muxcore.DeleteOptions) (muxcore.DeleteResult, error) {
			if strings.HasSuffix(key, "x.lock") {
				<-gate
			}
			return s.Delete(ctx, key, opts)
		}}
		l := newLocker(t, mine, locks.Settings{Observe: told.observe})
		lock(t, l, "x")
		renewed := make(chan error, 1)
		renew := l.Renewal("x")
		go func() {
			if err := l.Unlock(t.Context(), "x"); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		go func() { renewed <- renew(t.Context()) }()
		synctest.Wait()
		close(gate)
		if err := <-renewed; !errors.Is(err, locks.ErrNotHeld) || told.kinds() != "" {
			t.Errorf("Renew = %v, told %q", err, told.kinds())
		}
	})
}
