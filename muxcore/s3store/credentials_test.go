package s3store_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/suaveplan/caddy-storage-mux/internal/s3fake"
	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/internal/cloudtest"
	"github.com/suaveplan/caddy-storage-mux/muxcore/s3store"
)

// noCredentials takes away what the standard chain could find, and gives the folder for files of its own.
func noCredentials(t *testing.T) string {
	t.Helper()
	for _, name := range os.Environ() {
		if name, _, _ = strings.Cut(name, "="); strings.HasPrefix(name, "AWS_") {
			t.Setenv(name, "")
			os.Unsetenv(name)
		}
	}
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(dir, "credentials"))
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	return dir
}

// chained opens a bucket without keys of its own.
func chained(t *testing.T, service *s3fake.Service) *s3store.Store {
	t.Helper()
	return chainedAt(t, service, nil)
}

// chainedAt is chained with a clock.
func chainedAt(t *testing.T, service *s3fake.Service, now func() time.Time) *s3store.Store {
	t.Helper()
	return open(t, s3store.Settings{Bucket: "bucket", Endpoint: service.URL, Now: now})
}

func TestTheStandardChainFindsCredentials(t *testing.T) {
	service := s3fake.New(t, "bucket")
	service.Put("bucket", "key", "body", nil)
	for name, set := range map[string]func(dir string){
		"environment": func(string) {
			t.Setenv("AWS_ACCESS_KEY_ID", s3fake.AccessKey)
			t.Setenv("AWS_SECRET_ACCESS_KEY", s3fake.SecretKey)
		},
		"file": func(dir string) {
			text := fmt.Sprintf("[default]\naws_access_key_id = wrong\naws_secret_access_key = wrong\n[web]\naws_access_key_id = %s\naws_secret_access_key = %s\n", s3fake.AccessKey, s3fake.SecretKey)
			if err := os.WriteFile(filepath.Join(dir, "credentials"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			t.Setenv("AWS_PROFILE", "web")
		},
	} {
		set(noCredentials(t))
		if _, err := chained(t, service).Stat(t.Context(), "key", muxcore.Conditions{}); err != nil {
			t.Errorf("Stat with credentials from the %s = %v", name, err)
		}
	}
}

func TestWithoutAnyCredentialsTheBackendCouldNotBeAsked(t *testing.T) {
	noCredentials(t)
	t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://127.0.0.1:1/nobody")
	_, err := chained(t, s3fake.New(t, "bucket")).Stat(t.Context(), "key", muxcore.Conditions{})
	if muxcore.CodeOf(err) != muxcore.CodeDenied || !strings.Contains(fmt.Sprint(err), "no credentials: environment: none") {
		t.Errorf("Stat = %v, want %s that says where there are none", err, muxcore.CodeDenied)
	}
}

// issuer gives credentials of a role, as the agent of a container does, each with a token of its own.
func issuer(t *testing.T, service *s3fake.Service) *atomic.Int64 {
	t.Helper()
	issued := new(atomic.Int64)
	expiring(t, service, func() time.Duration { issued.Add(1); return time.Hour })
	return issued
}

// expiring gives credentials that last, each with a token of its own, besides which none is taken.
func expiring(t *testing.T, service *s3fake.Service, last func() time.Duration) {
	t.Helper()
	var n atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		lasts := last()
		token := fmt.Sprintf("token-%d", n.Add(1))
		service.Tokens(token)
		_ = json.NewEncoder(w).Encode(map[string]any{
			"AccessKeyId": s3fake.AccessKey, "SecretAccessKey": s3fake.SecretKey, "Token": token,
			"Expiration": time.Now().Add(lasts).UTC().Format(time.RFC3339),
		})
	}))
	t.Cleanup(server.Close)
	t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", server.URL)
}

// Tokens expired under load, and each request asked for a new one.
func TestATokenThatExpiresIsRenewedOnceForAllWhoWait(t *testing.T) {
	noCredentials(t)
	service := s3fake.New(t, "bucket")
	issued := issuer(t, service)
	s := chained(t, service)
	round := func() {
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				body := strings.Repeat("x", 100_000*(i%2)+1)
				if _, err := s.Put(t.Context(), fmt.Sprint(i), strings.NewReader(body), int64(len(body)), muxcore.PutOptions{}); err != nil {
					t.Errorf("Put = %v", err)
				}
			})
		}
		wg.Wait()
	}
	round()
	if n := issued.Load(); n != 1 {
		t.Errorf("%d credentials were asked for, want 1", n)
	}
	service.Tokens() // all have expired
	round()
	if n := issued.Load(); n != 2 {
		t.Errorf("%d credentials were asked for, want 2", n)
	}
}

