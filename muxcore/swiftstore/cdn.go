package swiftstore

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/internal/wire"
)

const (
	minTTL    = 15 * time.Minute
	maxTTL    = 365 * 24 * time.Hour
	purgeTime = 10 * time.Second // the longest that a purge after a write may take
)

// publication is what is known of the container at the CDN.
type publication struct {
	mu   sync.Mutex
	base string // where it is public, "" until known
}

func (p *publication) get() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.base
}

func (p *publication) set(base string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.base = base
}

// checkCDN finds what the CDN cannot do.
func (set *Settings) checkCDN() error {
	switch {
	case set.TTL != 0 && !set.CDN:
		return errors.New("cdn: a time to live without cdn")
	case set.TTL != 0 && (set.TTL < minTTL || set.TTL > maxTTL):
		return fmt.Errorf("cdn: the time to live must be from 15m to 8760h, got %s", set.TTL)
	case set.PurgeOnWrite && !set.CDN:
		return errors.New("purge_on_write: without cdn there is nothing to purge")
	case set.CDN && set.version() == 3:
		return errors.New("cdn: version 3 of auth_url names no CDN")
	}
	return nil
}

var errNoCDN = errors.New("cdn is not set")

// PublicURL implements muxcore.CDN.
func (s *Store) PublicURL(ctx context.Context, key string) (string, error) {
	if err := s.CheckKey(key); err != nil {
		return "", err
	}
	if !s.set.CDN {
		return "", &muxcore.Error{Code: muxcore.CodeUnsupported, Key: key, Err: errNoCDN}
	}
	base, err := s.published(ctx)
	if err != nil {
		return "", err
	}
	return base + "/" + wire.EscapePath(s.prefix.Path(key)), nil
}

// Purge implements muxcore.CDN.
func (s *Store) Purge(ctx context.Context, keys []string) error {
	if !s.set.CDN {
		return &muxcore.Error{Code: muxcore.CodeUnsupported, Err: errNoCDN}
	}
	for _, key := range keys {
		if err := s.CheckKey(key); err != nil {
			return err
		}
	}
	if _, err := s.published(ctx); err != nil {
		return err
	}
	return wire.Each(keys, func(key string) error { return s.purge(ctx, key) })
}

func (s *Store) purge(ctx context.Context, key string) error {
	q := s.ask(muxcore.OpNone, http.MethodDelete, key)
	q.toCDN = true
	resp, err := s.send(ctx, q) //nolint:bodyclose // drained below
	if err != nil {
		return err
	}
	wire.Drain(resp)
	switch {
	case resp.StatusCode < 300, resp.StatusCode == http.StatusNotFound:
		return nil
	}
	return s.refused(q, resp)
}

// purgeAfter purges a key that was written, if so set. ctx may have little time left: the write is over.
func (s *Store) purgeAfter(ctx context.Context, key string) {
	if !s.set.PurgeOnWrite {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, purgeTime)
	defer cancel()
	if err := s.Purge(ctx, []string{key}); err != nil && s.set.OnPurgeError != nil {
		s.set.OnPurgeError(key, err)
	}
}

// published is where the container is public. With a time to live, it is made so where it is not.
func (s *Store) published(ctx context.Context) (string, error) {
	if base := s.cdn.get(); base != "" {
		return base, nil
	}
	for asked := false; ; asked = true {
		q := &question{method: http.MethodHead, toCDN: true}
		resp, err := s.send(ctx, q) //nolint:bodyclose // drained below
		if err != nil {
			return "", err
		}
		wire.Drain(resp)
		on, ttl := publishedAs(resp)
		switch {
		case resp.StatusCode >= 300 && resp.StatusCode != http.StatusNotFound:
			return "", s.refused(q, resp)
		case s.set.TTL == 0 && !on:
			return "", &muxcore.Error{Code: muxcore.CodeUnsupported, Err: fmt.Errorf("cdn: container %q is not published; give cdn a time to live, and it will be", s.set.Container)}
		case s.set.TTL == 0, on && ttl == s.set.TTL, on && asked:
			base, err := publicBase(resp.Header)
			if err == nil {
				s.cdn.set(base)
			}
			return base, err
		case asked:
			return "", &muxcore.Error{Code: muxcore.CodeUnavailable, Err: fmt.Errorf("cdn: container %q was to be published, and is not", s.set.Container)}
		}
		if err := s.publish(ctx, resp.StatusCode == http.StatusNotFound); err != nil {
			return "", err
		}
	}
}

// publishedAs reads whether a container is published, and how long its objects are kept.
func publishedAs(resp *http.Response) (on bool, ttl time.Duration) {
	seconds, _ := strconv.Atoi(wire.First(resp.Header, "X-Ttl"))
	return resp.StatusCode < 300 && strings.EqualFold(wire.First(resp.Header, "X-Cdn-Enabled"), "true"), time.Duration(seconds) * time.Second
}

// publish publishes the container: by PUT the first time, and by POST what was published once.
func (s *Store) publish(ctx context.Context, first bool) error {
	q := &question{method: http.MethodPost, toCDN: true}
	if first {
		q.method = http.MethodPut
	}
	q.header = http.Header{"X-Cdn-Enabled": {"True"}, "X-Ttl": {strconv.Itoa(int(s.set.TTL / time.Second))}}
	resp, err := s.send(ctx, q) //nolint:bodyclose // drained below
	if err != nil {
		return err
	}
	wire.Drain(resp)
	if resp.StatusCode >= 300 {
		return s.refused(q, resp)
	}
	return nil
}

// publicBase is where a container is public, by TLS if it can be.
func publicBase(h http.Header) (string, error) {
	for _, name := range []string{"X-Cdn-Ssl-Uri", "X-Cdn-Uri"} {
		if u, err := url.Parse(wire.First(h, name)); err == nil && u.Host != "" {
			return strings.TrimSuffix(u.String(), "/"), nil
		}
	}
	return "", &muxcore.Error{Code: muxcore.CodeUnavailable, Err: errors.New("the CDN does not say where the container is public")}
}
