package s3store

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/internal/wire"
)

const (
	defaultPartSize = 8 << 20
	maxParts        = 10_000

	// continueTime is how long an upload waits for the service's 100 Continue before it is sent all the same.
	continueTime = time.Second
)

// Settings of an S3 store. Bucket is required. Errors of [New] name the field by its word in a configuration.
type Settings struct {
	// Bucket that holds the objects (bucket).
	Bucket string

	// Endpoint of the service (endpoint): a host, with or without a port, or an http or https URL without a path; https
	// where it does not say. Default: Amazon's of the region.
	Endpoint string

	// Region that requests are signed for (region). Default: that of the endpoint's name, AWS_REGION or
	// AWS_DEFAULT_REGION, else us-east-1 until the service names another.
	Region string

	// AccessKey, SecretKey and SessionToken are the credentials (access_key, secret_key, session_token). Default: the
	// standard AWS chain: environment, shared files, web identity, container and instance roles.
	AccessKey    string
	SecretKey    string
	SessionToken string

	// PathStyle puts the bucket into the path (true) or into the name of the host (false) (path_style). Default: nil, the
	// host at Amazon, Google and Aliyun, the path elsewhere and where a dot in the bucket's name would break TLS.
	PathStyle *bool

	// Prefix is put before every key, with one slash in between (prefix). Default: none.
	Prefix string

	// StorageClass of new objects (storage_class). Default: the bucket's.
	StorageClass string

	// PartSize is the size of the pieces that large and unsized bodies are sent in, of which up to four of one upload are in
	// memory at a time; at least 5 MiB. Default: 8 MiB.
	PartSize int64

	// Memory is what the bodies of all uploads under way may take together, but for those up to 64 KiB; at least a part. Beyond
	// it, bodies of known length are sent as they come, one part after the other, and others wait for a moment. Default: 16
	// parts, 128 MiB.
	Memory int64

	// Transport sends the requests. It must be safe for concurrent use, and must not decompress. Default: a pool of
	// kept-alive connections of the store's own.
	Transport http.RoundTripper

	// Now reads the clock. Default: time.Now.
	Now func() time.Time
}

// Store is a bucket. It is safe for concurrent use.
type Store struct {
	place     place
	region    region
	keys      *keychain
	prefix    wire.Prefix
	class     string
	partSize  int64
	maxParts  int64
	transport http.RoundTripper
	now       func() time.Time
	encoding  string // Accept-Encoding

	seen    atomic.Int64 // when the bucket was last known to be there, in Unix seconds
	honours honours
	tags    tags
	memory  memory
	buffers sync.Pool      // of parts
	work    sync.WaitGroup // in the background
	closing chan struct{}
	closed  sync.Once
}

// New makes a store of a bucket. It reads the environment, and does not dial.
func New(set Settings) (*Store, error) {
	s := &Store{class: set.StorageClass, partSize: set.PartSize, now: set.Now, closing: make(chan struct{})}
	if s.now == nil {
		s.now = time.Now
	}
	if err := s.locate(&set); err != nil {
		return nil, err
	}
	if err := s.limit(&set); err != nil {
		return nil, err
	}
	if s.class != "" && !wire.IsToken(s.class) {
		return nil, fmt.Errorf("storage_class: %q is none", s.class)
	}
	s.transport = wire.Home(set.Transport, tlsConfig(s.place.scheme), continueTime)
	var err error
	if s.keys, err = newKeychain(&set, s.now); err != nil {
		return nil, err
	}
	s.honours.turn = make(chan struct{}, 1)
	s.buffers.New = func() any { b := make([]byte, s.partSize); return &b }
	return s, nil
}

// Close waits for what clears up behind failed uploads, and releases the idle connections.
func (s *Store) Close() error {
	s.closed.Do(func() { close(s.closing) })
	s.work.Wait()
	s.keys.close()
	wire.CloseIdle(s.transport)
	return nil
}

// Waits implements muxcore.Waiter.
func (s *Store) Waits() muxcore.Waits { return muxcore.WaitsWithContext }

// Capabilities implements muxcore.Capable. What takes conditions is true until the endpoint was found not to honour them.
func (s *Store) Capabilities() muxcore.Capabilities {
	honours := s.honours.hopeful()
	return muxcore.Capabilities{Write: true, List: true, Metadata: true, Range: true, Digests: true, ConditionalWrite: honours, Locks: honours}
}

// CheckKey implements muxcore.KeyChecker: with the prefix, a key must still be no longer than S3 takes.
func (s *Store) CheckKey(key string) error { return s.prefix.CheckKey(key) }

// Probe implements muxcore.Prober: a HEAD of the bucket. A refusal is a sign of life, a missing bucket is none.
func (s *Store) Probe(ctx context.Context) error {
	_, err := s.finish(ctx, &call{op: muxcore.OpHealth, method: http.MethodHead})
	if muxcore.CodeOf(err) == muxcore.CodeDenied {
		return nil
	}
	return err
}

// Interface guards.
var (
	_ muxcore.Store      = (*Store)(nil)
	_ muxcore.Capable    = (*Store)(nil)
	_ muxcore.Waiter     = (*Store)(nil)
	_ muxcore.KeyChecker = (*Store)(nil)
	_ muxcore.Prober     = (*Store)(nil)
)
