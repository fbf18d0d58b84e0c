package caddymux

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyfs"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/suaveplan/caddy-storage-mux/internal/strictjson"
	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/storefs"
)

func init() { caddy.RegisterModule(new(FileSystem)) }

// FileSystem shows a storage tree as a file system, for `file_server`, `try_files` and the `file` matcher. Names are
// relative: without a `root`, or with one that is the beginning of keys. A folder is what keys have before a slash; a tree
// that cannot list has none but the root. It is read-only.
type FileSystem struct {
	// The named tree to show. Then no name, mode, backend or option of a tree stands here.
	Use string `json:"use,omitempty"`

	// The name of a tree that is written here. Default: made of the first backend's.
	Name string `json:"name,omitempty"`

	Mux

	door

	files  *storefs.FS
	logger *zap.Logger
}

// CaddyModule returns the Caddy module information.
func (*FileSystem) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "caddy.fs.storage_mux",
		New: func() caddy.Module { return new(FileSystem) },
	}
}

// UnmarshalJSON implements json.Unmarshaler: an error names the field.
func (f *FileSystem) UnmarshalJSON(data []byte) error {
	type plain FileSystem
	return strictjson.Decode(data, (*plain)(f))
}

// Provision implements caddy.Provisioner.
func (f *FileSystem) Provision(ctx caddy.Context) error {
	app, err := appOf(ctx)
	if err != nil {
		return err
	}
	if _, err := f.enter(ctx, app, f.Use, f.Name, f.Mux); err != nil {
		return err
	}
	f.files, f.logger = storefs.New(f.hold, outage), ctx.Logger()
	for _, above := range ctx.Modules() {
		if all, ok := above.(*caddyfs.Filesystems); ok {
			app.listed = append(app.listed, all)
		}
	}
	return nil
}

// stayListed has the file systems of a config that is about to be stopped stay where its requests look for them. Caddy forgets them in the
// clean-up of the config, while requests that came before it are still under way: file_server answers those with 404. The list itself
// goes with the config.
func (a *App) stayListed() {
	for _, all := range a.listed {
		*all = caddyfs.Filesystems{Filesystems: all.Filesystems}
	}
}

// hold keeps the tree open for a file.
func (f *FileSystem) hold() (muxcore.Store, func(), error) {
	t, err := f.tree.acquire()
	if errors.Is(err, errClosed) {
		err = errors.New("the config of this file system was unloaded")
	}
	if err != nil {
		return nil, nil, caddyhttp.Error(http.StatusServiceUnavailable, err)
	}
	return t.store, t.release, nil
}

// outage is an error with the status that file_server is to answer with: it takes it from a HandlerError, and would make
// 500 of anything else.
func outage(err error) error {
	if known, ok := errors.AsType[caddyhttp.HandlerError](err); ok {
		return known
	}
	switch class := muxcore.Classify(context.Background(), err); class {
	case muxcore.ClassTransient, muxcore.ClassTimeout:
		return caddyhttp.Error(http.StatusServiceUnavailable, err)
	default:
		return caddyhttp.Error(statusOf(err, class), err)
	}
}

// Cleanup lets go of the tree. Files that are open keep it.
func (f *FileSystem) Cleanup() error { return f.leave() }

// Open implements fs.FS. Other than there, a name may end in a slash: Caddy's file matcher asks so for a folder, as for `try_files {path}/`.
func (f *FileSystem) Open(name string) (fs.File, error) {
	plain, folderOnly := strings.CutSuffix(name, "/")
	file, err := f.files.Open(plain)
	if err != nil {
		return nil, err
	}
	if _, folder := file.(fs.ReadDirFile); folder {
		return file, nil
	}
	if folderOnly {
		_ = file.Close()
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	if seeking, ok := file.(seekingFile); ok {
		return &outgoing{seekingFile: seeking, logger: f.logger, name: plain}, nil
	}
	return file, nil
}

type seekingFile interface {
	fs.File
	io.Seeker
}

// outgoing is a file on its way to a client. Where it breaks off, so must the response: file_server does not look at errors in mid-body, and
// with encode around it nothing else would tell the client, as then no length does.
type outgoing struct {
	seekingFile
	logger *zap.Logger
	name   string
	begun  bool
}

// Read implements fs.File. It does not return where the file ends too early.
func (s *outgoing) Read(p []byte) (int, error) {
	n, err := s.seekingFile.Read(p)
	if err != nil && !errors.Is(err, io.EOF) && s.begun {
		s.logger.Warn("aborting with incomplete response", zap.Error(err))
		s.logger.Debug("file that ended too early", zap.String("key", s.name))
		panic(http.ErrAbortHandler)
	}
	s.begun = s.begun || n > 0
	return n, err
}

// UnmarshalCaddyfile sets up the file system from Caddyfile tokens:
//
//	storage_mux <tree>
//	storage_mux [<mode>] [<location>...] {
//	    name <name>
//	    <tree options and backends: see muxParser.options>
//	}
//
// One word that is no mode, without a block, is a named tree.
func (f *FileSystem) UnmarshalCaddyfile(d *caddyfile.Dispenser) (err error) {
	f.Use, f.Name, err = parseDoor(d, &f.Mux)
	return err
}

// parseDoor reads a named tree, or one that is written inline: a mode first, or a block.
func parseDoor(d *caddyfile.Dispenser, m *Mux) (use, name string, err error) {
	d.Next()
	start := *d
	p := newMuxParser(m, 1)
	if args := d.CountRemainingArgs(); args == 0 {
		// a block, or nothing
	} else if d.NextArg(); args == 1 && !opensBlock(*d) {
		if _, err := muxcore.ParseMode(d.Val()); err != nil {
			if !hasPlaceholder(d.Val()) {
				if err := checkName("tree", d.Val()); err != nil {
					return "", "", d.Errf("%w; a tree written here begins with a mode, or has a block", err)
				}
			}
			return d.Val(), "", nil
		}
		d.Prev()
	} else {
		d.Prev()
	}
	if err := p.head(d); err != nil {
		return "", "", err
	}
	named := Option{Word: "name", Parse: func(d *caddyfile.Dispenser) error {
		if err := TextOption(&name)(d); err != nil || hasPlaceholder(name) {
			return err
		}
		return at(d, checkName("tree", name))
	}}
	if err := ParseOptions(d, nil, append([]Option{named}, p.options()...)...); err != nil {
		return "", "", err
	}
	return "", name, p.check(&start)
}

// opensBlock tells whether a block begins after the token on which d stands.
func opensBlock(d caddyfile.Dispenser) bool { return d.NextBlock(d.Nesting()) }

// Interface guards.
var (
	_ fs.FS                 = (*FileSystem)(nil)
	_ caddy.Provisioner     = (*FileSystem)(nil)
	_ caddy.CleanerUpper    = (*FileSystem)(nil)
	_ caddyfile.Unmarshaler = (*FileSystem)(nil)
)
