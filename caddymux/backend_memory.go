package caddymux

import (
	"fmt"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/memstore"
)

func init() { caddy.RegisterModule(new(MemoryBackend)) }

// MemoryBackend keeps objects in the memory of this process. They are gone after a restart, and after a reload that
// changes the tree.
type MemoryBackend struct {
	// The most that objects and what describes them may take together, in bytes; beyond it, uploads are refused. An
	// upload over an object may hold both until it is complete. Default: no limit.
	MaxSize int64 `json:"max_size,omitempty"`
}

// CaddyModule returns the Caddy module information.
func (*MemoryBackend) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  backendNamespace + ".memory",
		New: func() caddy.Module { return new(MemoryBackend) },
	}
}

// Validate implements caddy.Validator.
func (b *MemoryBackend) Validate() error {
	if b.MaxSize < 0 {
		return fmt.Errorf("max_size: must be >= 0, got %d", b.MaxSize)
	}
	return nil
}

// OpenStore implements [BackendType].
func (b *MemoryBackend) OpenStore() (muxcore.Store, error) {
	return memstore.New(memstore.Settings{MaxBytes: b.MaxSize})
}

// InProcess implements [InProcess].
func (*MemoryBackend) InProcess() bool { return true }

// UnmarshalCaddyfile sets up the backend from Caddyfile tokens:
//
//	memory [<max-size>]
func (b *MemoryBackend) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	if d.NextArg() {
		var err error
		if b.MaxSize, err = parseSize(d.Val()); err != nil {
			return d.Errf("memory: max_size: %w", err)
		}
	}
	if d.NextArg() {
		return d.Errf("memory: unexpected word %q", d.Val())
	}
	return ParseOptions(d, SharedWords("memory"))
}

// Schemes implements [Locator].
func (*MemoryBackend) Schemes() []string { return []string{"memory"} }

// UnmarshalLocation implements [Locator].
func (*MemoryBackend) UnmarshalLocation(location string) error {
	if !strings.EqualFold(location, "memory:") {
		return fmt.Errorf("location %q: nothing may follow memory:, a size goes into a block: backend <name> memory <max-size>", location)
	}
	return nil
}

// Interface guards.
var (
	_ BackendType           = (*MemoryBackend)(nil)
	_ Locator               = (*MemoryBackend)(nil)
	_ InProcess             = (*MemoryBackend)(nil)
	_ caddy.Validator       = (*MemoryBackend)(nil)
	_ caddyfile.Unmarshaler = (*MemoryBackend)(nil)
)
