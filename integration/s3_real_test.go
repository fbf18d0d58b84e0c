package integration_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/suaveplan/caddy-storage-mux/integration/gocdk"
	"github.com/suaveplan/caddy-storage-mux/integration/rig"
	"github.com/suaveplan/caddy-storage-mux/integration/s3d"
	"github.com/suaveplan/caddy-storage-mux/internal/bunnyfake"
	"github.com/suaveplan/caddy-storage-mux/internal/swiftfake"
	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/locks"
	"github.com/suaveplan/caddy-storage-mux/muxcore/s3store"
	"github.com/suaveplan/caddy-storage-mux/muxcore/storetest"
)

// TestTheRealS3 holds what we believe of S3 against a server that others wrote.
func TestTheRealS3(t *testing.T) {
	t.Parallel()
	s := s3d.Start(t)
	t.Run("served by Caddy", func(t *testing.T) { realS3Served(t, s) })
	t.Run("uploads by parts", func(t *testing.T) { realParts(t, s) })
	t.Run("conditions of uploads by parts", func(t *testing.T) { realPartsConditions(t, s) })
	t.Run("an upload that breaks off leaves nothing", func(t *testing.T) { realS3BrokenUpload(t, s) })
	t.Run("Caddy is killed in mid-upload", func(t *testing.T) { realS3Kill(t, s) })
	t.Run("a shield of S3, Swift, Bunny and a disk", func(t *testing.T) { realShield(t, s) })
	t.Run("a list of many pages", func(t *testing.T) { realS3Pages(t, s) })
	t.Run("locks", func(t *testing.T) { realS3Locks(t, s) })
	t.Run("conformance", func(t *testing.T) { realS3Suite(t, s) })
	t.Run("conformance as others see it", func(t *testing.T) {
		gocdk.Run(t, func(tb testing.TB) muxcore.Store { return s3Store(tb, s, s.Bucket(tb)) })
	})
}

// s3Store opens a bucket.
func s3Store(tb testing.TB, s *s3d.Server, bucket string) *s3store.Store {
	tb.Helper()
	store, err := s3store.New(s3store.Settings{Bucket: bucket, Endpoint: s.URL, AccessKey: s3d.AccessKey, SecretKey: s3d.SecretKey})
	return opened(tb, store, err)
}

func realS3Suite(t *testing.T, s *s3d.Server) {
	skip := map[string]string{
		"a store refuses a key it cannot hold and changes nothing": "versitygw keeps objects as files, whose names have 255 bytes at most, where S3 has no such limit",
		"one of many conditional deletes succeeds":                 "versitygw says 204 to a conditional DELETE of what is not there; Amazon says 404",
	}
	storetest.Run(t, storetest.Harness{TimeResolution: time.Second, Parallel: true, Timeout: 5 * time.Minute, Skip: skip, New: func(tb testing.TB) muxcore.Store {
		return s3Store(tb, s, s.Bucket(tb))
	}})
}

// s3Caddy starts a Caddy over a bucket.
func s3Caddy(t *testing.T, s *s3d.Server, bucket string) *rig.Caddy {
	t.Helper()
	return rig.Start(t, `storage_mux {
		writable
		list
		backend s s3 {$BUCKET} {
			endpoint {$S3}
			access_key {$S3_KEY}
			secret_key {$S3_SECRET}
			prefix below/this
		}
	}`, rig.Env("BUCKET", bucket), rig.Env("S3", s.URL), rig.Env("S3_KEY", s3d.AccessKey), rig.Env("S3_SECRET", s3d.SecretKey))
}

