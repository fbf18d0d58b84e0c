package caddymux

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"path/filepath"
	"strconv"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/filestore"
)

func init() { caddy.RegisterModule(new(FileBackend)) }

// smallFiles keeps small objects of all backends of this type in memory.
var smallFiles = filestore.NewCache(32 << 20)

// FileBackend keeps objects as files in a folder. Files that others put there are served as well.
type FileBackend struct {
	// The folder. One that is missing or cannot be read is a failure of the backend, never a missing key. A relative
	// one counts from the folder in which Caddy was started. Required.
	Root string `json:"root,omitempty"`

	// Make the folder when it is first needed and not there; only its last segment. Default: false.
	CreateRoot bool `json:"create_root,omitempty"`

	// The permissions of new files, octal; folders get the execute bits that belong to the read bits. Default: 0644.
	Mode string `json:"mode,omitempty"`
}

// CaddyModule returns the Caddy module information.
func (*FileBackend) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  backendNamespace + ".file",
		New: func() caddy.Module { return new(FileBackend) },
	}
}

// Validate implements caddy.Validator.
func (b *FileBackend) Validate() error {
	if b.Root == "" {
		return errors.New("root: is missing")
	}
	_, err := parseFileMode(b.Mode)
	return err
}

// OpenStore implements [BackendType].
func (b *FileBackend) OpenStore() (muxcore.Store, error) {
	mode, err := parseFileMode(b.Mode)
	if err != nil {
		return nil, err
	}
	return filestore.New(filestore.Settings{Root: b.FileRoot(), CreateRoot: b.CreateRoot, Mode: mode, Cache: smallFiles})
}

// parseFileMode reads octal permissions; 0 is the default.
func parseFileMode(word string) (fs.FileMode, error) {
	if word == "" {
		return 0, nil
	}
	mode, err := strconv.ParseUint(word, 8, 32)
	if err != nil || mode > 0o777 || mode&0o600 != 0o600 {
		return 0, fmt.Errorf("mode: must be octal permissions such as 0640, with read and write for the owner, got %q", word)
	}
	return fs.FileMode(mode), nil
}

// UnmarshalCaddyfile sets up the backend from Caddyfile tokens:
//
//	file <root> {
//	    create_root
//	    mode <octal>
//	}
func (b *FileBackend) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	if !d.NextArg() {
		return d.Err("file: root is missing")
	}
	b.Root = d.Val()
	if err := b.Validate(); err != nil {
		return at(d, err)
	}
	if d.NextArg() {
		return d.Errf("file: unexpected word %q", d.Val())
	}
	return ParseOptions(d, SharedWords("file"),
		Option{Word: "create_root", Parse: FlagOption(&b.CreateRoot)},
		Option{Word: "mode", Parse: b.parseMode},
	)
}

func (b *FileBackend) parseMode(d *caddyfile.Dispenser) error {
	if err := TextOption(&b.Mode)(d); err != nil || hasPlaceholder(b.Mode) {
		return err
	}
	_, err := parseFileMode(b.Mode)
	return at(d, err)
}

// Schemes implements [Locator].
func (*FileBackend) Schemes() []string { return []string{"", "file"} }

// UnmarshalLocation implements [Locator].
func (b *FileBackend) UnmarshalLocation(location string) error {
	if isPath(location) {
		b.Root = location
		return nil
	}
	u, err := url.Parse(location)
	if err != nil || u.Host != "" || u.Path == "" || u.RawQuery != "" || u.Fragment != "" {
		return fmt.Errorf("location %q: must be file:/// and an absolute path", location)
	}
	b.Root = filepath.FromSlash(u.Path)
	return nil
}

// Place implements [Placed].
func (b *FileBackend) Place() string { return b.Root }

// FileRoot implements [Rooted].
func (b *FileBackend) FileRoot() string {
	if abs, err := caddy.FastAbs(b.Root); err == nil {
		return abs
	}
	return b.Root
}

// Interface guards.
var (
	_ BackendType           = (*FileBackend)(nil)
	_ Locator               = (*FileBackend)(nil)
	_ Placed                = (*FileBackend)(nil)
	_ Rooted                = (*FileBackend)(nil)
	_ caddy.Validator       = (*FileBackend)(nil)
	_ caddyfile.Unmarshaler = (*FileBackend)(nil)
)
