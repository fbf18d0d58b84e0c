package s3store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/suaveplan/caddy-storage-mux/internal/s3fake"
	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/s3store"
)

// inParts makes a store of parts of 1000 bytes, ten at most.
func inParts(t *testing.T) (*s3fake.Service, *s3store.Store) {
	t.Helper()
	service := s3fake.New(t, "bucket")
	service.MinPart(1000)
	s := open(t, settings(service, "bucket"))
	s.Shrink(1000, 10)
	return service, s
}

// nothingLeft closes the store and demands that no upload and no object is left.
func nothingLeft(t *testing.T, service *s3fake.Service, s *s3store.Store, after string) {
	t.Helper()
	s.Close()
	if keys := service.Keys("bucket"); len(keys) > 0 || service.Uploads() > 0 || s.Memory() != 0 {
		t.Errorf("after %s, %q, %d uploads and %d bytes of memory are left", after, keys, service.Uploads(), s.Memory())
	}
}

var partNumber = regexp.MustCompile(`^PUT .*partNumber=(\d+)`)

// Some services want all parts but the last to have one size.
func TestPartsGrowWithTheObjectAndAreEqual(t *testing.T) {
	for _, row := range []struct {
		size  int
		known bool
		parts int
	}{
		{1001, false, 2},
		{2000, true, 2},
		{2000, false, 2},
		{2001, true, 3},
		{10_000, true, 10},
		{10_000, false, 10},
		{10_001, true, 6},
		{100_000, true, 10},
		{95_000, true, 10},
	} {
		service, s := inParts(t)
		body, size := strings.Repeat("0123456789", row.size/10+1)[:row.size], int64(-1)
		if row.known {
			size = int64(row.size)
		}
		res, err := s.Put(t.Context(), "key", strings.NewReader(body), size, muxcore.PutOptions{ETag: `"mine"`})
		if err != nil || res.Size != int64(row.size) || res.ETag != `"mine"` {
			t.Errorf("Put of %d bytes (%d) = %+v, %v", row.size, size, res, err)
			continue
		}
		parts := 0
		for _, line := range service.Lines() {
			if partNumber.MatchString(line) {
				parts++
			}
		}
		if parts != row.parts {
			t.Errorf("%d bytes (%d) in %d parts, want %d", row.size, size, parts, row.parts)
		}
		o, err := s.Get(t.Context(), "key", muxcore.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(o.Body); err != nil || string(got) != body || !o.ETagStored {
			t.Errorf("%d bytes come back as %d, %v, %+v", row.size, len(got), err, o.Info)
		}
		o.Body.Close()
	}
}

func TestABodyOfUnknownLengthThatIsTooLargeLeavesNothing(t *testing.T) {
	service, s := inParts(t)
	_, err := s.Put(t.Context(), "key", strings.NewReader(strings.Repeat("x", 10_001)), -1, muxcore.PutOptions{})
	if muxcore.CodeOf(err) != muxcore.CodeTooLarge {
		t.Errorf("Put = %v, want %s", err, muxcore.CodeTooLarge)
	}
	nothingLeft(t, service, s, "a body that is too large")
}

// Parts that nobody completes are paid for, and nobody sees them.
func TestUploadsThatFailLeaveNoPartsBehind(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		size   int64
		body   io.Reader
		refuse string // requests that the service fails
		want   muxcore.Code
	}{
		"a body that breaks off":             {-1, io.MultiReader(strings.NewReader(strings.Repeat("x", 5500)), iotest.ErrReader(errors.New("uploader gone"))), "", muxcore.CodeBodyMismatch},
		"a body that is short":               {5000, strings.NewReader(strings.Repeat("x", 4999)), "", muxcore.CodeBodyMismatch},
		"a streamed body that is short":      {50_000, strings.NewReader(strings.Repeat("x", 49_999)), "", muxcore.CodeBodyMismatch},
		"a body that is long":                {5000, strings.NewReader(strings.Repeat("x", 5001)), "", muxcore.CodeBodyMismatch},
		"a part that fails":                  {-1, strings.NewReader(strings.Repeat("x", 9000)), "partNumber=3", muxcore.CodeUnavailable},
		"a streamed part that fails":         {50_000, strings.NewReader(strings.Repeat("x", 50_000)), "partNumber=3", muxcore.CodeUnavailable},
		"an upload that cannot be begun":     {5000, strings.NewReader(strings.Repeat("x", 5000)), "?uploads", muxcore.CodeUnavailable},
		"an upload that cannot be completed": {5000, strings.NewReader(strings.Repeat("x", 5000)), "POST uploadId=", muxcore.CodeUnavailable},
	} {
		service, s := inParts(t)
		service.Fail(func(r *http.Request) *s3fake.Refusal {
			method, query, ok := strings.Cut(row.refuse, " ")
			if !ok {
				method, query = r.Method, row.refuse
			}
			if row.refuse != "" && r.Method == method && strings.Contains(r.RequestURI, query) {
				return s3fake.Refuse(http.StatusServiceUnavailable, "SlowDown", "Please reduce your request rate.")
			}
			return nil
		})
		if _, err := s.Put(t.Context(), "key", row.body, row.size, muxcore.PutOptions{}); muxcore.CodeOf(err) != row.want {
			t.Errorf("Put of %s = %v, want %s", name, err, row.want)
		}
		nothingLeft(t, service, s, name)
	}
}

