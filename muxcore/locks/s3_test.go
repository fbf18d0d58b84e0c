package locks_test

import (
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/suaveplan/caddy-storage-mux/internal/s3fake"
	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/locks"
	"github.com/suaveplan/caddy-storage-mux/muxcore/s3store"
	"github.com/suaveplan/caddy-storage-mux/muxcore/storetest"
)

// bucket is a client's store of a bucket, one of its own for each call.
func bucket(t *testing.T, service *s3fake.Service) *s3store.Store {
	t.Helper()
	s, err := s3store.New(s3store.Settings{Bucket: "locks", Endpoint: service.URL, AccessKey: s3fake.AccessKey, SecretKey: s3fake.SecretKey})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestABucketKeepsLocks(t *testing.T) {
	turns := storetest.Times(1, 3)
	for name, ignored := range map[string][]string{"as S3 does": nil, "whose deletes know no conditions": {http.MethodDelete}} {
		t.Run(name, func(t *testing.T) {
			service := s3fake.New(t, "locks")
			service.Ignore(ignored...)
			var inside, taken atomic.Int32
			var all sync.WaitGroup
			for range 3 {
				l := newLocker(t, bucket(t, service), locks.Settings{Poll: 10 * time.Millisecond, Refresh: 5 * time.Millisecond})
				for range 2 {
					all.Go(func() {
						for range turns {
							lock(t, l, "x")
							if inside.Add(1) != 1 {
								t.Error("two hold the lock")
							}
							if err := l.Renew(t.Context(), "x"); err != nil {
								t.Error(err)
							}
							inside.Add(-1)
							taken.Add(1)
							unlock(t, l, "x")
						}
					})
				}
			}
			all.Wait()
			if want := int32(6 * turns); taken.Load() != want {
				t.Errorf("the lock was taken %d times, want %d", taken.Load(), want)
			}
		})
	}
}

func TestABucketWhosePutsKnowNoConditionsKeepsNone(t *testing.T) {
	service := s3fake.New(t, "locks")
	service.Ignore(http.MethodPut)
	l := newLocker(t, bucket(t, service), locks.Settings{})
	if err := l.Lock(t.Context(), "x"); !errors.Is(err, locks.ErrNotHonoured) {
		t.Errorf("Lock = %v", err)
	}
}

// Two clients of a bucket, each with its own connection: the lock of a dead holder runs out, and what was its is nobody's but the
// successor's.
func TestTheLockOfADeadHolderInABucketIsTakenOver(t *testing.T) {
	t.Parallel()
	service := s3fake.New(t, "locks")
	var told teller
	fast := locks.Settings{TTL: time.Second, Refresh: 50 * time.Millisecond, Poll: 10 * time.Millisecond}
	dead, heir := fast, fast
	dead.Owner, heir.Observe = "the dead", told.observe
	died := time.Now()
	dead.Now = func() time.Time { return died } // its clock stands still: to it no lock ever runs out, however busy the machine
	a, b := newLocker(t, bucket(t, service), dead), newLocker(t, bucket(t, service), heir)
	lock(t, a, "x")
	tryLock(t, b, "x", false)
	a.Die("x")
	lock(t, b, "x")
	if told.kinds() != "taken-over" || told.all[0].Owner != "the dead" {
		t.Errorf("told %+v", told.all)
	}
	if err := a.Renew(t.Context(), "x"); !errors.Is(err, locks.ErrLost) {
		t.Errorf("Renew of a lost lock = %v, want %v", err, locks.ErrLost)
	}
	unlock(t, a, "x") // is none of a's any more
	tryLock(t, a, "x", false)
	unlock(t, b, "x")
	tryLock(t, a, "x", true)
	unlock(t, a, "x")
}

func TestALockThatSomebodyRemovesFromABucketIsLost(t *testing.T) {
	service := s3fake.New(t, "locks")
	lost := make(chan locks.Event, 8)
	l := newLocker(t, bucket(t, service), locks.Settings{Refresh: 10 * time.Millisecond, Observe: func(e locks.Event) { lost <- e }})
	lock(t, l, "x")
	if _, err := bucket(t, service).Delete(t.Context(), locks.KeyOf("x"), muxcore.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if e := <-lost; e.Name != "x" || e.Kind != locks.EventLost {
		t.Errorf("told %+v, want that x is lost", e)
	}
	unlock(t, l, "x")
}
