package caddybreaker

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/caddyserver/caddy/v2"
)

// namedPath is a path that goes by a name of the config instead of an upstream.
type namedPath struct {
	registry *registry
	def      *definition
	id       string
}

func newNamedPath(ctx caddy.Context, registryName, local, id string, o Options) (*namedPath, error) {
	id = caddy.NewReplacer().ReplaceAll(strings.TrimSpace(id), "")
	if id == "" {
		return nil, fmt.Errorf("path_id: missing or empty; it names what is guarded")
	}
	if !utf8.ValidString(id) {
		return nil, fmt.Errorf("path_id: must be UTF-8, got %q", id)
	}
	app, err := breakerApp(ctx)
	if err != nil {
		return nil, err
	}
	p := &namedPath{id: id}
	if p.registry, err = app.registry(registryName); err != nil {
		return nil, err
	}
	if local != "" {
		if err := p.registry.setLocalID(local); err != nil {
			return nil, err
		}
	}
	if p.def, err = o.define(p.registry.defaults, false, false); err != nil {
		return nil, err
	}
	return p, p.registry.define(id, p)
}

// guard returns the guard of the path; nil once the config is gone.
func (p *namedPath) guard() *guard { return p.registry.meet(p.id, p) }

// definition implements user.
func (p *namedPath) definition() *definition { return p.def }