// realS3Served goes through what broke elsewhere, and conditions.
func realS3Served(t *testing.T, s *s3d.Server) {
	c := s3Caddy(t, s, s.Bucket(t))
	tag := servedWell(t, c, false)
	wantStatus(t, "PUT if nobody has", c.Put("/new", "x", "If-None-Match", "*"), http.StatusCreated)
	wantStatus(t, "PUT if nobody had", c.Put("/new", "y", "If-None-Match", "*"), http.StatusPreconditionFailed)
	wantStatus(t, "PUT over what was seen", c.Put("/ten", "9876543210", "If-Match", tag), http.StatusNoContent)
	wantStatus(t, "PUT over what is no more", c.Put("/ten", "lost", "If-Match", tag), http.StatusPreconditionFailed)
	wantBody(t, "GET of what was put", c.Get("/ten"), http.StatusOK, []byte("9876543210"))
	wantStatus(t, "DELETE of what is no more", c.Do(rig.Request{Method: http.MethodDelete, Path: "/ten", Header: []string{"If-Match", tag}}), http.StatusPreconditionFailed)
}

// realParts puts bodies beyond a part, of known and unknown length, and reads over the seams.
func realParts(t *testing.T, s *s3d.Server) {
	bucket := s.Bucket(t)
	store := s3Store(t, s, bucket)
	body := someBytes(20<<20 + 1)
	for _, size := range []int64{int64(len(body)), -1} {
		res, err := store.Put(t.Context(), "key", strings.NewReader(string(body)), size, muxcore.PutOptions{ETag: `"mine"`})
		if err != nil || res.Size != int64(len(body)) {
			t.Fatalf("Put of %d bytes, declared %d = %+v, %v", len(body), size, res.Info, err)
		}
		for _, r := range []muxcore.Range{{}, {Offset: 8<<20 - 5, Length: 10}, {Offset: -7}} {
			o, err := store.Get(t.Context(), "key", muxcore.GetOptions{Range: r})
			if err != nil {
				t.Fatalf("Get of %+v = %v", r, err)
			}
			got, err := io.ReadAll(o.Body)
			o.Body.Close()
			if err != nil || o.ETag != `"mine"` {
				t.Errorf("Get of %+v = %s, %v", r, o.ETag, err)
			}
			if err := rig.Same(got, body[o.Offset:o.Offset+o.Length]); err != nil {
				t.Errorf("Get of %+v: %v", r, err)
			}
		}
	}
	wantNoUploads(t, s, bucket)
}

// realPartsConditions lets large uploads race for a key.
func realPartsConditions(t *testing.T, s *s3d.Server) {
	bucket := s.Bucket(t)
	store := s3Store(t, s, bucket)
	var wg sync.WaitGroup
	errs := make([]error, 4)
	for i := range errs {
		wg.Go(func() {
			body := strings.Repeat(string(rune('a'+i)), 9<<20)
			_, errs[i] = store.Put(t.Context(), "key", strings.NewReader(body), int64(len(body)), muxcore.PutOptions{Conditions: muxcore.Conditions{IfNoneMatch: "*"}})
		})
	}
	wg.Wait()
	won := 0
	for _, err := range errs {
		switch {
		case err == nil:
			won++
		case !errors.Is(err, muxcore.ErrPreconditionFailed):
			t.Errorf("Put = %v, want %v", err, muxcore.ErrPreconditionFailed)
		}
	}
	if won != 1 {
		t.Errorf("%d of %d creators succeeded, want 1", won, len(errs))
	}
	wantNoUploads(t, s, bucket)
}

func realS3BrokenUpload(t *testing.T, s *s3d.Server) {
	for _, size := range []int{300_000, 20 << 20} {
		bucket := s.Bucket(t)
		store := s3Store(t, s, bucket)
		body := io.MultiReader(strings.NewReader(strings.Repeat("x", size)), brokenReader{})
		if _, err := store.Put(t.Context(), "key", body, -1, muxcore.PutOptions{}); muxcore.CodeOf(err) != muxcore.CodeBodyMismatch {
			t.Errorf("Put of a stream that breaks off after %d bytes = %v, want %s", size, err, muxcore.CodeBodyMismatch)
		}
		if _, err := store.Stat(t.Context(), "key", muxcore.Conditions{}); muxcore.CodeOf(err) != muxcore.CodeKeyNotFound {
			t.Errorf("Stat afterwards = %v, want %s", err, muxcore.CodeKeyNotFound)
		}
		wantNoUploads(t, s, bucket)
	}
}

