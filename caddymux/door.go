package caddymux

import (
	"errors"
	"fmt"

	"github.com/caddyserver/caddy/v2"
)

// door is a place in a config from which a tree is used: a handler, a file system, the certificate storage, or the
// global option that declares it. Each holds the tree for itself, as Caddy cleans them up in no order.
type door struct {
	tree *tree
	key  treeKey
	view *observer // nil where there is no config, as in `caddy storage`
	left bool

	writable bool // counts among the tree's doors
}

// admitWrites has the tree know that there is a writable door, as long as this one is there.
func (d *door) admitWrites() {
	d.writable = true
	d.tree.doors.Add(1)
}

// enter finds the named tree use, or makes the one that is written inline.
func (d *door) enter(ctx caddy.Context, app *App, use, name string, m Mux) (*branch, error) {
	if use == "" {
		root, err := newResolver(ctx, app).tree(name, m)
		if err != nil {
			return nil, err
		}
		return root, d.join(app, root)
	}
	if err := checkAlone(name, &m); err != nil {
		return nil, err
	}
	use, err := replaceString(caddy.NewReplacer(), "use", use, false)
	if err != nil {
		return nil, err
	}
	named, err := app.tree(ctx, use)
	if err != nil {
		return nil, fieldError{"use", err}
	}
	return named.tree.root, d.use(named)
}

// join makes the tree of root the door's: a new one, or the one that is there already. app is nil where there is none.
func (d *door) join(app *App, root *branch) error {
	key := treeKey{root.name, root.hash()}
	t, err := enterTree(key, root)
	if err != nil {
		return err
	}
	d.tree, d.key = t, key
	if app == nil {
		t.alone.Store(true)
		return nil
	}
	d.view = app.observer
	t.watchBy(d.view)
	return app.adopt(key, t)
}

// use makes the tree of another door, which stays for as long, this one's as well.
func (d *door) use(other *door) error {
	t, err := keepTree(other.key)
	if err != nil {
		return err
	}
	d.tree, d.key, d.view = t, other.key, other.view
	t.watchBy(d.view)
	return nil
}

// leave gives back what join took. Requests that still use the tree keep it open.
func (d *door) leave() error {
	if d.tree == nil || d.left {
		return nil
	}
	d.left = true // the tree stays known: a late request finds its successor by it
	if d.writable {
		d.tree.doors.Add(-1)
	}
	if d.view != nil {
		d.tree.unwatch(d.view)
	}
	_, err := trees.Delete(d.key)
	return err
}

// enterTree counts one more that has the tree, and makes it of root if it is not there.
func enterTree(key treeKey, root *branch) (*tree, error) {
	// Not while the tree is made: its place in the pool is locked then, and whoever looks through the pool waits there.
	if err := root.enterUsed(); err != nil {
		return nil, ofTree(key.name, err)
	}
	value, there, err := trees.LoadOrNew(key, func() (caddy.Destructor, error) { return newTree(root) })
	if there || err != nil {
		_ = root.leaveUsed() // a tree that is there keeps them for itself
	}
	if err != nil {
		return nil, fmt.Errorf("tree %q: %w", key.name, err)
	}
	return value.(*tree), nil
}

// errTreeGone is for what uses a tree whose config ends at that very moment.
var errTreeGone = errors.New("the config that has it was unloaded")

// keepTree counts one more that has a tree which is there.
func keepTree(key treeKey) (*tree, error) {
	value, _, err := trees.LoadOrNew(key, func() (caddy.Destructor, error) { return nil, errTreeGone })
	if err != nil {
		return nil, fmt.Errorf("tree %q: %w", key.name, err)
	}
	return value.(*tree), nil
}
