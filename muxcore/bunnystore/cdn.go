package bunnystore

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/internal/wire"
)

var (
	errNoPullZone = errors.New("pull_zone is not set")
	errNoAPIKey   = errors.New("pull_zone and api_key are not set")
)

// PublicURL implements muxcore.CDN.
func (s *Store) PublicURL(_ context.Context, key string) (string, error) {
	if err := s.CheckKey(key); err != nil {
		return "", err
	}
	if s.public == "" {
		return "", &muxcore.Error{Code: muxcore.CodeUnsupported, Key: key, Err: errNoPullZone}
	}
	return s.public + "/" + wire.EscapePath(s.prefix.Path(key)), nil
}

// Purge implements muxcore.CDN.
func (s *Store) Purge(ctx context.Context, keys []string) error {
	if s.set.APIKey == "" {
		return &muxcore.Error{Code: muxcore.CodeUnsupported, Err: errNoAPIKey}
	}
	for _, key := range keys {
		if err := s.CheckKey(key); err != nil {
			return err
		}
	}
	return wire.Each(keys, func(key string) error { return s.purge(ctx, key) })
}

// purge purges one URL. A star in it would be a wildcard, but it is sent encoded.
func (s *Store) purge(ctx context.Context, key string) error {
	at, err := s.PublicURL(ctx, key)
	if err != nil {
		return err
	}
	u := *s.api
	u.Path, u.RawPath = s.api.Path+"/purge", s.api.RawPath+"/purge"
	u.RawQuery = url.Values{"url": {at}, "async": {"false"}}.Encode()
	req, err := http.NewRequestWithContext(wire.Settled(ctx), http.MethodPost, u.String(), http.NoBody)
	if err != nil {
		return &muxcore.Error{Code: muxcore.CodeUnsupported, Key: key, Err: errors.New("api_endpoint: no request can be made of it")}
	}
	req.Header = http.Header{"Accesskey": {s.set.APIKey}, "User-Agent": {wire.UserAgent}, "Accept": {"application/json"}}
	resp, err := s.home.RoundTrip(req) //nolint:bodyclose // drained below
	if err != nil {
		return wire.Broke(ctx, muxcore.OpNone, key, err)
	}
	wire.Drain(resp)
	switch {
	case resp.StatusCode < 300:
		return nil
	case resp.StatusCode == http.StatusUnauthorized, resp.StatusCode == http.StatusForbidden:
		return &muxcore.Error{
			Code: muxcore.CodeCredentialExpired, Key: key, Status: resp.StatusCode,
			Err: fmt.Errorf("api_key is refused at %s: it must be the key of the account, not the password of the zone", s.api.Host),
		}
	}
	return s.refused(muxcore.OpNone, key, resp)
}

// purgeAfter purges a key that was written, if so set.
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
