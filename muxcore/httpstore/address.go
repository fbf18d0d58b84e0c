package httpstore

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/suaveplan/caddy-storage-mux/muxcore/internal/wire"
)

// base is the URL that keys are appended to.
type base struct {
	url  *url.URL // without user
	path string   // decoded, with a slash at its end
	raw  string   // the same as it is sent
	user *url.Userinfo
}

// parseBase reads BaseURL. No error quotes one in which there may be a password.
func parseBase(text string) (base, error) {
	if text == "" {
		return base{}, errors.New("base_url: missing")
	}
	u, err := url.Parse(text)
	switch {
	case err != nil && strings.Contains(text, "@"):
		return base{}, errors.New("base_url: not a URL (in its user and password, special characters must be percent-encoded)")
	case err != nil:
		if parse, ok := errors.AsType[*url.Error](err); ok {
			err = parse.Err
		}
		return base{}, fmt.Errorf("base_url: not a URL: %w", err)
	case u.Scheme != "http" && u.Scheme != "https" && strings.ContainsAny(text, "@?"):
		return base{}, fmt.Errorf("base_url: must begin with http:// or https://, got scheme %q", u.Scheme)
	case u.Scheme != "http" && u.Scheme != "https":
		return base{}, fmt.Errorf("base_url: must begin with http:// or https://, %q does not", text)
	case u.Hostname() == "":
		return base{}, errors.New("base_url: has no host")
	case !wire.IsPort(u.Port()):
		return base{}, fmt.Errorf("base_url: %s is no port", u.Port())
	case u.RawQuery != "" || u.ForceQuery:
		return base{}, errors.New("base_url: must have no query, keys are appended to the path")
	case u.Fragment != "" || strings.Contains(text, "#"):
		return base{}, errors.New("base_url: must have no fragment")
	}
	b := base{user: u.User, path: withSlash(u.Path), raw: withSlash(u.EscapedPath())}
	b.url = &url.URL{Scheme: u.Scheme, Host: u.Host, Path: b.path, RawPath: b.raw}
	return b, nil
}

func withSlash(path string) string {
	if strings.HasSuffix(path, "/") {
		return path
	}
	return path + "/"
}

// of is the URL of a key, or of a collection of keys if it ends in a slash.
func (b *base) of(key string) *url.URL {
	u := *b.url
	u.Path = b.path + key
	if n := escapes(key); n > 0 {
		u.RawPath = b.raw + escape(key, n)
	} else if len(b.raw) == len(b.path) {
		u.RawPath = u.Path
	} else {
		u.RawPath = b.raw + key
	}
	return &u
}

// healthURL reads HealthURI.
func (b *base) healthURL(uri string) (*url.URL, error) {
	if uri == "" {
		return b.url, nil
	}
	ref, err := url.Parse(uri)
	switch {
	case err != nil:
		return nil, fmt.Errorf("health_uri: not a path: %q", uri)
	case ref.Scheme != "" || ref.Host != "" || ref.Opaque != "":
		return nil, fmt.Errorf("health_uri: must be a path on the host of base_url, got %q", uri)
	}
	u := b.url.ResolveReference(ref)
	u.Fragment, u.RawFragment = "", ""
	return u, nil
}

const upperHex = "0123456789ABCDEF"

// literal are the bytes that are sent as they are: what RFC 3986 admits in a path, but for "+" (a space, to some origins)
// and ";" (the beginning of a parameter, to others).
var literal = func() (set [256]bool) {
	for _, c := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/!$&'()*,=:@") {
		set[c] = true
	}
	return set
}()

// escapes counts the bytes of key that are percent-encoded.
func escapes(key string) (n int) {
	for i := range len(key) {
		if !literal[key[i]] {
			n++
		}
	}
	return n
}

func escape(key string, n int) string {
	var b strings.Builder
	b.Grow(len(key) + 2*n)
	for i := range len(key) {
		c := key[i]
		if literal[c] {
			b.WriteByte(c)
			continue
		}
		b.WriteByte('%')
		b.WriteByte(upperHex[c>>4])
		b.WriteByte(upperHex[c&15])
	}
	return b.String()
}
