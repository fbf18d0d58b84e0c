package locks_test

import (
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/suaveplan/caddy-storage-mux/internal/s3fake"
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
