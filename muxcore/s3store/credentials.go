package s3store

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/internal/wire"
)

const (
	fetchTime = 10 * time.Second // the longest that all providers together may take
	againTime = 5 * time.Second  // how long their failure stands, and the least between two fetches where there are credentials
	earlyTime = time.Minute      // how long before their end credentials are renewed
)

// provider is one link of the chain.
type provider struct {
	name string
	credentials.Provider
}

// keychain holds the credentials. Whoever needs them while they are fetched waits for the one fetch, and no longer than its
// own context. It is safe for concurrent use.
type keychain struct {
	static  bool
	chain   []provider
	now     func() time.Time
	client  *http.Client
	longest time.Duration      // that a fetch may take
	stop    context.CancelFunc // of fetches
	wait    sync.WaitGroup

	mu      sync.Mutex
	ctx     context.Context //nolint:containedctx // of fetches, until close
	value   credentials.Value
	known   bool // value is one
	pending *fetch
	failed  *fetch    // the last one, if it was in vain
	since   time.Time // the last one ended
	expired time.Time // known ones were refused the last time that others were fetched for it
}

// fetch is one attempt to get credentials. value and err are set when done is closed.
type fetch struct {
	done  chan struct{}
	value credentials.Value
	err   error
}

func newKeychain(set *Settings, now func() time.Time) (*keychain, error) {
	k := &keychain{now: now, longest: fetchTime}
	switch {
	case set.AccessKey != "" && set.SecretKey != "":
		k.static = true
		k.value = credentials.Value{AccessKeyID: set.AccessKey, SecretAccessKey: set.SecretKey, SessionToken: set.SessionToken}
		return k, nil
	case set.AccessKey != "":
		return nil, errors.New("secret_key: missing beside access_key")
	case set.SecretKey != "":
		return nil, errors.New("access_key: missing beside secret_key")
	case set.SessionToken != "":
		return nil, errors.New("access_key: missing beside session_token")
	}
	transport := wire.NewTransport(tlsConfig("https"))
	transport.Proxy = proxyFor
	k.client = &http.Client{Transport: transport}
	k.ctx, k.stop = context.WithCancel(context.Background())
	k.chain = []provider{
		{"environment", &credentials.EnvAWS{}},
		{"shared files", &sharedFiles{}},
		{"role", &credentials.IAM{}},
	}
	return k, nil
}

// proxyFor keeps proxies away from the addresses at which a machine or container asks about itself.
func proxyFor(r *http.Request) (*url.URL, error) {
	if ip := net.ParseIP(r.URL.Hostname()); ip != nil && (ip.IsLinkLocalUnicast() || ip.IsLoopback()) {
		return nil, nil
	}
	return http.ProxyFromEnvironment(r)
}

// get waits for the credentials.
func (k *keychain) get(ctx context.Context) (credentials.Value, error) {
	if k.static {
		return k.value, nil
	}
	f := k.need() // a fetch is for all who wait, and outlives each
	select {
	case <-f.done:
	case <-ctx.Done():
		return credentials.Value{}, ctx.Err()
	}
	if f.err != nil {
		return credentials.Value{}, &muxcore.Error{Code: muxcore.CodeDenied, Err: f.err}
	}
	return f.value, nil
}

// done is closed: what waits for it need not.
var done = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// need gives the credentials, or the fetch to wait for. In their last minute new ones are fetched, and nobody waits for them yet.
func (k *keychain) need() *fetch {
	k.mu.Lock()
	defer k.mu.Unlock()
	now, ends := k.now(), k.value.Expiration
	good := k.known && (ends.IsZero() || now.Before(ends))
	recent := now.Sub(k.since) < againTime
	switch {
	case good && (ends.IsZero() || now.Before(ends.Add(-earlyTime))):
	case !good && k.failed != nil && recent:
		return k.failed
	case k.pending == nil && (!good || !recent):
		k.pending = &fetch{done: make(chan struct{})}
		f := k.pending
		k.wait.Go(func() { k.fetch(f) })
	}
	if good {
		return &fetch{done: done, value: k.value}
	}
	return k.pending
}

// fetch asks the providers in turn.
func (k *keychain) fetch(f *fetch) {
	ctx, cancel := context.WithTimeout(k.ctx, k.longest)
	defer cancel()
	found := false
	var errs []error
	for _, p := range k.chain {
		v, err := p.RetrieveWithCredContext(&credentials.CredContext{Client: k.client, Context: ctx})
		if found = err == nil && v.AccessKeyID != "" && v.SecretAccessKey != ""; found {
			f.value = v
			break
		}
		if err == nil {
			err = errors.New("none")
		}
		errs = append(errs, fmt.Errorf("%s: %w", p.name, withoutContext(err)))
	}
	if !found {
		f.err = fmt.Errorf("no credentials: %w", errors.Join(errs...))
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.pending, k.failed, k.since = nil, nil, k.now()
	if found {
		k.value, k.known = f.value, true
	} else {
		k.failed = f
	}
	close(f.done)
}

// withoutContext keeps the providers' own timeouts from being taken for the caller's.
func withoutContext(err error) error {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return errors.New(err.Error())
	}
	return err
}

// expire makes the next get fetch anew, and tells whether that can help. Where those that were fetched for this reason a moment ago are
// refused as well it cannot, and whoever gives them is not asked again with each request.
func (k *keychain) expire(used credentials.Value) bool {
	if k.static {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.known || k.value != used {
		return true // there are others by now, or will be
	}
	now := k.now()
	if now.Sub(k.expired) < againTime {
		return false
	}
	k.known, k.expired = false, now
	return true
}

func (k *keychain) close() {
	if k.static {
		return
	}
	k.stop()
	k.wait.Wait()
	k.client.CloseIdleConnections()
}
