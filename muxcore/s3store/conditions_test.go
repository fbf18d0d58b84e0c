package s3store_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/internal/s3fake"
	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/internal/cloudtest"
	"github.com/suaveplan/caddy-storage-mux/muxcore/s3store"
)

// onlyNew is the condition that there is nothing.
var onlyNew = muxcore.Conditions{IfNoneMatch: "*"}

// create puts a body where nothing is.
func create(t *testing.T, s muxcore.Store, key, body string) error {
	t.Helper()
	_, err := s.Put(t.Context(), key, strings.NewReader(body), int64(len(body)), muxcore.PutOptions{Conditions: onlyNew})
	return err
}

// Services that take conditions for noise would write all the same, and nobody would know.
func TestAnEndpointThatIgnoresConditionsGetsNoConditionalWrites(t *testing.T) {
	long := strings.Repeat("long", 1000)
	for _, row := range []struct {
		ignores string
		call    func(s *s3store.Store) error
		after   bool // conditional writes of another kind work
	}{
		{http.MethodPut, func(s *s3store.Store) error { return create(t, s, "new", "x") }, false},
		{http.MethodPost, func(s *s3store.Store) error { return create(t, s, "new", long) }, true},
		{http.MethodDelete, func(s *s3store.Store) error {
			_, err := s.Delete(t.Context(), "old", muxcore.DeleteOptions{Conditions: muxcore.Conditions{IfMatch: "*"}})
			return err
		}, true},
	} {
		service := s3fake.New(t, "bucket")
		service.Ignore(row.ignores)
		s := open(t, settings(service, "bucket"))
		s.Shrink(1000, 10)
		cloudtest.Put(t, s, "old", "kept", muxcore.PutOptions{})
		for range 2 {
			if err := row.call(s); !errors.Is(err, muxcore.ErrUnsupported) {
				t.Errorf("conditional %s of an endpoint that ignores conditions = %v, want %v", row.ignores, err, muxcore.ErrUnsupported)
			}
		}
		if can := s.Capabilities().ConditionalWrite; can != row.after {
			t.Errorf("ConditionalWrite is %t where conditions of %s are ignored, want %t", can, row.ignores, row.after)
		}
		if err := create(t, s, "other", "x"); (err == nil) != row.after {
			t.Errorf("a conditional PUT where conditions of %s are ignored = %v", row.ignores, err)
		}
		s.Close()
		want := "old"
		if row.after {
			want = "old other"
		}
		if keys := strings.Join(service.Keys("bucket"), " "); keys != want || service.Uploads() > 0 {
			t.Errorf("where conditions of %s are ignored, %q and %d uploads are left, want %q", row.ignores, keys, service.Uploads(), want)
		}
	}
}

func TestAnEndpointIsTriedOnceForAllWhoWait(t *testing.T) {
	service := s3fake.New(t, "bucket")
	s := open(t, settings(service, "bucket"))
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			if err := create(t, s, string(rune('a'+i)), "x"); err != nil {
				t.Errorf("Put = %v", err)
			}
		})
	}
	wg.Wait()
	s.Close()
	trials := 0
	for _, line := range service.Lines() {
		if strings.HasPrefix(line, "PUT /bucket/.storage_mux-probe-") {
			trials++
		}
	}
	if trials != 3 || len(service.Keys("bucket")) != 20 {
		t.Errorf("%d requests of trials and %d objects, want 3 and 20", trials, len(service.Keys("bucket")))
	}
}

// A trial that fails for another reason says nothing about conditions.
func TestATrialThatFailsLeavesItOpen(t *testing.T) {
	service := s3fake.New(t, "bucket")
	s := open(t, settings(service, "bucket"))
	service.Fail(func(r *http.Request) *s3fake.Refusal {
		if r.Method == http.MethodPut && r.Header.Get("If-Match") != "" {
			return s3fake.Refuse(http.StatusServiceUnavailable, "SlowDown", "Please reduce your request rate.")
		}
		return nil
	})
	if err := create(t, s, "key", "x"); muxcore.Classify(t.Context(), err) != muxcore.ClassTransient {
		t.Errorf("Put while trials fail = %v, want a failure", err)
	}
	service.Fail(nil)
	if err := create(t, s, "key", "x"); err != nil {
		t.Errorf("Put when they no longer do = %v", err)
	}
}

