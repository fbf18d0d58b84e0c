package caddymux

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// A chain of used trees that is too long or bites its tail is found when the config is provisioned, whoever wrote it. Here it is found
// earlier, where a Caddyfile lets it: an error can then name the line.

// usePlace is a backend of type use in a Caddyfile.
type usePlace struct {
	tree  string
	depth int // muxes in the chain, down to the one that it is a backend of
	at    caddyfile.Dispenser
}

// use remembers the place of a backend that is a named tree.
func (p *muxParser) use(module BackendType, d *caddyfile.Dispenser) {
	if b, ok := module.(*UseBackend); ok && !hasPlaceholder(b.Tree) {
		*p.uses = append(*p.uses, usePlace{b.Tree, p.depth, *d})
	}
}

// checkUses checks what the tree name uses, which was declared last: together with those before it.
func (a *App) checkUses(name string, uses []usePlace, declared *caddyfile.Dispenser) error {
	for i := range uses {
		u := &uses[i]
		if chain := a.chainTo(name, u.tree, nil); chain != nil {
			return at(&u.at, errCycle(append([]string{name}, chain...)))
		}
		if err := checkDepth(u.depth + a.depthOf(u.tree)); err != nil {
			return at(&u.at, err)
		}
	}
	for _, other := range slices.Sorted(maps.Keys(a.Trees)) { // which may use it
		if err := checkDepth(a.depthOf(other)); err != nil {
			return at(declared, ofTree(other, err))
		}
	}
	return nil
}

// checkDeclaredUses checks what an inline tree uses, after all global options.
func checkDeclaredUses(uses []usePlace, option any) error {
	app, err := declaredTrees(option)
	if err != nil {
		return err
	}
	for i := range uses {
		u := &uses[i]
		if app.Trees[u.tree] == nil {
			return at(&u.at, unknownTree(u.tree, slices.Sorted(maps.Keys(app.Trees))))
		}
		if err := checkDepth(u.depth + app.depthOf(u.tree)); err != nil {
			return at(&u.at, err)
		}
	}
	return nil
}

// errCycle is the error of trees that use each other.
func errCycle(chain []string) error {
	return coded(muxcore.CodeRecursionDepthExceeded, "a cycle of use: %s", strings.Join(chain, " -> "))
}

// chainTo is a chain of used trees from one to that of the name to, both included; nil: there is none. Those in seen are
// known not to lead there.
func (a *App) chainTo(to, from string, seen map[string]bool) []string {
	if from == to {
		return []string{to}
	}
	if seen == nil {
		seen = make(map[string]bool)
	}
	if seen[from] || a.Trees[from] == nil {
		return nil
	}
	seen[from] = true
	for _, next := range a.Trees[from].used() {
		if chain := a.chainTo(to, next, seen); chain != nil {
			return append([]string{from}, chain...)
		}
	}
	return nil
}

// depthOf is how many muxes stand in the longest chain of a tree, in which there is no cycle; 0 if it is not declared yet.
func (a *App) depthOf(name string) int {
	if m := a.Trees[name]; m != nil {
		return a.depth(m)
	}
	return 0
}

func (a *App) depth(m *Mux) int {
	deepest := 0
	for _, one := range m.inside() {
		if one.Type == useType {
			deepest = max(deepest, a.depthOf(one.Tree))
		} else {
			deepest = max(deepest, a.depth(&one.Mux))
		}
	}
	return 1 + deepest
}

// inner is what the JSON of a backend says of the muxes in it.
type inner struct {
	Type string `json:"type"`
	Tree string `json:"tree"`
	Mux
}

// inside gives the backends of m that are muxes, nested or used, as far as they can be read.
func (m *Mux) inside() (all []inner) {
	for _, raw := range m.Backends {
		var one inner
		if json.Unmarshal(raw, &one) == nil && (one.Type == muxType || one.Type == useType) {
			all = append(all, one)
		}
	}
	return all
}

// used lists the trees that m uses.
func (m *Mux) used() (all []string) {
	for _, one := range m.inside() {
		if one.Type == useType {
			all = append(all, one.Tree)
		} else {
			all = append(all, one.used()...)
		}
	}
	return all
}
