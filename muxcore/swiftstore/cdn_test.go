package swiftstore_test

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/suaveplan/caddy-storage-mux/internal/swiftfake"
	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/swiftstore"
)

// rackspace are the settings of a container at Rackspace's CDN.
func rackspace(c *swiftfake.Cluster) swiftstore.Settings {
	set := settings(c, "box")
	set.AuthURL, set.User, set.Rackspace, set.CDN, set.Prefix = c.URL+"/v2.0", swiftfake.User, true, true, "site"
	return set
}

func TestAContainerIsPublishedWithItsTimeToLive(t *testing.T) {
	c := swiftfake.New(t, "box")
	set := rackspace(c)
	if _, err := open(t, set).PublicURL(t.Context(), "a b"); !errors.Is(err, muxcore.ErrUnsupported) {
		t.Errorf("PublicURL of a container that is not published = %v, want %v", err, muxcore.ErrUnsupported)
	}
	for _, ttl := range []time.Duration{time.Hour, 2 * time.Hour} {
		set.TTL = ttl
		at, err := open(t, set).PublicURL(t.Context(), "a b")
		if want := swiftfake.PublicHost + "/box/site/a%20b"; at != want || err != nil {
			t.Errorf("PublicURL = %q, %v, want %q", at, err, want)
		}
		if got, want := c.TTL("box"), map[time.Duration]string{time.Hour: "3600", 2 * time.Hour: "7200"}[ttl]; got != want {
			t.Errorf("the CDN keeps objects for %q, want %q", got, want)
		}
	}
}

func TestKeysArePurged(t *testing.T) {
	c := swiftfake.New(t, "box")
	set := rackspace(c)
	set.TTL = time.Hour
	if err := open(t, set).Purge(t.Context(), []string{"a", "b/c d"}); err != nil {
		t.Fatalf("Purge = %v", err)
	}
	got := c.Purged()
	slices.Sort(got)
	if want := []string{"box/site/a", "box/site/b/c d"}; !slices.Equal(got, want) {
		t.Errorf("purged %q, want %q", got, want)
	}
}

func TestWritesPurgeIfSoSet(t *testing.T) {
	c := swiftfake.New(t, "box")
	set := rackspace(c)
	var failed []string
	set.TTL, set.PurgeOnWrite, set.OnPurgeError = time.Hour, true, func(key string, _ error) { failed = append(failed, key) }
	s := open(t, set)
	put(t, s, "key", "body")
	if _, err := s.Delete(t.Context(), "key", muxcore.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if got, want := c.Purged(), []string{"box/site/key", "box/site/key"}; !slices.Equal(got, want) {
		t.Errorf("purged %q, want %q", got, want)
	}
	c.Fail(func(r *http.Request) int {
		if strings.HasPrefix(r.URL.Path, "/cdn/") {
			return http.StatusForbidden
		}
		return 0
	})
	put(t, s, "other", "body")
	if want := []string{"other"}; !slices.Equal(failed, want) {
		t.Errorf("OnPurgeError was told of %q, want %q", failed, want)
	}
}

func TestWithoutACDNThereIsNothingToPurge(t *testing.T) {
	s := open(t, settings(swiftfake.New(t, "box"), "box"))
	if err := s.Purge(t.Context(), []string{"key"}); !errors.Is(err, muxcore.ErrUnsupported) || s.Capabilities().Purge {
		t.Errorf("Purge = %v, want %v", err, muxcore.ErrUnsupported)
	}
}
