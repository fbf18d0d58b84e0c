package caddymux

import (
	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/bunnystore"
)

func init() { caddy.RegisterModule(new(BunnyBackend)) }

// BunnyBackend keeps objects in a storage zone of Bunny's Edge Storage. A zone keeps bytes and their type, no other
// metadata: an object has its stored ETag there only where that was made of its SHA-256.
type BunnyBackend struct {
	// The storage zone. Required.
	Zone string `json:"zone,omitempty"`

	// The zone's main region: `de`, `uk`, `ny`, `la`, `sg`, `se`, `br`, `jh` or `syd`. Required, unless `endpoint` is
	// given: at another region's endpoint Bunny refuses the key, or stores nothing.
	Region string `json:"region,omitempty"`

	// The password of the zone, best as a placeholder (`{env.X}`, `{file.X}`). Required.
	AccessKey string `json:"access_key,omitempty"`

	// The URL below which the pull zone serves the storage zone. Purges need it, and `api_key` as well. Default: none.
	PullZone string `json:"pull_zone,omitempty"`

	// The key of the account, for purges, which need `pull_zone` as well. Default: none, nothing is purged.
	APIKey string `json:"api_key,omitempty"`

	// Put in front of every key. Default: none.
	Prefix string `json:"prefix,omitempty"`

	// In place of the region's endpoint. Default: by region.
	Endpoint string `json:"endpoint,omitempty"`

	// Where purges go. Default: `https://api.bunny.net`.
	APIEndpoint string `json:"api_endpoint,omitempty"`

	// Look after every write whether the object is there as it was sent. It costs a request. Default: false.
	VerifyWrites bool `json:"verify_writes,omitempty"`

	// Purge each key at the pull zone once it was written or deleted. It needs `pull_zone` and `api_key`. A purge that fails is logged; the write has
	// succeeded all the same. Default: false.
	PurgeOnWrite bool `json:"purge_on_write,omitempty"`
}

// CaddyModule returns the Caddy module information.
func (*BunnyBackend) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  backendNamespace + ".bunny",
		New: func() caddy.Module { return new(BunnyBackend) },
	}
}

// Validate implements caddy.Validator.
func (b *BunnyBackend) Validate() error { return tryStore(b) }

// OpenStore implements [BackendType].
func (b *BunnyBackend) OpenStore() (muxcore.Store, error) {
	return bunnystore.New(bunnystore.Settings{
		Zone: b.Zone, Region: b.Region, AccessKey: b.AccessKey, PullZone: b.PullZone, APIKey: b.APIKey, Prefix: b.Prefix,
		Endpoint: b.Endpoint, APIEndpoint: b.APIEndpoint, VerifyWrites: b.VerifyWrites,
		PurgeOnWrite: b.PurgeOnWrite, OnPurgeError: purgeFailed("bunny", b.Zone),
	})
}

// UnmarshalCaddyfile sets up the backend from Caddyfile tokens:
//
//	bunny <zone> {
//	    region <region>
//	    access_key <password>
//	    pull_zone <url>
//	    api_key <key>
//	    prefix <key-prefix>
//	    endpoint <url>
//	    api_endpoint <url>
//	    verify_writes
//	    purge_on_write
//	}
func (b *BunnyBackend) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	if err := onlyArgument(d, "bunny", "zone", &b.Zone); err != nil {
		return err
	}
	if err := ParseOptions(d, SharedWords("bunny"),
		Option{Word: "region", Parse: TextOption(&b.Region)},
		Option{Word: "access_key", Parse: SecretOption(&b.AccessKey)},
		Option{Word: "pull_zone", Parse: addressOption(&b.PullZone)},
		Option{Word: "api_key", Parse: SecretOption(&b.APIKey)},
		Option{Word: "prefix", Parse: TextOption(&b.Prefix)},
		Option{Word: "endpoint", Parse: addressOption(&b.Endpoint)},
		Option{Word: "api_endpoint", Parse: addressOption(&b.APIEndpoint)},
		Option{Word: "verify_writes", Parse: FlagOption(&b.VerifyWrites)},
		Option{Word: "purge_on_write", Parse: FlagOption(&b.PurgeOnWrite)},
	); err != nil {
		return err
	}
	return checkStore(d, b, b.Zone, b.Region, b.AccessKey, b.PullZone, b.APIKey, b.Prefix, b.Endpoint, b.APIEndpoint)
}

// Place implements [Placed].
func (b *BunnyBackend) Place() string { return b.Zone }

// Addresses implements [Addressed].
func (*BunnyBackend) Addresses() []string { return []string{"pull_zone", "endpoint", "api_endpoint"} }

// Credentials implements [Credentialed].
func (*BunnyBackend) Credentials() []string { return []string{"access_key", "api_key"} }

// Interface guards.
var (
	_ BackendType           = (*BunnyBackend)(nil)
	_ Placed                = (*BunnyBackend)(nil)
	_ Addressed             = (*BunnyBackend)(nil)
	_ Credentialed          = (*BunnyBackend)(nil)
	_ caddy.Validator       = (*BunnyBackend)(nil)
	_ caddyfile.Unmarshaler = (*BunnyBackend)(nil)
)
