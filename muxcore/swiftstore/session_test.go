package swiftstore_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/suaveplan/caddy-storage-mux/internal/swiftfake"
	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/swiftstore"
)

func TestEveryVersionSignsIn(t *testing.T) {
	c := swiftfake.New(t, "box")
	for name, change := range map[string]func(*swiftstore.Settings){
		"version 1": func(*swiftstore.Settings) {},
		"version 2 with a password or an API key, whichever it is": func(set *swiftstore.Settings) {
			set.AuthURL, set.User, set.Region = c.URL+"/v2.0", swiftfake.User, swiftfake.Region
		},
		"version 3": func(set *swiftstore.Settings) {
			set.AuthURL, set.User, set.Tenant = c.URL+"/v3", swiftfake.User, "project"
		},
		"Rackspace, in the user's own region": func(set *swiftstore.Settings) {
			set.AuthURL, set.User, set.Rackspace = c.URL+"/v2.0", swiftfake.User, true
		},
		"Rackspace, in a region by any case": func(set *swiftstore.Settings) {
			set.AuthURL, set.User, set.Rackspace, set.Region = c.URL+"/v2.0", swiftfake.User, true, "lon"
		},
	} {
		t.Run(name, func(t *testing.T) {
			set := settings(c, "box")
			change(&set)
			s := open(t, set)
			put(t, s, "key", "body")
			if _, err := s.Stat(t.Context(), "key", muxcore.Conditions{}); err != nil {
				t.Errorf("Stat = %v", err)
			}
		})
	}
}

// Swift and Rackspace tokens ran out under load: 401 until a restart, and streams that could not be sent again.
func TestATokenThatRunsOutUnderLoadIsRenewedOnceForAll(t *testing.T) {
	c := swiftfake.New(t, "box")
	s := open(t, settings(c, "box"))
	for i := range 25 {
		put(t, s, fmt.Sprintf("key-%d", i), strings.Repeat("x", 1000))
	}
	before := c.Logins()
	c.ExpireAll()
	large := make([]byte, 300<<10)
	_, _ = rand.Read(large)
	var wg sync.WaitGroup
	for i := range 25 {
		wg.Go(func() {
			o, err := s.Get(t.Context(), fmt.Sprintf("key-%d", i), muxcore.GetOptions{})
			if err != nil {
				t.Errorf("Get = %v", err)
				return
			}
			o.Body.Close()
		})
		wg.Go(func() {
			body := io.Reader(bytes.NewReader(large))
			if _, err := s.Put(t.Context(), fmt.Sprintf("new-%d", i), body, int64(len(large)), muxcore.PutOptions{}); err != nil {
				t.Errorf("Put = %v", err)
			}
		})
	}
	wg.Wait()
	if got := c.Logins() - before; got != 1 {
		t.Errorf("%d logins for 50 callers whose token ran out, want 1", got)
	}
}

