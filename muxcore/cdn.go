package muxcore

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
)

// CDN is a store whose objects a content delivery network serves. A store that has these methods but no network says so by
// Capabilities.Purge, and answers with CodeUnsupported.
type CDN interface {
	// PublicURL is where the network serves key, whether there is an object or not.
	PublicURL(ctx context.Context, key string) (string, error)

	// Purge makes the network forget its copies of keys, so that it asks again. A key of which it has none is no error.
	// What could not be purged is an error for each key. Credentials that the network refuses are CodeCredentialExpired.
	Purge(ctx context.Context, keys []string) error
}

// Purged is what became of a purge at one backend of a mux.
type Purged struct {
	Backend string // dotted through nested muxes
	Err     error
}

var errNoCDN = errors.New("no backend has a content delivery network in front of it")

// PurgeEach purges keys at the network of every backend that has one, nested muxes included, all at once. Health, drains and
// timeouts of backends do not matter: it is not the backend that is asked. A key that no store may hold is CodeInvalidKey,
// and no network at all CodeUnsupported, before anything is asked.
func (m *Mux) PurgeEach(ctx context.Context, keys []string) ([]Purged, error) {
	for _, key := range keys {
		if err := CheckStoreKey(key); err != nil {
			return nil, err
		}
	}
	var (
		mu  sync.Mutex
		all []Purged
		wg  sync.WaitGroup
	)
	backends, release := m.holdAll()
	defer release()
	for _, b := range backends {
		if !b.abilities().Purge {
			continue
		}
		wg.Go(func() {
			results := b.purge(ctx, keys)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, results...)
		})
	}
	wg.Wait()
	if len(all) == 0 {
		return nil, &Error{Code: CodeUnsupported, Err: errNoCDN}
	}
	slices.SortFunc(all, func(a, b Purged) int { return cmp.Compare(a.Backend, b.Backend) })
	return all, nil
}

// purge purges at the network of one backend, or of those inside it.
func (b *backend) purge(ctx context.Context, keys []string) []Purged {
	if b.nested == nil {
		cdn, ok := b.Store.(CDN)
		if !ok {
			return nil
		}
		return []Purged{{Backend: b.Name, Err: cdn.Purge(ctx, keys)}}
	}
	inner, err := b.nested.PurgeEach(ctx, keys)
	if err != nil {
		return []Purged{{Backend: b.Name, Err: err}}
	}
	for i := range inner {
		inner[i].Backend = b.dotted(inner[i].Backend)
	}
	return inner
}

// Purge implements [CDN]: it is PurgeEach, with all errors in one, each with its backend's name.
func (m *Mux) Purge(ctx context.Context, keys []string) error {
	all, err := m.PurgeEach(ctx, keys)
	if err != nil {
		return err
	}
	var errs []error
	for _, one := range all {
		if one.Err != nil {
			errs = append(errs, &Error{Code: cmp.Or(CodeOf(one.Err), CodeUnavailable), Backend: one.Backend, Err: one.Err})
		}
	}
	return errors.Join(errs...)
}

// PublicURL implements [CDN]: that of the first backend, in the order of the configuration, that has one.
func (m *Mux) PublicURL(ctx context.Context, key string) (string, error) {
	if err := m.CheckKey(key); err != nil {
		return "", err
	}
	var errs []error
	backends, release := m.holdAll()
	defer release()
	for _, b := range backends {
		cdn, ok := b.Store.(CDN)
		if !ok || !b.abilities().Purge {
			continue
		}
		at, err := cdn.PublicURL(ctx, key)
		if err == nil {
			return at, nil
		}
		errs = append(errs, err)
	}
	if errs == nil {
		return "", &Error{Code: CodeUnsupported, Key: key, Err: errNoCDN}
	}
	return "", errors.Join(errs...)
}

// Interface guards.
var _ CDN = (*Mux)(nil)