// Where a service refused all tokens, whoever gives them was asked for two with each request.
func TestCredentialsThatAreRefusedAgainAreNotFetchedWithEachRequest(t *testing.T) {
	noCredentials(t)
	service := s3fake.New(t, "bucket")
	issued := issuer(t, service)
	service.Fail(func(*http.Request) *s3fake.Refusal {
		return s3fake.Refuse(http.StatusForbidden, "InvalidAccessKeyId", "The AWS Access Key Id you provided does not exist in our records.")
	})
	at := &clock{now: time.Now()}
	s := chainedAt(t, service, at.read)
	get := func() error {
		o, err := s.Get(t.Context(), "key", muxcore.GetOptions{})
		if err == nil {
			o.Body.Close()
		}
		return err
	}
	for _, want := range []int64{2, 3} {
		for range 5 {
			if err := get(); muxcore.CodeOf(err) != muxcore.CodeDenied {
				t.Errorf("Get = %v, want %s", err, muxcore.CodeDenied)
			}
		}
		if n := issued.Load(); n != want {
			t.Errorf("%d credentials were asked for, want %d", n, want)
		}
		at.advance(5 * time.Second)
	}
	service.Fail(nil)
	service.Put("bucket", "key", "body", nil)
	if err := get(); err != nil {
		t.Errorf("Get when they are taken = %v", err)
	}
}

func TestAnExpiredTokenThatIsGivenIsSaidToBe(t *testing.T) {
	service := s3fake.New(t, "bucket")
	set := settings(service, "bucket")
	set.SessionToken = "t0ken-secret"
	s := open(t, set)
	for name, call := range cloudtest.Calls(t, s, "key") {
		if err := call(); muxcore.CodeOf(err) != muxcore.CodeCredentialExpired {
			t.Errorf("%s = %v, want %s", name, err, muxcore.CodeCredentialExpired)
		}
	}
}

// Services repeat what they were sent.
func TestNoErrorShowsASecret(t *testing.T) {
	service := s3fake.New(t, "bucket")
	for name, change := range map[string]func(*s3store.Settings){
		"a wrong key":            func(set *s3store.Settings) { set.AccessKey = "AKIAWRONGKEY" },
		"a region that is a key": func(set *s3store.Settings) { set.AccessKey, set.Region = "AKIAWRONGKEY", "eu" },
		"a wrong secret":         func(set *s3store.Settings) { set.SecretKey = "wr0ng-secret" },
		"an expired token":       func(set *s3store.Settings) { set.SessionToken = "t0ken-secret" },
		"a long token":           func(set *s3store.Settings) { set.SessionToken = strings.Repeat("t0ken-secret", 100) },
		"a dead endpoint":        func(set *s3store.Settings) { set.Endpoint = "http://127.0.0.1:1" },
	} {
		set := settings(service, "bucket")
		change(&set)
		service.Fail(nil)
		if name == "a region that is a key" {
			service.Fail(func(*http.Request) *s3fake.Refusal {
				r := s3fake.Refuse(http.StatusForbidden, "AccessDenied", "")
				r.Header = http.Header{"X-Amz-Bucket-Region": {set.AccessKey}}
				return r
			})
		}
		for op, call := range cloudtest.Calls(t, open(t, set), "key") {
			err := call()
			text := fmt.Sprintf("%v %+v %#v", err, err, err)
			for e := err; e != nil; e = errors.Unwrap(e) {
				text += fmt.Sprintf(" %v", e)
			}
			if err == nil || strings.Contains(text, set.SecretKey) || strings.Contains(text, "AKIAWRONGKEY") || strings.Contains(text, "t0ken-secret") {
				t.Errorf("%s with %s = %s", op, name, text)
			}
		}
	}
}

func TestTheRegionIsLearntOrNamed(t *testing.T) {
	noCredentials(t)
	service := s3fake.New(t, "bucket")
	service.Move("eu-9")
	set := settings(service, "bucket")
	for name, call := range cloudtest.Calls(t, open(t, set), "key") {
		if err := call(); err != nil && !errors.Is(err, muxcore.ErrKeyNotFound) {
			t.Errorf("%s without a region = %v", name, err)
		}
	}
	together := open(t, set)
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			body := strings.Repeat("x", 100_000)
			if _, err := together.Put(t.Context(), fmt.Sprint(i), strings.NewReader(body), int64(len(body)), muxcore.PutOptions{}); err != nil {
				t.Errorf("Put beside others that learn the region as well = %v", err)
			}
		})
	}
	wg.Wait()

	set.Region = "us-west-1"
	s := open(t, set)
	all := cloudtest.Calls(t, s, "key")
	all["Probe"] = func() error { return s.Probe(t.Context()) }
	for name, call := range all {
		err := call()
		if name == "Probe" && err == nil {
			continue // it is alive
		}
		if muxcore.CodeOf(err) != muxcore.CodeDenied || !strings.Contains(fmt.Sprint(err), "write region eu-9") {
			t.Errorf("%s with a wrong region = %v, want %s that says what to write", name, err, muxcore.CodeDenied)
		}
	}
}