func TestAnUploadThatIsGivenUpLeavesNoPartsBehind(t *testing.T) {
	for _, at := range []string{"?uploads", "partNumber=1", "partNumber=4", "POST"} {
		service, s := inParts(t)
		ctx, cancel := context.WithCancel(t.Context())
		service.Fail(func(r *http.Request) *s3fake.Refusal {
			if strings.Contains(r.RequestURI, at) || r.Method == at && strings.Contains(r.RequestURI, "uploadId") {
				cancel()
			}
			return nil
		})
		_, err := s.Put(ctx, "key", strings.NewReader(strings.Repeat("x", 9000)), -1, muxcore.PutOptions{})
		if err == nil && at != "POST" || err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("Put that is given up at %s = %v, want %v", at, err, context.Canceled)
		}
		s.Close()
		if service.Uploads() > 0 || s.Memory() != 0 {
			t.Errorf("given up at %s: %d uploads and %d bytes of memory are left", at, service.Uploads(), s.Memory())
		}
	}
}

// A service that has begun to answer 200 can tell of an error in the document only.
func TestACompletionThatFailsBehindA200IsAFailure(t *testing.T) {
	service, s := inParts(t)
	service.Fail(func(r *http.Request) *s3fake.Refusal {
		if r.Method == http.MethodPost && strings.Contains(r.RequestURI, "uploadId") {
			return s3fake.Refuse(http.StatusOK, "InternalError", "We encountered an internal error. Please try again.")
		}
		return nil
	})
	_, err := s.Put(t.Context(), "key", strings.NewReader(strings.Repeat("x", 5000)), 5000, muxcore.PutOptions{})
	if muxcore.Classify(t.Context(), err) != muxcore.ClassTransient || !strings.Contains(fmt.Sprint(err), "InternalError") {
		t.Errorf("Put = %v, want a failure that says InternalError", err)
	}
	nothingLeft(t, service, s, "a completion that fails")
}

func TestManyUploadsShareTheirBuffers(t *testing.T) {
	service, s := inParts(t)
	var wg sync.WaitGroup
	for i := range 30 {
		wg.Go(func() {
			body := strings.Repeat(string(rune('a'+i%26)), 9000)
			key := fmt.Sprintf("key-%d", i)
			if _, err := s.Put(t.Context(), key, strings.NewReader(body), -1, muxcore.PutOptions{}); err != nil {
				t.Errorf("Put = %v", err)
				return
			}
			o, err := s.Get(t.Context(), key, muxcore.GetOptions{})
			if err != nil {
				t.Errorf("Get = %v", err)
				return
			}
			defer o.Body.Close()
			if got, err := io.ReadAll(o.Body); err != nil || string(got) != body {
				t.Errorf("Get(%q) = %d bytes, %v, which are not those of this upload", key, len(got), err)
			}
		})
	}
	wg.Wait()
	if service.Uploads() > 0 || s.Memory() != 0 {
		t.Errorf("%d uploads and %d bytes of memory are left", service.Uploads(), s.Memory())
	}
}

