package httpstore

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/internal/wire"
)

// Settings of an HTTP store. BaseURL is required. Errors of [New] name the field by its word in a configuration.
type Settings struct {
	// BaseURL of the origin (base_url): http or https, with or without a path, to which keys are appended. A user and
	// password in it become Basic credentials, and are shown nowhere.
	BaseURL string

	// Header is sent with every request to the origin, and to nobody else (header). Host replaces the host of the URL.
	// Default: none.
	Header http.Header

	// TLSCAFile holds the certificates, in PEM, of the authorities that the origin's must come from (tls_ca_file).
	// Default: those of the system.
	TLSCAFile string

	// TLSCertFile and TLSKeyFile are the client's certificate and key, in PEM (tls_cert_file, tls_key_file). Default: none.
	TLSCertFile string
	TLSKeyFile  string

	// TLSServerName is the name that the origin's certificate must have (tls_server_name). Default: the host of the URL.
	TLSServerName string

	// TLSInsecure takes any certificate for the origin's (tls_insecure): whoever is in between can read and change
	// everything. Default: false.
	TLSInsecure bool

	// HealthURI is the path that a probe asks for (health_uri): from the root of the host if it begins with a slash, else
	// below BaseURL. Default: BaseURL itself.
	HealthURI string

	// ConditionalWrite says that the origin honours If-Match and If-None-Match on PUT and DELETE (conditional_write). One
	// that ignores them would overwrite what it must not. Default: false, conditions are CodeUnsupported.
	ConditionalWrite bool

	// Transport sends the requests in place of one made from these settings: TLS fields must then be unset. It must be
	// safe for concurrent use, and must not decompress. Default: a pool of kept-alive connections of the store's own.
	Transport http.RoundTripper

	// Now reads the clock. Default: time.Now.
	Now func() time.Time
}

// Store is an HTTP origin. It is safe for concurrent use.
type Store struct {
	base    base
	host    string      // in place of base's, if set
	header  http.Header // of every request to the origin; shared, never changed
	plain   http.Header // of requests to others
	home    http.RoundTripper
	foreign http.RoundTripper // without the client's certificate, and with other names
	health  *url.URL
	write   bool // conditional
	now     func() time.Time

	dav     ability       // is a WebDAV origin
	lists   ability       // answers PROPFIND
	codings ability       // keeps the Content-Encoding of a body
	parents known         // collections that are there
	trying  chan struct{} // held by the one who finds out about codings
}

// New makes a store of an origin. It reads the TLS files, and does not dial.
func New(set Settings) (*Store, error) {
	s, err := set.store()
	if err != nil {
		return nil, err
	}
	if s.home, s.foreign, err = set.transports(s.base.url.Scheme); err != nil {
		return nil, err
	}
	return s, nil
}

// Check finds what [New] would refuse, without a look into any file.
func (set *Settings) Check() error {
	_, err := set.store()
	return err
}

// store makes a store that cannot send requests yet.
func (set *Settings) store() (*Store, error) {
	s := &Store{write: set.ConditionalWrite, now: set.Now, trying: make(chan struct{}, 1)}
	if s.now == nil {
		s.now = time.Now
	}
	origin, err := parseBase(set.BaseURL)
	if err != nil {
		return nil, err
	}
	s.base = origin
	if s.health, err = origin.healthURL(set.HealthURI); err != nil {
		return nil, err
	}
	if s.header, s.host, err = originHeader(set.Header, origin.user); err != nil {
		return nil, err
	}
	s.plain = http.Header{"Accept-Encoding": s.header["Accept-Encoding"], "User-Agent": {wire.UserAgent}}
	return s, set.checkTLS(origin.url.Scheme)
}

// Close releases the idle connections; those in use end with their requests.
func (s *Store) Close() error {
	for _, t := range []http.RoundTripper{s.home, s.foreign} {
		wire.CloseIdle(t)
	}
	return nil
}

// Waits implements muxcore.Waiter.
func (s *Store) Waits() muxcore.Waits { return muxcore.WaitsWithContext }

// Capabilities implements muxcore.Capable. List is true until the origin has said otherwise, and again some time after.
func (s *Store) Capabilities() muxcore.Capabilities {
	yes, known := s.lists.get(s.now())
	return muxcore.Capabilities{Write: true, List: yes || !known, ConditionalWrite: s.write, Range: true, Digests: true}
}

// Probe implements muxcore.Prober: a HEAD of the health path. Whatever is no failure of the origin is a sign of life,
// refusals and redirects included.
func (s *Store) Probe(ctx context.Context) error {
	resp, err := s.exchange(ctx, muxcore.OpHealth, "", s.request(ctx, http.MethodHead, s.health, s.traced(ctx, s.header))) //nolint:bodyclose // drained, or taken over
	if err != nil {
		return err
	}
	wire.Drain(resp)
	switch {
	case resp.StatusCode >= 500, resp.StatusCode == http.StatusTooManyRequests, resp.StatusCode == http.StatusRequestTimeout:
		return s.refused(muxcore.OpHealth, "", resp)
	}
	return nil
}

// Interface guards.
var (
	_ muxcore.Store   = (*Store)(nil)
	_ muxcore.Capable = (*Store)(nil)
	_ muxcore.Waiter  = (*Store)(nil)
	_ muxcore.Prober  = (*Store)(nil)
)
