package caddymux

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

func init() { caddy.RegisterModule(new(UseBackend)) }

// UseBackend is a named tree as a backend: the very one that others use, with its one state. It counts as one mux of a chain.
type UseBackend struct {
	// The name of the tree. A cycle of trees that use each other is an error.
	Tree string `json:"tree,omitempty"`
}

// CaddyModule returns the Caddy module information.
func (*UseBackend) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  backendNamespace + "." + useType,
		New: func() caddy.Module { return new(UseBackend) },
	}
}

// Validate implements caddy.Validator.
func (b *UseBackend) Validate() error { return checkName("tree", b.Tree) }

// OpenStore implements [BackendType]. Trees find the trees that they use themselves.
func (*UseBackend) OpenStore() (muxcore.Store, error) {
	return nil, errors.New("a used tree is opened by the tree that uses it")
}

// Place implements [Placed].
func (b *UseBackend) Place() string { return b.Tree }

// UnmarshalCaddyfile sets up the backend from Caddyfile tokens:
//
//	use <tree>
func (b *UseBackend) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	if !d.NextArg() {
		return d.Err("use: the name of the tree is missing")
	}
	b.Tree = d.Val()
	if !hasPlaceholder(b.Tree) {
		if err := checkName("tree", b.Tree); err != nil {
			return at(d, err)
		}
	}
	if d.NextArg() {
		return d.Errf("use: unexpected word %q", d.Val())
	}
	return ParseOptions(d, SharedWords(useType))
}

// used is a tree that another one has as a backend, and keeps open.
type used struct {
	key  treeKey
	root *branch

	mu   sync.Mutex
	tree *tree // nil while it is not kept
}

// use finds the tree of that name for a mux in which depth muxes stand in a chain.
func (r resolver) use(name string, depth int) (*used, error) {
	if r.app == nil {
		return nil, errTreeElsewhere
	}
	d, err := r.app.tree(r.ctx, name)
	if err != nil {
		return nil, err
	}
	u := &used{key: d.key, root: d.tree.root}
	return u, checkDepth(depth + u.root.depth())
}

// depth is how many muxes stand in the longest chain of the branch.
func (b *branch) depth() int {
	deepest := 0
	for i := range b.members {
		if inner := b.members[i].inner(); inner != nil {
			deepest = max(deepest, inner.depth())
		}
	}
	return 1 + deepest
}

// canonical tells configs of the used tree apart.
func (u *used) canonical() json.RawMessage {
	return json.RawMessage(`"` + hex.EncodeToString([]byte(u.key.hash)) + `"`)
}

// enter keeps the tree until leave.
func (u *used) enter() error {
	t, err := keepTree(u.key)
	if err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.tree, u.root = t, t.root
	return nil
}

// open gives the store of the tree.
func (u *used) open() (*muxcore.Mux, error) {
	t := u.kept()
	if err := t.open(); err != nil {
		return nil, fmt.Errorf("tree %q: %w", t.name, err)
	}
	return t.store, nil
}

// leave gives the tree back, once.
func (u *used) leave() error {
	u.mu.Lock()
	t := u.tree
	u.tree = nil
	u.mu.Unlock()
	if t == nil {
		return nil
	}
	_, err := trees.Delete(u.key)
	return err
}

// enterUsed keeps the trees that the branch uses. If one cannot be kept, none is.
func (b *branch) enterUsed() error {
	for i := range b.members {
		one := &b.members[i]
		var err error
		switch {
		case one.nested != nil:
			err = one.nested.enterUsed()
		case one.used != nil:
			err = one.used.enter()
		}
		if err != nil {
			return errors.Join(fmt.Errorf("backend %q: %w", one.Name, err), b.leaveUsed())
		}
	}
	return nil
}

// leaveUsed gives back the trees that the branch uses, as far as it keeps them.
func (b *branch) leaveUsed() error {
	var errs []error
	for i := range b.members {
		errs = append(errs, b.members[i].leaveUsed())
	}
	return errors.Join(errs...)
}

func (one *member) leaveUsed() error {
	switch {
	case one.nested != nil:
		return one.nested.leaveUsed()
	case one.used != nil:
		return one.used.leave()
	}
	return nil
}

// usedTrees lists the trees that are used in the branch, each once, those that others use before them.
func (b *branch) usedTrees() (all []*tree) {
	for i := range b.members {
		one := &b.members[i]
		if one.inner() == nil {
			continue
		}
		more := one.inner().usedTrees()
		if one.used != nil {
			more = append(more, one.used.kept())
		}
		for _, t := range more {
			if t != nil && !slices.Contains(all, t) {
				all = append(all, t)
			}
		}
	}
	return all
}

// kept is the tree while it is kept, else nil.
func (u *used) kept() *tree {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.tree
}

// member is the one of that name; nil if there is none.
func (b *branch) member(name string) *member {
	for i := range b.members {
		if b.members[i].Name == name {
			return &b.members[i]
		}
	}
	return nil
}

// Interface guards.
var (
	_ BackendType           = (*UseBackend)(nil)
	_ Placed                = (*UseBackend)(nil)
	_ caddy.Validator       = (*UseBackend)(nil)
	_ caddyfile.Unmarshaler = (*UseBackend)(nil)
)