// answering is a transport that answers by itself.
type answering func(r *http.Request) (int, string)

// RoundTrip implements http.RoundTripper.
func (f answering) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return nil, err
		}
	}
	w := httptest.NewRecorder()
	w.Header().Set("ETag", `"x"`)
	status, text := f(r)
	w.WriteHeader(status)
	w.WriteString(text)
	return w.Result(), nil
}

// hasty is a transport that answers before it has read the body, and goes on reading.
type hasty struct {
	answering
	mu     sync.Mutex
	unread []io.Reader
}

// RoundTrip implements http.RoundTripper.
func (h *hasty) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Query().Has("partNumber") {
		h.mu.Lock()
		h.unread = append(h.unread, r.Body)
		h.mu.Unlock()
		r.Body = nil
	}
	return h.answering.RoundTrip(r)
}

// What net/http had yet to send of a part, when the service answered or the caller went, could be the bytes of the next upload.
func TestATransportThatGoesOnSendingHasNothingOfTheNextUpload(t *testing.T) {
	h := &hasty{answering: func(r *http.Request) (int, string) {
		switch {
		case r.Method == http.MethodHead && strings.HasSuffix(r.URL.Path, "/key"):
			return http.StatusNotFound, ""
		case r.URL.Query().Has("uploads"):
			return http.StatusOK, "<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>"
		case r.URL.Query().Has("partNumber"):
			return http.StatusForbidden, ""
		}
		return http.StatusNoContent, ""
	}}
	s := open(t, s3store.Settings{Bucket: "bucket", Endpoint: "h.example", AccessKey: "a", SecretKey: "s", Transport: h})
	if _, err := s.Put(t.Context(), "key", bytes.NewReader(make([]byte, 9<<20)), -1, muxcore.PutOptions{}); err == nil {
		t.Error("Put of which every part fails = nil")
	}
	s.Close()
	if len(h.unread) == 0 {
		t.Fatal("no part was sent")
	}
	for _, body := range h.unread {
		if n, err := io.Copy(io.Discard, body); n > 0 || err == nil {
			t.Errorf("%d bytes of memory that is another's by now, %v", n, err)
		}
	}
}

// A service that is down when a failed upload is to be aborted may be back soon.
func TestAnAbortIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var aborts atomic.Int64
		s, err := s3store.New(s3store.Settings{Bucket: "bucket", Endpoint: "h.example", AccessKey: "a", SecretKey: "s", Transport: answering(func(r *http.Request) (int, string) {
			switch {
			case r.Method == http.MethodHead && strings.HasSuffix(r.URL.Path, "/key"):
				return http.StatusNotFound, ""
			case r.Method == http.MethodHead:
				return http.StatusOK, ""
			case r.URL.Query().Has("uploads"):
				return http.StatusOK, "<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>"
			case r.Method == http.MethodDelete:
				if aborts.Add(1) == 3 {
					return http.StatusNoContent, ""
				}
			}
			return http.StatusServiceUnavailable, ""
		})})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Put(t.Context(), "key", bytes.NewReader(make([]byte, 9<<20)), -1, muxcore.PutOptions{}); err == nil {
			t.Error("Put of which every part fails = nil")
		}
		synctest.Wait()
		if n := aborts.Load(); n != 1 {
			t.Errorf("%d aborts at once, want 1", n)
		}
		time.Sleep(time.Minute)
		s.Close()
		if n := aborts.Load(); n != 3 {
			t.Errorf("%d aborts, want 3", n)
		}
	})
}

