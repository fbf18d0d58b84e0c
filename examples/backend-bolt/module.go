package bolt

import (
	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/suaveplan/caddy-storage-mux/caddymux"
	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

func init() { caddy.RegisterModule(new(Backend)) }

// Backend keeps objects in one file, a bbolt database.
type Backend struct {
	// The file of the database. It is made at the first use. Required.
	File string `json:"file,omitempty"`

	// The largest object, in bytes; it is held in memory while it is written. Default: 16 MiB.
	MaxSize int64 `json:"max_size,omitempty"`
}

// CaddyModule returns the Caddy module information. The last name of the ID is the type in configs.
func (*Backend) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "storage_mux.backends.bolt",
		New: func() caddy.Module { return new(Backend) },
	}
}

// Validate implements caddy.Validator.
func (b *Backend) Validate() error {
	_, err := New(b.settings())
	return err
}

// OpenStore implements caddymux.BackendType.
func (b *Backend) OpenStore() (muxcore.Store, error) {
	return New(b.settings())
}

func (b *Backend) settings() Settings { return Settings{File: b.File, MaxSize: b.MaxSize} }

// UnmarshalCaddyfile sets up the backend from Caddyfile tokens:
//
//	bolt <file> {
//	    max_size <size>
//	}
func (b *Backend) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the type
	if !d.NextArg() {
		return d.Err("bolt: file is missing")
	}
	b.File = d.Val()
	if d.NextArg() {
		return d.Errf("bolt: unexpected word %q", d.Val())
	}
	return caddymux.ParseOptions(d, caddymux.SharedWords("bolt"),
		caddymux.Option{Word: "max_size", Parse: caddymux.SizeOption(&b.MaxSize)},
	)
}

// Place implements caddymux.Placed.
func (b *Backend) Place() string { return b.File }

// Interface guards.
var (
	_ caddymux.BackendType  = (*Backend)(nil)
	_ caddymux.Placed       = (*Backend)(nil)
	_ caddy.Validator       = (*Backend)(nil)
	_ caddyfile.Unmarshaler = (*Backend)(nil)
)
