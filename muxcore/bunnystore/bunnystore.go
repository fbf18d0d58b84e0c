package bunnystore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/internal/wire"
)

// endpoints of Edge Storage by the code of a zone's main region, as Bunny documents them.
var endpoints = map[string]string{
	"de":  "https://storage.bunnycdn.com",     // Falkenstein, Frankfurt
	"uk":  "https://uk.storage.bunnycdn.com",  // London
	"ny":  "https://ny.storage.bunnycdn.com",  // New York
	"la":  "https://la.storage.bunnycdn.com",  // Los Angeles
	"sg":  "https://sg.storage.bunnycdn.com",  // Singapore
	"se":  "https://se.storage.bunnycdn.com",  // Stockholm
	"br":  "https://br.storage.bunnycdn.com",  // São Paulo
	"jh":  "https://jh.storage.bunnycdn.com",  // Johannesburg
	"syd": "https://syd.storage.bunnycdn.com", // Sydney
}

// apiURL is Bunny's API for everything but the storage.
const apiURL = "https://api.bunny.net"

const (
	continueTime = 5 * time.Second  // how long an upload waits for 100 Continue before it is sent all the same
	purgeTime    = 10 * time.Second // the longest that a purge after a write may take
)

// Settings of a Bunny store. Zone, AccessKey, and Region or Endpoint are required. Errors of [New] name the field by its
// word in a configuration, and never show a key.
type Settings struct {
	// Zone is the name of the storage zone (zone).
	Zone string

	// Region is the code of the zone's main region (region): de, uk, ny, la, sg, se, br, jh or syd. With another one Bunny refuses
	// the key, or worse. Default: none.
	Region string

	// Endpoint in place of the region's (endpoint). Default: by region.
	Endpoint string

	// AccessKey is the password of the zone (access_key), not the key of the account.
	AccessKey string

	// Prefix stands in front of every key (prefix); slashes at its ends do not matter. Default: none.
	Prefix string

	// VerifyWrites looks after every PUT whether the object is there as it was sent (verify_writes). Default: false.
	VerifyWrites bool

	// PullZone is the URL below which the pull zone serves the storage zone (pull_zone). Default: none, there are no public
	// URLs.
	PullZone string

	// APIKey is the key of the account (api_key), for purges. Default: none, there are no purges.
	APIKey string

	// APIEndpoint is where purges go (api_endpoint). Default: https://api.bunny.net.
	APIEndpoint string

	// PurgeOnWrite purges a key at the pull zone once it was written or deleted (purge_on_write). Default: false.
	PurgeOnWrite bool

	// OnPurgeError is told when such a purge failed; the write has succeeded all the same. Default: nobody is.
	OnPurgeError func(key string, err error)

	// Transport sends the requests. It must be safe for concurrent use, and must not decompress. Default: a pool of
	// kept-alive connections of the store's own.
	Transport http.RoundTripper

	// Now reads the clock. Default: time.Now.
	Now func() time.Time
}

// Store is a storage zone. It is safe for concurrent use.
type Store struct {
	set    Settings
	prefix wire.Prefix
	base   *url.URL
	api    *url.URL
	public string // without a slash at its end
	home   http.RoundTripper
}

// New makes a store of a storage zone. It does not dial.
func New(set Settings) (*Store, error) {
	if set.Now == nil {
		set.Now = time.Now
	}
	if err := set.check(); err != nil {
		return nil, err
	}
	prefix, err := wire.NewPrefix(set.Prefix)
	if err != nil {
		return nil, err
	}
	s := &Store{set: set, prefix: prefix, home: wire.Home(set.Transport, new(tls.Config), continueTime)}
	for _, u := range []struct {
		word, text string
		into       **url.URL
	}{{"endpoint", set.Endpoint, &s.base}, {"api_endpoint", set.APIEndpoint, &s.api}} {
		parsed, err := parseURL(u.word, u.text)
		if err != nil {
			return nil, err
		}
		*u.into = parsed
	}
	if set.PullZone != "" {
		u, err := parseURL("pull_zone", set.PullZone)
		if err != nil {
			return nil, err
		}
		s.public = strings.TrimSuffix(u.String(), "/")
	}
	return s, nil
}

// check finds what cannot work, and fills in what depends on other fields.
func (set *Settings) check() error {
	switch {
	case set.Zone == "" || strings.ContainsAny(set.Zone, "/?#"):
		return fmt.Errorf("zone: must be the name of a storage zone, got %q", set.Zone)
	case set.AccessKey == "":
		return errors.New("access_key: missing")
	case !wire.IsFieldValue(set.AccessKey) || !wire.IsFieldValue(set.APIKey):
		return errors.New("access_key, api_key: a character that no key has")
	case set.Region == "" && set.Endpoint == "":
		return errors.New("region: missing; it is the zone's main region, and no other takes its key")
	case set.APIKey != "" && set.PullZone == "":
		return errors.New("pull_zone: missing beside api_key")
	case set.PurgeOnWrite && set.APIKey == "":
		return errors.New("purge_on_write: needs pull_zone and api_key")
	}
	if set.Region != "" {
		known, ok := endpoints[strings.ToLower(set.Region)]
		if !ok {
			return fmt.Errorf("region: must be one of %s, got %q", strings.Join(slices.Sorted(maps.Keys(endpoints)), ", "), set.Region)
		}
		if set.Endpoint == "" {
			set.Endpoint = known
		}
	}
	if set.APIEndpoint == "" {
		set.APIEndpoint = apiURL
	}
	return nil
}

// parseURL reads a URL to which paths are appended. No error quotes it: there may be a password in it.
func parseURL(word, text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || !wire.HasServer(u) || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("%s: must be http:// or https:// and a host, without credentials and query", word)
	}
	u.Path, u.RawPath = strings.TrimSuffix(u.Path, "/"), strings.TrimSuffix(u.EscapedPath(), "/")
	return u, nil
}

// Close releases the idle connections; those in use end with their requests.
func (s *Store) Close() error {
	wire.CloseIdle(s.home)
	return nil
}

// Waits implements muxcore.Waiter.
func (s *Store) Waits() muxcore.Waits { return muxcore.WaitsWithContext }

// Capabilities implements muxcore.Capable.
func (s *Store) Capabilities() muxcore.Capabilities {
	return muxcore.Capabilities{Write: true, List: true, Range: true, Digests: true, Purge: s.set.APIKey != "", Public: s.set.PullZone != ""}
}

// CheckKey implements muxcore.KeyChecker: with its prefix, a key must still be one.
func (s *Store) CheckKey(key string) error { return s.prefix.CheckKey(key) }

// Probe implements muxcore.Prober: it asks for an object that nobody can have put.
func (s *Store) Probe(ctx context.Context) error {
	resp, err := s.send(ctx, &question{op: muxcore.OpHealth, method: methodDescribe, path: s.prefix.Path(muxcore.ReservedPrefix + "/health")}) //nolint:bodyclose // drained below
	if err != nil {
		return err
	}
	wire.Drain(resp)
	if resp.StatusCode == http.StatusNotFound || resp.StatusCode < 300 {
		return nil
	}
	return s.refused(muxcore.OpHealth, "", resp)
}

// Interface guards.
var (
	_ muxcore.Store      = (*Store)(nil)
	_ muxcore.Capable    = (*Store)(nil)
	_ muxcore.Waiter     = (*Store)(nil)
	_ muxcore.KeyChecker = (*Store)(nil)
	_ muxcore.Prober     = (*Store)(nil)
	_ muxcore.CDN        = (*Store)(nil)
)
