package caddymux

import (
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/swiftstore"
)

func init() { caddy.RegisterModule(new(RackspaceBackend)) }

// RackspaceBackend keeps objects in a container of Rackspace Cloud Files: Swift, with Rackspace's way to sign in, and its CDN.
type RackspaceBackend struct {
	// The container. It must be there. Required.
	Container string `json:"container,omitempty"`

	// The user's name. Required.
	User string `json:"user,omitempty"`

	// The API key, best as a placeholder (`{env.X}`, `{file.X}`). Required.
	Key string `json:"key,omitempty"`

	// The region, such as `LON` or `DFW`. Default: the user's own.
	Region string `json:"region,omitempty"`

	// Put in front of every key. Default: none.
	Prefix string `json:"prefix,omitempty"`

	// The container is published by the CDN, or is to be: keys can be purged. Default: false.
	CDN bool `json:"cdn,omitempty"`

	// How long the CDN keeps an object, from 15m to 8760h. With it, the container is published at the first purge, if it
	// is not. Default: as it is.
	CDNTTL caddy.Duration `json:"cdn_ttl,omitempty"`

	// Purge each key once it was written or deleted. A purge that fails is logged; the write has succeeded all the
	// same. Rackspace admits 25 purges a day. Default: false.
	PurgeOnWrite bool `json:"purge_on_write,omitempty"`

	// Where to sign in. Default: Rackspace's identity service, version 2.
	AuthURL string `json:"auth_url,omitempty"`
}

// CaddyModule returns the Caddy module information.
func (*RackspaceBackend) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  backendNamespace + ".rackspace",
		New: func() caddy.Module { return new(RackspaceBackend) },
	}
}

// Validate implements caddy.Validator.
func (b *RackspaceBackend) Validate() error { return tryStore(b) }

// OpenStore implements [BackendType].
func (b *RackspaceBackend) OpenStore() (muxcore.Store, error) {
	return swiftstore.New(swiftstore.Settings{
		Rackspace: true, Container: b.Container, AuthURL: b.AuthURL, User: b.User, Key: b.Key, Region: b.Region, Prefix: b.Prefix,
		CDN: b.CDN, TTL: time.Duration(b.CDNTTL), PurgeOnWrite: b.PurgeOnWrite, OnPurgeError: purgeFailed("rackspace", b.Container),
	})
}

// UnmarshalCaddyfile sets up the backend from Caddyfile tokens:
//
//	rackspace <container> {
//	    user <user>
//	    key <api-key>
//	    region <region>
//	    prefix <key-prefix>
//	    cdn [<ttl>]
//	    purge_on_write
//	    auth_url <url>
//	}
func (b *RackspaceBackend) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	if err := onlyArgument(d, "rackspace", "container", &b.Container); err != nil {
		return err
	}
	if err := ParseOptions(d, SharedWords("rackspace"),
		Option{Word: "user", Parse: TextOption(&b.User)},
		Option{Word: "key", Parse: SecretOption(&b.Key)},
		Option{Word: "region", Parse: TextOption(&b.Region)},
		Option{Word: "prefix", Parse: TextOption(&b.Prefix)},
		Option{Word: "cdn", Parse: cdnOption(&b.CDN, &b.CDNTTL)},
		Option{Word: "purge_on_write", Parse: FlagOption(&b.PurgeOnWrite)},
		Option{Word: "auth_url", Parse: addressOption(&b.AuthURL)},
	); err != nil {
		return err
	}
	return checkStore(d, b, b.Container, b.User, b.Key, b.Region, b.Prefix, b.AuthURL)
}

// Place implements [Placed].
func (b *RackspaceBackend) Place() string { return b.Container }

// Addresses implements [Addressed].
func (*RackspaceBackend) Addresses() []string { return []string{"auth_url"} }

// Credentials implements [Credentialed].
func (*RackspaceBackend) Credentials() []string { return []string{"user", "key"} }

// Interface guards.
var (
	_ BackendType           = (*RackspaceBackend)(nil)
	_ Placed                = (*RackspaceBackend)(nil)
	_ Addressed             = (*RackspaceBackend)(nil)
	_ Credentialed          = (*RackspaceBackend)(nil)
	_ caddy.Validator       = (*RackspaceBackend)(nil)
	_ caddyfile.Unmarshaler = (*RackspaceBackend)(nil)
)
