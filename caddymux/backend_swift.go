package caddymux

import (
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/swiftstore"
)

func init() { caddy.RegisterModule(new(SwiftBackend)) }

// SwiftBackend keeps objects in a container of an OpenStack Swift cluster.
type SwiftBackend struct {
	// The container. It must be there. Required.
	Container string `json:"container,omitempty"`

	// Where to sign in. The path tells the version of the identity service: one with `v1`, `v2` or `v3`. Required.
	AuthURL string `json:"auth_url,omitempty"`

	// The user; with version 1, `account:user`. Required.
	User string `json:"user,omitempty"`

	// The key or password, best as a placeholder (`{env.X}`, `{file.X}`). Required.
	Key string `json:"key,omitempty"`

	// The project, for versions 2 and 3. Default: the user's own.
	Tenant string `json:"tenant,omitempty"`

	// The domain of the user and the project, for version 3. Default: `Default`.
	Domain string `json:"domain,omitempty"`

	// The region, for versions 2 and 3. Default: the first in the catalogue.
	Region string `json:"region,omitempty"`

	// Put in front of every key. Default: none.
	Prefix string `json:"prefix,omitempty"`

	// A CDN that the identity service names publishes the container, or is to: keys can be purged. Versions 1 and 2
	// can name one. Default: false.
	CDN bool `json:"cdn,omitempty"`

	// How long the CDN keeps an object, from 15m to 8760h. With it, the container is published at the first purge, if it
	// is not. Default: as it is.
	CDNTTL caddy.Duration `json:"cdn_ttl,omitempty"`

	// Purge each key once it was written or deleted. A purge that fails is logged; the write has succeeded all the
	// same. Some CDNs admit few purges a day. Default: false.
	PurgeOnWrite bool `json:"purge_on_write,omitempty"`
}

// CaddyModule returns the Caddy module information.
func (*SwiftBackend) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  backendNamespace + ".swift",
		New: func() caddy.Module { return new(SwiftBackend) },
	}
}

// Validate implements caddy.Validator.
func (b *SwiftBackend) Validate() error { return tryStore(b) }

// OpenStore implements [BackendType].
func (b *SwiftBackend) OpenStore() (muxcore.Store, error) {
	return swiftstore.New(swiftstore.Settings{
		Container: b.Container, AuthURL: b.AuthURL, User: b.User, Key: b.Key, Tenant: b.Tenant, Domain: b.Domain,
		Region: b.Region, Prefix: b.Prefix, CDN: b.CDN, TTL: time.Duration(b.CDNTTL),
		PurgeOnWrite: b.PurgeOnWrite, OnPurgeError: purgeFailed("swift", b.Container),
	})
}

// UnmarshalCaddyfile sets up the backend from Caddyfile tokens:
//
//	swift <container> {
//	    auth_url <url>
//	    user <user>
//	    key <key>
//	    tenant <project>
//	    domain <domain>
//	    region <region>
//	    prefix <key-prefix>
//	    cdn [<ttl>]
//	    purge_on_write
//	}
func (b *SwiftBackend) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	if err := onlyArgument(d, "swift", "container", &b.Container); err != nil {
		return err
	}
	if err := ParseOptions(d, SharedWords("swift"),
		Option{Word: "auth_url", Parse: addressOption(&b.AuthURL)},
		Option{Word: "user", Parse: TextOption(&b.User)},
		Option{Word: "key", Parse: SecretOption(&b.Key)},
		Option{Word: "tenant", Parse: TextOption(&b.Tenant)},
		Option{Word: "domain", Parse: TextOption(&b.Domain)},
		Option{Word: "region", Parse: TextOption(&b.Region)},
		Option{Word: "prefix", Parse: TextOption(&b.Prefix)},
		Option{Word: "cdn", Parse: cdnOption(&b.CDN, &b.CDNTTL)},
		Option{Word: "purge_on_write", Parse: FlagOption(&b.PurgeOnWrite)},
	); err != nil {
		return err
	}
	return checkStore(d, b, b.Container, b.AuthURL, b.User, b.Key, b.Tenant, b.Domain, b.Region, b.Prefix)
}

// Place implements [Placed].
func (b *SwiftBackend) Place() string { return b.Container }

// Addresses implements [Addressed].
func (*SwiftBackend) Addresses() []string { return []string{"auth_url"} }

// Credentials implements [Credentialed].
func (*SwiftBackend) Credentials() []string { return []string{"user", "key"} }

// Interface guards.
var (
	_ BackendType           = (*SwiftBackend)(nil)
	_ Placed                = (*SwiftBackend)(nil)
	_ Addressed             = (*SwiftBackend)(nil)
	_ Credentialed          = (*SwiftBackend)(nil)
	_ caddy.Validator       = (*SwiftBackend)(nil)
	_ caddyfile.Unmarshaler = (*SwiftBackend)(nil)
)