// wantNoUploads waits until no upload by parts is left: they are aborted in the background.
func wantNoUploads(t *testing.T, s *s3d.Server, bucket string) {
	t.Helper()
	late := time.After(soon)
	for n := s.Uploads(t, bucket); n > 0; n = s.Uploads(t, bucket) {
		select {
		case <-late:
			t.Errorf("%d uploads are left", n)
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// realS3Kill kills Caddy while it uploads over an object. The old one is there, whole, and the key can be written again.
func realS3Kill(t *testing.T, s *s3d.Server) {
	bucket := s.Bucket(t)
	c := s3Caddy(t, s, bucket)
	wantStatus(t, "PUT", c.Put("/key", "old"), http.StatusCreated)
	body, feed := io.Pipe()
	go func() {
		_, _ = feed.Write(someBytes(20 << 20)) // parts are on their way, or there
		c.Kill()
		feed.CloseWithError(io.ErrUnexpectedEOF)
	}()
	if r, err := c.Try(rig.Request{Method: http.MethodPut, Path: "/key", Body: body}); err == nil {
		t.Errorf("PUT to a Caddy that was killed = %d", r.Status)
	}
	again := s3Caddy(t, s, bucket)
	wantBody(t, "GET afterwards", again.Get("/key"), http.StatusOK, []byte("old"))
	large := someBytes(10 << 20)
	wantStatus(t, "PUT afterwards", again.Put("/key", string(large)), http.StatusNoContent)
	wantBody(t, "GET of that", again.Get("/key"), http.StatusOK, large)
}

func realS3Pages(t *testing.T, s *s3d.Server) {
	bucket := s.Bucket(t)
	store := s3Store(t, s, bucket)
	var want []string
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := w; i < 2500; i += 8 {
				if _, err := s.Client.PutObject(t.Context(), bucket, s3PageKey(i), strings.NewReader("x"), 1, "", "", minio.PutObjectOptions{}); err != nil {
					t.Errorf("PutObject = %v", err)
				}
			}
		})
	}
	wg.Wait()
	for i := range 2500 {
		want = append(want, s3PageKey(i))
	}
	slices.Sort(want)
	var got []string
	for e, err := range store.List(t.Context(), muxcore.ListOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, e.Key)
	}
	if !slices.Equal(got, want) {
		t.Errorf("List gives %d keys, want the %d in order", len(got), len(want))
	}
}

func s3PageKey(i int) string { return fmt.Sprintf("k/%04d", i) }