func TestAStreamIsSentAgainOnlyIfNobodyHasReadOfIt(t *testing.T) {
	t.Parallel()
	c := swiftfake.New(t, "box")
	s := open(t, settings(c, "box"))
	put(t, s, "first", "token")
	c.ExpireAll()
	c.ExpireAfter(1) // each token is good for the HEAD before the PUT, or for the PUT
	body := strings.Repeat("0123456789", 100_000)
	if _, err := s.Put(t.Context(), "stream", io.MultiReader(strings.NewReader(body)), -1, muxcore.PutOptions{}); err != nil {
		t.Fatalf("Put of a stream whose token ran out between its requests = %v", err)
	}
	c.ExpireAfter(0)
	o, err := s.Get(t.Context(), "stream", muxcore.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer o.Body.Close()
	if got, err := io.ReadAll(o.Body); err != nil || string(got) != body {
		t.Errorf("the stream is %d bytes, %v, want the %d that were sent", len(got), err, len(body))
	}
}

func TestATokenIsRenewedBeforeItEnds(t *testing.T) {
	c := swiftfake.New(t, "box")
	c.Life(100 * time.Second)
	var mu sync.Mutex
	now := time.Now()
	set := settings(c, "box")
	set.Now = func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return now
	}
	pass := func(d time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		now = now.Add(d)
	}
	s := open(t, set)
	for _, step := range []struct {
		wait   time.Duration
		logins int
	}{{0, 1}, {70 * time.Second, 1}, {15 * time.Second, 2}, {time.Second, 2}, {101 * time.Second, 3}} {
		pass(step.wait)
		put(t, s, "key", "body")
		for c.Logins() < step.logins { // in the background, where there is time
			pass(time.Second) // on a slow machine the last login may have ended but now
			if err := s.Probe(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if got := c.Logins(); got != step.logins {
			t.Errorf("%d logins after another %v, want %d", got, step.wait, step.logins)
		}
	}
}

func TestCredentialsThatAreRefusedAreDeniedAndNeverShown(t *testing.T) {
	c := swiftfake.New(t, "box")
	c.Lock(true)
	s := open(t, settings(c, "box"))
	_, err := s.Stat(t.Context(), "key", muxcore.Conditions{})
	if muxcore.CodeOf(err) != muxcore.CodeCredentialExpired || muxcore.Classify(t.Context(), err) != muxcore.ClassDenied {
		t.Errorf("Stat with a key that is refused = %v, want %s, denied", err, muxcore.CodeCredentialExpired)
	}
	if strings.Contains(fmt.Sprint(err), swiftfake.Key) {
		t.Errorf("the error shows the key: %v", err)
	}
}

func TestATokenThatStaysRefusedIsDenied(t *testing.T) {
	c := swiftfake.New(t, "box")
	c.Fail(func(*http.Request) int { return http.StatusUnauthorized })
	s := open(t, settings(c, "box"))
	_, err := s.Stat(t.Context(), "key", muxcore.Conditions{})
	if muxcore.CodeOf(err) != muxcore.CodeDenied || c.Logins() != 2 {
		t.Errorf("Stat = %v after %d logins, want %s after 2", err, c.Logins(), muxcore.CodeDenied)
	}
}

func TestARegionThatTheAccountDoesNotHaveIsNamed(t *testing.T) {
	c := swiftfake.New(t, "box")
	set := settings(c, "box")
	set.AuthURL, set.User, set.Rackspace, set.Region = c.URL+"/v2.0", swiftfake.User, true, "SYD"
	_, err := open(t, set).Stat(t.Context(), "key", muxcore.Conditions{})
	if muxcore.CodeOf(err) != muxcore.CodeUnavailable || !strings.Contains(fmt.Sprint(err), "DFW, LON") {
		t.Errorf("Stat = %v, want one that names the regions there are", err)
	}
}

func TestWhoeverWaitsForATokenMayGiveUp(t *testing.T) {
	hang := make(chan struct{})
	set := swiftstore.Settings{Container: "box", AuthURL: "http://identity.invalid/v3", User: "u", Key: "k"}
	set.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
		select {
		case <-hang:
		case <-r.Context().Done():
		}
		return nil, errors.New("nobody there")
	})
	s := open(t, set)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Stat(ctx, "key", muxcore.Conditions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("Stat of one who gave up = %v, want %v", err, context.Canceled)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := s.Stat(ctx, "key", muxcore.Conditions{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Stat while the identity service hangs = %v, want %v", err, context.DeadlineExceeded)
	}
	close(hang)
	if _, err := s.Stat(t.Context(), "key", muxcore.Conditions{}); muxcore.Classify(t.Context(), err) != muxcore.ClassTransient {
		t.Errorf("Stat while the identity service is away = %v, want a transient error", err)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// An identity service that knows nothing of signing in is named, and so is the option that led there.
func TestAnIdentityServiceThatIsNoneIsNamed(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusMethodNotAllowed) }))
	defer server.Close()
	for _, version := range []string{"/auth/v1.0", "/v2.0", "/v3"} {
		s := open(t, swiftstore.Settings{Container: "box", AuthURL: server.URL + version, User: "u", Key: "secret", Tenant: map[string]string{"/v2.0": "t", "/v3": "t"}[version]})
		_, err := s.Stat(t.Context(), "k", muxcore.Conditions{})
		if err == nil || !strings.Contains(err.Error(), strings.TrimPrefix(server.URL, "http://")+" answers 405: see auth_url") || strings.Contains(err.Error(), "secret") {
			t.Errorf("Stat where %s is answered by 405 = %v", version, err)
		}
	}
}
