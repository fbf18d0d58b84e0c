package caddymux

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
)

func init() { httpcaddyfile.RegisterGlobalOption(appID, parseGlobal) }

// parseGlobal adds a named tree to those of the global options before it:
//
//	storage_mux <tree> [<mode>] [<location>...] {
//	    <tree options and backends: see muxParser.options>
//	}
func parseGlobal(d *caddyfile.Dispenser, existing any) (any, error) {
	app, err := declaredTrees(existing)
	if err != nil {
		return nil, err
	}
	d.Next()
	if !d.NextArg() {
		return nil, d.Err("storage_mux: the name of the tree is missing")
	}
	name := d.Val()
	if err := checkName("tree", name); err != nil {
		return nil, at(d, err)
	}
	if app.Trees[name] != nil {
		return nil, d.Errf("two storage trees named %q", name)
	}
	place := *d
	p, err := parseTree(d)
	if err != nil {
		return nil, err
	}
	app.Trees[name] = p.m
	if err := app.checkUses(name, *p.uses, &place); err != nil {
		return nil, err
	}
	return httpcaddyfile.App{Name: appID, Value: caddyconfig.JSON(app, nil)}, nil
}

// parseTree reads [<mode>] [<location>...] { <tree options and backends> } after the token on which d stands.
func parseTree(d *caddyfile.Dispenser) (*muxParser, error) {
	p, start := newMuxParser(new(Mux), 1), *d
	if err := p.head(d); err != nil {
		return nil, err
	}
	if err := ParseOptions(d, nil, p.options()...); err != nil {
		return nil, err
	}
	return p, p.check(&start)
}

// declaredTrees is what global options have declared so far.
func declaredTrees(option any) (*App, error) {
	app := &App{Trees: make(map[string]*Mux)}
	if before, ok := option.(httpcaddyfile.App); ok {
		if err := json.Unmarshal(before.Value, app); err != nil {
			return nil, fmt.Errorf("reading earlier storage_mux options: %w", err)
		}
	}
	return app, nil
}

// checkDeclared tells whether a global option has declared a tree.
func checkDeclared(name string, option any) error {
	app, err := declaredTrees(option)
	if err != nil || app.Trees[name] != nil {
		return err
	}
	return unknownTree(name, slices.Sorted(maps.Keys(app.Trees)))
}