// realShield keeps one identity on four kinds of backends. Only Bunny, which keeps no metadata, may differ in that.
func realShield(t *testing.T, s *s3d.Server) {
	cluster, zones := swiftfake.New(t, "box"), bunnyfake.New(t, "zone")
	c := rig.Start(t, `
	header >X-Backend {http.storage_mux.backend}
	storage_mux shield {
		name t
		writable
		list
		backend s3 s3 {$BUCKET} {
			endpoint {$S3}
			access_key {$S3_KEY}
			secret_key {$S3_SECRET}
		}`+swiftBackend+`
		backend bunny bunny zone {
			endpoint {$BUNNY}
			access_key {$BUNNY_KEY}
		}
		backend disk file {$DIR}/disk {
			create_root
		}
	}`, rig.Env("BUCKET", s.Bucket(t)), rig.Env("S3", s.URL), rig.Env("S3_KEY", s3d.AccessKey), rig.Env("S3_SECRET", s3d.SecretKey),
		rig.Env("SWIFT", cluster.URL), rig.Env("SWIFT_KEY", swiftfake.Key), rig.Env("BUNNY", zones.URL), rig.Env("BUNNY_KEY", bunnyfake.AccessKey))
	small, large := someBytes(20_000), someBytes(10<<20)
	wantStatus(t, "PUT", c.Put("/small", string(small), "Content-Type", "text/x-own", "Cache-Control", "max-age=5", "X-Meta-Who", "me"), http.StatusCreated)
	wantStatus(t, "PUT of a large one", c.Put("/dir/large", string(large), "Content-Type", "text/x-own"), http.StatusCreated)
	if got := ok(t, c, "", "verify"); !strings.Contains(got, "2 keys compared, 0 differ") {
		t.Errorf("verify says %s", got)
	}
	first := c.Get("/small")
	for i, from := range []string{"s3", "swift", "bunny", "disk"} {
		if i > 0 {
			before := []string{"s3", "swift", "bunny"}[i-1]
			if status, text := c.Admin(http.MethodPost, "/storage_mux/t/backends/"+before+"/drain", ""); status != http.StatusOK {
				t.Fatalf("drain = %d %s", status, text)
			}
		}
		r := c.Get("/small")
		wantBody(t, "GET from "+from, r, http.StatusOK, small)
		wantBody(t, "GET of the large one from "+from, c.Get("/dir/large"), http.StatusOK, large)
		if got := r.Header.Get("X-Backend"); got != from {
			t.Fatalf("%q answered, want %s", got, from)
		}
		names := []string{"ETag", "Content-Type", "Content-Length", "Accept-Ranges", "Cache-Control", "X-Meta-Who", "Last-Modified"}
		if from == "bunny" {
			names = names[:4]
		}
		for _, name := range names {
			if got, want := r.Header.Get(name), first.Header.Get(name); got != want || want == "" {
				t.Errorf("%s from %s is %q, from s3 %q", name, from, got, want)
			}
		}
	}
}

// realS3Locks has clients of a bucket, each with its own connections, take turns, and removes a lock from under its holder.
func realS3Locks(t *testing.T, s *s3d.Server) {
	box := s.Bucket(t)
	lost := make(chan locks.Event, 16)
	open := func() *locks.Locker {
		l, err := locks.New(s3Store(t, s, box), locks.Settings{Poll: 20 * time.Millisecond, Refresh: 20 * time.Millisecond, Observe: func(e locks.Event) { lost <- e }})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	const clients, turns = 3, 4
	var inside, taken atomic.Int32
	var all sync.WaitGroup
	for range clients {
		l := open()
		all.Go(func() {
			for range turns {
				if err := l.Lock(t.Context(), "x"); err != nil {
					t.Errorf("Lock = %v", err)
					return
				}
				if inside.Add(1) != 1 {
					t.Error("two hold the lock")
				}
				taken.Add(1)
				inside.Add(-1)
				if err := l.Unlock(t.Context(), "x"); err != nil {
					t.Errorf("Unlock = %v", err)
				}
			}
		})
	}
	all.Wait()
	if taken.Load() != clients*turns {
		t.Errorf("the lock was taken %d times, want %d", taken.Load(), clients*turns)
	}

	l := open()
	if err := l.Lock(t.Context(), "y"); err != nil {
		t.Fatalf("Lock = %v", err)
	}
	store := s3Store(t, s, box)
	for e, err := range store.List(t.Context(), muxcore.ListOptions{Prefix: muxcore.LockPrefix}) {
		if err != nil {
			t.Fatal(err)
		}
		if _, err := store.Delete(t.Context(), e.Key, muxcore.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if e := <-lost; e.Kind != locks.EventLost || e.Name != "y" {
		t.Errorf("told %+v, want that y is lost", e)
	}
	if err := l.Renew(t.Context(), "y"); !errors.Is(err, locks.ErrLost) {
		t.Errorf("Renew = %v, want %v", err, locks.ErrLost)
	}
}
