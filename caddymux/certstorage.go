package caddymux

import (
	"errors"
	"fmt"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"

	"github.com/suaveplan/caddy-storage-mux/internal/strictjson"
)

func init() { caddy.RegisterModule(new(CertStorage)) }

// CertStorage keeps Caddy's certificates, private keys and accounts in a storage tree, below a reserved prefix: no handler,
// file system or list shows them, whichever doors the tree has besides. Its locks live on one backend alone, the first whose
// type can keep them (`file`, `memory` for one process, `s3`) or the one with the option `locks`: while that one is away,
// no certificate is obtained or renewed; those that are there are served.
type CertStorage struct {
	// The named tree to use. Then no name, mode, backend or option of a tree stands here. `caddy storage export` and `import`
	// need a tree that is written here, as they load the storage without the rest of the config.
	Use string `json:"use,omitempty"`

	// The name of a tree that is written here. Default: made of the first backend's.
	Name string `json:"name,omitempty"`

	Mux

	door

	store *certStore
	locks *seat // guarded
}

// CaddyModule returns the Caddy module information.
func (*CertStorage) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "caddy.storage.storage_mux",
		New: func() caddy.Module { return new(CertStorage) },
	}
}

// UnmarshalJSON implements json.Unmarshaler: an error names the field.
func (s *CertStorage) UnmarshalJSON(data []byte) error {
	type plain CertStorage
	return strictjson.Decode(data, (*plain)(s))
}

// Provision implements caddy.Provisioner. Caddy provisions its storage before the apps.
func (s *CertStorage) Provision(ctx caddy.Context) error {
	app, err := appIfAny(ctx)
	if err != nil {
		return err
	}
	if app == nil && s.Use != "" {
		return fieldError{"use", errTreeElsewhere}
	}
	root, err := s.enter(ctx, app, s.Use, s.Name, s.Mux)
	if err != nil {
		return err
	}
	s.admitWrites()
	if err := s.keepSecrets(); err != nil {
		return err
	}
	logger := ctx.Logger()
	for _, advice := range append(root.advice(true), root.storageAdvice()...) {
		logger.Warn("config that is hardly meant", zap.String("why", advice))
	}
	s.store = newCertStore(s.tree, logger)
	return nil
}

// keepSecrets has the tree, as it stands, keep private keys and their locks until Cleanup.
func (s *CertStorage) keepSecrets() error {
	changing.Lock()
	defer changing.Unlock()
	if err := s.tree.findLocks(); err != nil {
		return err
	}
	if err := s.tree.checkSecretNow(); err != nil {
		return fmt.Errorf("tree %q: %w", s.tree.name, err)
	}
	s.tree.secrets.Add(1)
	place := s.tree.locks.place
	place.guard()
	s.locks = &place
	return nil
}

// Cleanup lets go of the tree. Locks that are held keep it open.
func (s *CertStorage) Cleanup() error {
	if s.locks != nil {
		s.locks.unguard()
		s.tree.secrets.Add(-1)
		s.locks = nil
	}
	return s.leave()
}

// CertMagicStorage implements caddy.StorageConverter.
func (s *CertStorage) CertMagicStorage() (certmagic.Storage, error) { return s.store, nil }

// UnmarshalCaddyfile sets up the storage from Caddyfile tokens:
//
//	storage_mux <tree>
//	storage_mux [<mode>] [<location>...] {
//	    name <name>
//	    <tree options and backends: see muxParser.options>
//	}
//
// One word that is no mode, without a block, is a named tree.
func (s *CertStorage) UnmarshalCaddyfile(d *caddyfile.Dispenser) (err error) {
	s.Use, s.Name, err = parseDoor(d, &s.Mux)
	return err
}

// errTreeElsewhere is why there is no named tree for a storage that is loaded without its config.
var errTreeElsewhere = errors.New("the tree is declared elsewhere in the config, of which this command loads the storage alone;" +
	" write the tree in place, as in: storage storage_mux <mode> <location>... or storage storage_mux { … }")

// appIfAny is the app of the config that is being provisioned; nil where a module is loaded without one, by `caddy storage`.
func appIfAny(ctx caddy.Context) (*App, error) {
	app, err := ctx.AppIfConfigured(appID)
	if errors.Is(err, caddy.ErrNotConfigured) {
		// There is no config, or none of this app. Only a config has file systems that are the same when asked again.
		if one, other := ctx.FileSystems(), ctx.FileSystems(); one != other {
			return nil, nil
		}
		return appOf(ctx)
	}
	if err != nil {
		return nil, err
	}
	return app.(*App), nil
}

// storageAdvice lists what is allowed in a certificate storage, and yet hardly meant.
func (b *branch) storageAdvice() []string {
	if b.journal == "" && len(b.members) > 1 {
		return []string{b.name + ": with journal off, a backend that missed a write may answer with an old certificate, or none"}
	}
	return nil
}

// Interface guards.
var (
	_ caddy.StorageConverter = (*CertStorage)(nil)
	_ caddy.Provisioner      = (*CertStorage)(nil)
	_ caddy.CleanerUpper     = (*CertStorage)(nil)
	_ caddyfile.Unmarshaler  = (*CertStorage)(nil)
)
