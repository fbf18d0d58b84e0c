package caddymux

import (
	"path/filepath"

	"github.com/caddyserver/caddy/v2"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// spools holds the spool of the process, whose budgets all trees share: also those of an old config and a new one, and of
// requests that outlive both. It is keyed by its folder.
var spools = caddy.NewUsagePool()

// spool is the spool of the process while trees use it.
type spool struct {
	dir  string
	core *muxcore.Spool
}

// takeSpool takes part in the spool of the process. It touches no disk.
func takeSpool() *spool {
	dir := filepath.Join(caddy.AppDataDir(), "storage_mux", ".spool")
	value, _, _ := spools.LoadOrNew(dir, func() (caddy.Destructor, error) { // making one never fails
		return &spool{dir, muxcore.NewSpool(muxcore.SpoolSettings{Dir: dir})}, nil
	})
	return value.(*spool)
}

// giveBack ends a tree's part.
func (s *spool) giveBack() { _, _ = spools.Delete(s.dir) }

// Destruct implements caddy.Destructor. A spool holds nothing while nobody writes.
func (s *spool) Destruct() error { return nil }