// Thirty bodies of up to a part each took thirty parts of memory, and nobody counted them.
func TestUploadsStayWithinTheMemoryOfTheStore(t *testing.T) {
	service, s := inParts(t)
	s.Budget(3000)
	const n = 12
	var begun, wg sync.WaitGroup
	begun.Add(n)
	release := make(chan bool)
	for i := range n {
		size := 900 // one request, if there is memory
		if i%2 == 1 {
			size = 4500 // parts
		}
		body := strings.Repeat(string(rune('a'+i)), size)
		wg.Go(func() {
			slow := io.MultiReader(strings.NewReader(body[:size/3]), &once{func() { begun.Done(); <-release }}, strings.NewReader(body[size/3:]))
			key := fmt.Sprint(i)
			if _, err := s.Put(t.Context(), key, slow, int64(size), muxcore.PutOptions{}); err != nil {
				t.Errorf("Put of %d bytes = %v", size, err)
				return
			}
			o, err := s.Get(t.Context(), key, muxcore.GetOptions{})
			if err != nil {
				t.Errorf("Get = %v", err)
				return
			}
			defer o.Body.Close()
			if got, err := io.ReadAll(o.Body); err != nil || string(got) != body {
				t.Errorf("%d bytes come back as %d, %v", size, len(got), err)
			}
		})
	}
	begun.Wait() // nobody waits for anybody
	if got := s.Memory(); got > 3000 || got == 0 {
		t.Errorf("%d bytes of memory are in use, want some, and 3000 at most", got)
	}
	close(release)
	wg.Wait()
	s.Close()
	if service.Uploads() > 0 || s.Memory() != 0 {
		t.Errorf("%d uploads and %d bytes of memory are left", service.Uploads(), s.Memory())
	}
}

// A body of unknown length needs memory. That there is none is no failure of the service.
func TestWhoCannotDoWithoutMemoryWaitsForAMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := s3store.New(s3store.Settings{Bucket: "bucket", Endpoint: "h.example", AccessKey: "a", SecretKey: "s", Memory: 8 << 20, Transport: answering(func(r *http.Request) (int, string) {
			switch {
			case r.Method == http.MethodHead && strings.HasSuffix(r.URL.Path, "/key"):
				return http.StatusNotFound, ""
			case r.URL.Query().Has("uploads"):
				return http.StatusOK, "<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>"
			case r.Method == http.MethodPost:
				return http.StatusOK, "<CompleteMultipartUploadResult><ETag>x</ETag></CompleteMultipartUploadResult>"
			}
			return http.StatusOK, ""
		})})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		put := func(body io.Reader) error {
			_, err := s.Put(t.Context(), "key", body, -1, muxcore.PutOptions{})
			return err
		}
		long := func() io.Reader { return strings.NewReader(strings.Repeat("x", 100_000)) }
		release := make(chan bool)
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := put(io.MultiReader(long(), &once{func() { <-release }})); err != nil {
				t.Errorf("Put of who has the memory = %v", err)
			}
		})
		synctest.Wait()
		err = put(long())
		if e, ok := errors.AsType[*muxcore.Error](err); !ok || !e.Unsure || muxcore.Classify(t.Context(), err).Counts() {
			t.Errorf("Put without memory = %v, want that nobody is to blame", err)
		}
		if err := put(strings.NewReader("short")); err != nil {
			t.Errorf("Put of a short body, which takes none, = %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.Put(ctx, "key", long(), -1, muxcore.PutOptions{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Put of who has no time = %v, want %v", err, context.DeadlineExceeded)
		}
		wg.Go(func() {
			if err := put(long()); err != nil {
				t.Errorf("Put of who waits until there is memory = %v", err)
			}
		})
		time.Sleep(time.Second)
		close(release)
		wg.Wait()
		if left := s.Memory(); left != 0 {
			t.Errorf("%d bytes of memory are left", left)
		}
	})
}
