package caddymux

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// changing has whatever goes by how trees stand, or changes that, follow each other: changes at run time, a tree that takes over from
// the one before, a certificate storage that looks for a place for its locks. A change of one tree may matter to others that use it.
var changing struct {
	sync.Mutex

	count atomic.Uint64 // of what was done, so that what is derived of a tree can be kept until then
}

// errReloading is why a tree cannot be changed for a moment.
var errReloading = errors.New("a config in which the tree is another one is being loaded, and the change would be lost: try again once it is")

// changeTree makes a change of the tree of that name in the running config, by an f that gets the tree which has the backend: this one, or
// one that it uses. The tree, nil if there is none, is to be released.
func changeTree(name, backend string, f func(owner *tree, backend string) error) (*tree, error) {
	for {
		t := activeTree(name) // which may open it, and so take over
		if t == nil {
			return nil, nil
		}
		changing.Lock()
		if !t.active() {
			changing.Unlock()
			t.release()
			continue // a new config has just begun
		}
		owner, backend := t.owner(backend)
		err := owner.checkHeirs()
		if err == nil {
			err = f(owner, backend)
			changing.count.Add(1)
		}
		changing.Unlock()
		return t, err
	}
}

// active tells whether the tree is of the running config.
func (t *tree) active() bool {
	return slices.Contains(activeTrees(), t)
}

// checkHeirs is for changes of a tree: one that is to take its place, and has taken over already, would not know of them. It must
// be called with changing locked.
func (t *tree) checkHeirs() error {
	for _, other := range namesakes(t.name) {
		if other.born > t.born && other.tookOver {
			return fmt.Errorf("tree %q: %w", t.name, errReloading)
		}
	}
	return nil
}

// namesakes are all trees of a name that configs have, also those that are on their way in or out: the last one made
// comes first.
func namesakes(name string) (all []*tree) {
	trees.Range(func(key, value any) bool {
		if t, ok := value.(*tree); ok && key.(treeKey).name == name {
			all = append(all, t)
		}
		return true
	})
	slices.SortFunc(all, func(a, b *tree) int { return cmp.Compare(b.born, a.born) })
	return all
}

// births counts trees.
var births atomic.Uint64

// keepsSecrets tells whether a certificate storage has private keys in the tree, itself or by another one. It must be called with
// changing locked.
func (t *tree) keepsSecrets() (found bool) {
	var stores []*tree
	trees.Range(func(_, value any) bool {
		if one, ok := value.(*tree); ok && one.secrets.Load() > 0 {
			stores = append(stores, one)
		}
		return true
	})
	for _, one := range stores {
		one.eachSeatNow(func(s seat) {
			for _, in := range s.in {
				found = found || in.t == t
			}
		})
	}
	return found
}

// checkSecretNow tells whether the tree may hold private keys as it stands: not where a backend that is written to has a public network
// in front of it.
func (t *tree) checkSecretNow() error {
	return checkSecret(t.eachSeatNow)
}

// checkSecret is that for the backends that each goes through.
func checkSecret(each func(func(seat))) (err error) {
	each(func(s seat) {
		if can := muxcore.CapabilitiesOf(s.store); !s.readOnly && (can.Public || can.Purge) {
			err = fmt.Errorf("backend %q: the content delivery network in front of it would serve private keys to anyone", s.name)
		}
	})
	return err
}
