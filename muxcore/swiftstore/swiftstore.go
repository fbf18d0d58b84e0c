package swiftstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/internal/wire"
)

// continueTime is how long an upload waits for the cluster's 100 Continue before it is sent all the same.
const continueTime = 5 * time.Second

// Settings of a Swift store. Container, User and Key are required. Errors of [New] name the field by its word in a
// configuration, and never show the key.
type Settings struct {
	// Container that holds the objects (container). It must be there.
	Container string

	// AuthURL is where to sign in (auth_url). Its path tells the version: one with v1, v2 or v3. Default: none, but for
	// Rackspace its own.
	AuthURL string

	// User and Key to sign in with (user, key). With version 1 the user is "account:user".
	User string
	Key  string

	// Tenant is the project (tenant), for versions 2 and 3. Default: the user's own.
	Tenant string

	// Domain of the user and the project (domain), for version 3. Default: Default.
	Domain string

	// Region of the cluster (region). Default: the first in the catalogue; with Rackspace, the user's own.
	Region string

	// Rackspace signs in as Rackspace has it, with an API key. Default: false.
	Rackspace bool

	// Prefix stands in front of every key (prefix); slashes at its ends do not matter. Default: none.
	Prefix string

	// CDN says that the container is, or is to be, published by the CDN that the identity service names (cdn). Default:
	// false, there are no public URLs and nothing to purge.
	CDN bool

	// TTL is how long the CDN keeps an object (cdn <ttl>), from 15 minutes to a year. If it is given, the container is published with it
	// at the first use of the CDN. Default: as the container is.
	TTL time.Duration

	// PurgeOnWrite purges a key once it was written or deleted (purge_on_write). Rackspace admits few purges a day.
	// Default: false.
	PurgeOnWrite bool

	// OnPurgeError is told when such a purge failed; the write has succeeded all the same. Default: nobody is.
	OnPurgeError func(key string, err error)

	// Transport sends the requests. It must be safe for concurrent use, and must not decompress. Default: a pool of
	// kept-alive connections of the store's own.
	Transport http.RoundTripper

	// Now reads the clock. Default: time.Now.
	Now func() time.Time
}

// Store is a container. It is safe for concurrent use.
type Store struct {
	set     Settings
	prefix  wire.Prefix
	home    http.RoundTripper
	session *session
	there   atomic.Int64 // when the container was seen last, in Unix seconds
	cdn     publication
}

// New makes a store of a container. It does not dial.
func New(set Settings) (*Store, error) {
	if set.Now == nil {
		set.Now = time.Now
	}
	prefix, err := wire.NewPrefix(set.Prefix)
	if err != nil {
		return nil, err
	}
	if err := set.check(); err != nil {
		return nil, err
	}
	s := &Store{set: set, prefix: prefix, home: wire.Home(set.Transport, new(tls.Config), continueTime)}
	s.session = newSession(s.login, set.Now)
	return s, nil
}

// check finds what cannot work, and fills in what depends on other fields.
func (set *Settings) check() error {
	switch {
	case set.Container == "":
		return errors.New("container: missing")
	case strings.Contains(set.Container, "/"), len(set.Container) > 256:
		return fmt.Errorf("container: must be a name of at most 256 bytes without slashes, got %q", set.Container)
	case set.User == "":
		return errors.New("user: missing")
	case set.Key == "":
		return errors.New("key: missing")
	case set.AuthURL == "" && set.Rackspace:
		set.AuthURL = rackspaceURL
	case set.AuthURL == "":
		return errors.New("auth_url: missing")
	}
	u, err := url.Parse(set.AuthURL)
	if err != nil || !wire.HasServer(u) || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return errors.New("auth_url: must be http:// or https:// and a host, without credentials and query")
	}
	version := set.version()
	switch {
	case version == 0:
		return fmt.Errorf("auth_url: has none of v1, v2 and v3 in its path, got %q", set.AuthURL)
	case version != 3 && set.Domain != "":
		return errors.New("domain: is for version 3 of auth_url alone")
	case version == 1 && (set.Tenant != "" || set.Region != ""):
		return errors.New("tenant, region: are for versions 2 and 3 of auth_url, not for version 1")
	}
	if set.Domain == "" && version == 3 {
		set.Domain = "Default"
	}
	return set.checkCDN()
}

// version of the identity service.
func (set *Settings) version() int {
	if set.Rackspace {
		return 2
	}
	u, err := url.Parse(set.AuthURL)
	if err != nil {
		return 0
	}
	for i, word := range []string{"v1", "v2", "v3"} {
		for segment := range strings.SplitSeq(u.Path, "/") {
			if segment == word || strings.HasPrefix(segment, word+".") {
				return i + 1
			}
		}
	}
	return 0
}

// Close ends what is going on in the background and releases the idle connections; those in use end with their requests.
func (s *Store) Close() error {
	s.session.close()
	wire.CloseIdle(s.home)
	return nil
}

// Waits implements muxcore.Waiter.
func (s *Store) Waits() muxcore.Waits { return muxcore.WaitsWithContext }

// Capabilities implements muxcore.Capable.
func (s *Store) Capabilities() muxcore.Capabilities {
	return muxcore.Capabilities{Write: true, List: true, Metadata: true, Range: true, Digests: true, Purge: s.set.CDN, Public: s.set.CDN}
}

// CheckKey implements muxcore.KeyChecker: Swift takes names of 1024 bytes, the prefix included.
func (s *Store) CheckKey(key string) error { return s.prefix.CheckKey(key) }

// Probe implements muxcore.Prober: a HEAD of the container.
func (s *Store) Probe(ctx context.Context) error {
	s.there.Store(0)
	return s.checkContainer(ctx, muxcore.OpHealth, "")
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