// Whoever was faster while a body came in keeps what he wrote.
func TestAnUploadThatIsOvertakenIsAFailedCondition(t *testing.T) {
	t.Parallel()
	service := s3fake.New(t, "bucket")
	s := open(t, settings(service, "bucket"))
	if err := create(t, s, "first", "x"); err != nil { // so that the trial is over
		t.Fatal(err)
	}
	size := int64(1 << 20)
	overtaken := io.MultiReader(strings.NewReader(strings.Repeat("x", 1<<19)), &once{func() { service.Put("bucket", "key", "theirs", nil) }}, strings.NewReader(strings.Repeat("x", 1<<19)))
	_, err := s.Put(t.Context(), "key", overtaken, size, muxcore.PutOptions{Conditions: onlyNew})
	if info := muxcore.InfoOf(err); !errors.Is(err, muxcore.ErrPreconditionFailed) || info == nil || info.Size != 6 {
		t.Errorf("Put = %v, want %v with what is there", err, muxcore.ErrPreconditionFailed)
	}
	if tag := service.Header("bucket", "key"); len(tag) != 0 {
		t.Errorf("the object that was faster is not there any more: %v", tag)
	}
}

// once is an empty reader that does something when it is read.
type once struct{ do func() }

// Read implements io.Reader.
func (o *once) Read([]byte) (int, error) {
	o.do()
	return 0, io.EOF
}

// One who knows only that there must be something does not lose to those who write it anew.
func TestARaceThatLeavesTheConditionTrueIsRunAgain(t *testing.T) {
	service := s3fake.New(t, "bucket")
	s := open(t, settings(service, "bucket"))
	cloudtest.Put(t, s, "key", "one", muxcore.PutOptions{})
	exists := muxcore.Conditions{IfMatch: "*"}
	cloudtest.Put(t, s, "key", "two", muxcore.PutOptions{Conditions: exists})
	var races atomic.Int64
	service.Fail(func(r *http.Request) *s3fake.Refusal {
		if r.Method == http.MethodPut && r.Header.Get("If-Match") != "" {
			switch races.Add(1) {
			case 1:
				return s3fake.Refuse(http.StatusConflict, "ConditionalRequestConflict", "A conflicting conditional operation is currently in progress.")
			case 2:
				service.Put("bucket", "key", "theirs", nil)
			}
		}
		return nil
	})
	cloudtest.Put(t, s, "key", "three", muxcore.PutOptions{Conditions: exists})
	if n := races.Load(); n != 3 {
		t.Errorf("%d writes, want 3: two lose a race", n)
	}
}

// An object that came into being during the race was said to have been made by the one who came second.
func TestWhoComesSecondHasMadeNothing(t *testing.T) {
	service := s3fake.New(t, "bucket")
	s := open(t, settings(service, "bucket"))
	var theirs sync.Once
	service.Fail(func(r *http.Request) *s3fake.Refusal {
		if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/key") {
			theirs.Do(func() { service.Put("bucket", "key", "theirs", nil) })
		}
		return nil
	})
	res := cloudtest.Put(t, s, "key", "ours", muxcore.PutOptions{Conditions: muxcore.Conditions{IfNoneMatch: `"some other"`}})
	if !res.Existed {
		t.Error("Put says that there was nothing, and somebody was faster")
	}
}

// S3 has given up the upload by then: its parts would have to be sent again, and nobody has them any more.
func TestAnUploadByPartsThatIsOvertakenIsNotCompletedAgain(t *testing.T) {
	service, s := inParts(t)
	completions := 0
	service.Fail(func(r *http.Request) *s3fake.Refusal {
		if r.Method == http.MethodPost && strings.HasPrefix(r.URL.Path, "/bucket/key") && r.URL.Query().Has("uploadId") {
			completions++
			return s3fake.Refuse(http.StatusConflict, "ConditionalRequestConflict", "The conditional request cannot succeed due to a conflicting operation against this resource.")
		}
		return nil
	})
	err := create(t, s, "key", strings.Repeat("x", 5000))
	s.Close()
	if !errors.Is(err, muxcore.ErrPreconditionFailed) || completions != 1 || service.Uploads() > 0 {
		t.Errorf("Put = %v after %d completions, %d uploads are left; want %v after one", err, completions, service.Uploads(), muxcore.ErrPreconditionFailed)
	}
}

// versitygw says so while somebody else removes the last object in a folder, and stays with it if there is one.
func TestAFolderInTheWayIsBelievedWhenItStays(t *testing.T) {
	t.Parallel()
	service := s3fake.New(t, "bucket")
	s := open(t, settings(service, "bucket"))
	var left atomic.Int64
	service.Fail(func(r *http.Request) *s3fake.Refusal {
		if r.Method == http.MethodPut && left.Add(-1) >= 0 {
			return s3fake.Refuse(http.StatusConflict, "ExistingObjectIsDirectory", "Existing Object is a directory.")
		}
		return nil
	})
	for times, want := range map[int64]error{1: nil, 3: nil, 4: muxcore.ErrKeyConflict} {
		left.Store(times)
		_, err := s.Put(t.Context(), "a/b", strings.NewReader("x"), 1, muxcore.PutOptions{})
		if !errors.Is(err, want) {
			t.Errorf("Put where a folder is in the way %d times = %v, want %v", times, err, want)
		}
	}
}
