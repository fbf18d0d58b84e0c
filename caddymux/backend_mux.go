package caddymux

import (
	"errors"

	"github.com/caddyserver/caddy/v2"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

func init() { caddy.RegisterModule(new(MuxBackend)) }

// MuxBackend is a mux as a backend of another one. It has the options of every mux; its `timeout` is that of the backends
// inside.
type MuxBackend struct {
	Mux
}

// CaddyModule returns the Caddy module information.
func (*MuxBackend) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  backendNamespace + "." + muxType,
		New: func() caddy.Module { return new(MuxBackend) },
	}
}

// OpenStore implements [BackendType]. Trees build their nested muxes themselves.
func (*MuxBackend) OpenStore() (muxcore.Store, error) {
	return nil, errors.New("a mux is opened by its tree")
}

// Interface guards.
var _ BackendType = (*MuxBackend)(nil)
