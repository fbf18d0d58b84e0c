package s3store_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/suaveplan/caddy-storage-mux/internal/s3fake"
	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/s3store"
)

// isTrial tells whether a request is about an object of a trial.
func isTrial(r *http.Request, method string) bool {
	return r.Method == method && strings.Contains(r.URL.Path, "/.storage_mux-probe-")
}

// losing loses answers.
type losing struct {
	http.RoundTripper
	loses func(*http.Request) bool
}

var errLost = errors.New("the answer was lost")

// RoundTrip implements http.RoundTripper.
func (l losing) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := l.RoundTripper.RoundTrip(r)
	if err == nil && l.loses(r) {
		resp.Body.Close()
		return nil, errLost
	}
	return resp, err
}

// The object of a trial stayed for ever when the answer to its PUT, or its one DELETE, was lost.
func TestATrialLeavesNothingBehindWhateverIsLost(t *testing.T) {
	for name, row := range map[string]struct {
		method string
		cond   string
		works  bool
	}{
		"the PUT's answer":    {http.MethodPut, "", false},
		"a trial's answer":    {http.MethodPut, "If-Match", false},
		"the DELETE's answer": {http.MethodDelete, "", true},
	} {
		service := s3fake.New(t, "bucket")
		var lost atomic.Int64
		transport := new(http.Transport)
		set := settings(service, "bucket")
		set.Transport = losing{transport, func(r *http.Request) bool {
			return isTrial(r, row.method) && (row.cond == "" || r.Header.Get(row.cond) != "") && lost.Add(1) == 1
		}}
		s := open(t, set)
		if err := create(t, s, "key", "x"); (err == nil) != row.works || err != nil && !errors.Is(err, errLost) {
			t.Errorf("Put where %s is lost = %v", name, err)
		}
		s.Close()
		transport.CloseIdleConnections()
		for _, key := range service.Keys("bucket") {
			if key != "key" {
				t.Errorf("where %s is lost, %s is left", name, key)
			}
		}
	}
}

// What clears up is not waited for, and a service that cannot delete now is asked again.
func TestTheObjectOfATrialIsRemovedInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var deletes atomic.Int64
		s, err := s3store.New(s3store.Settings{Bucket: "bucket", Endpoint: "h.example", AccessKey: "a", SecretKey: "s", Transport: answering(func(r *http.Request) (int, string) {
			switch {
			case r.Method == http.MethodHead && strings.HasSuffix(r.URL.Path, "/key"):
				return http.StatusNotFound, ""
			case isTrial(r, http.MethodPut) && len(r.Header["If-Match"])+len(r.Header["If-None-Match"]) > 0:
				return http.StatusPreconditionFailed, ""
			case isTrial(r, http.MethodDelete):
				time.Sleep(5 * time.Second)
				if deletes.Add(1) < 3 {
					return http.StatusServiceUnavailable, ""
				}
				return http.StatusNoContent, ""
			}
			return http.StatusOK, ""
		})})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := create(t, s, "key", "x"); err != nil || time.Since(began) > 0 {
			t.Errorf("Put = %v after %v, want it not to wait for what clears up", err, time.Since(began))
		}
		time.Sleep(time.Minute)
		s.Close()
		if n := deletes.Load(); n != 3 {
			t.Errorf("%d deletes, want 3", n)
		}
	})
}

// clock is one that a test sets.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) read() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// One 400, of a proxy on the way, and conditional writes were off until the next start.
func TestOnlyADefiniteAnswerTurnsConditionalWritesOffForGood(t *testing.T) {
	for _, row := range []struct {
		status int
		code   string
		passes bool
	}{
		{http.StatusBadRequest, "InvalidArgument", true},
		{http.StatusBadRequest, "", true},
		{http.StatusNotImplemented, "NotImplemented", false},
	} {
		name := fmt.Sprint(row.status, " ", row.code)
		service := s3fake.New(t, "bucket")
		set := settings(service, "bucket")
		at := &clock{now: time.Now()}
		set.Now = at.read
		s := open(t, set)
		service.Fail(func(r *http.Request) *s3fake.Refusal {
			if isTrial(r, http.MethodPut) && r.Header.Get("If-None-Match") != "" {
				return s3fake.Refuse(row.status, row.code, "as the test wants it")
			}
			return nil
		})
		for range 2 {
			if err := create(t, s, "key", "x"); !errors.Is(err, muxcore.ErrUnsupported) {
				t.Errorf("Put after %s = %v, want %v", name, err, muxcore.ErrUnsupported)
			}
		}
		trials := 0
		for _, line := range service.Lines() {
			if strings.HasPrefix(line, "PUT /bucket/.storage_mux-probe-") {
				trials++
			}
		}
		if trials != 2 {
			t.Errorf("%d requests of trials after %s, want 2: who is in doubt is not asked each time", trials, name)
		}
		if can := s.Capabilities().ConditionalWrite; can != row.passes {
			t.Errorf("ConditionalWrite after %s is %t, want %t", name, can, row.passes)
		}
		service.Fail(nil)
		at.advance(2 * time.Minute)
		if err := create(t, s, "key", "x"); (err == nil) != row.passes {
			t.Errorf("Put two minutes after %s = %v", name, err)
		}
	}
}

// That parts cannot be sent says nothing about conditions.
func TestATrialByPartsTellsWhatItIsAbout(t *testing.T) {
	service, s := inParts(t)
	service.Fail(func(r *http.Request) *s3fake.Refusal {
		if r.Method == http.MethodPost && strings.Contains(r.URL.Path, "/.storage_mux-probe-") {
			return s3fake.Refuse(http.StatusServiceUnavailable, "SlowDown", "Please reduce your request rate.")
		}
		return nil
	})
	err := create(t, s, "key", strings.Repeat("x", 5000))
	if e, ok := errors.AsType[*muxcore.Error](err); !ok || e.Op != muxcore.OpPut || e.Key != "key" || !strings.Contains(err.Error(), "CompleteMultipartUpload") {
		t.Errorf("Put = %v, want an error of a put of key that says what was tried", err)
	}
	service.Fail(nil)
	if err := create(t, s, "key", strings.Repeat("x", 5000)); err != nil {
		t.Errorf("Put after that = %v", err)
	}
}
