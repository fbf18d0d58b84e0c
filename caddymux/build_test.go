package caddymux

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/memstore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/storetest"
)

// closing counts how often it is closed.
type closing struct {
	muxcore.Store

	times atomic.Int32
}

func (c *closing) Close() error {
	c.times.Add(1)
	return nil
}

// watched is a script whose store tells whether it is closed.
func watched(t *testing.T, name string) *closing {
	t.Helper()
	inner, err := memstore.New(memstore.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	c := &closing{Store: inner}
	scripts.Store(name, storetest.NewFaulty(c))
	t.Cleanup(func() { scripts.Delete(name) })
	return c
}

// A tree that cannot be made, because one that it uses cannot, leaves nothing behind of what was made before: the muxes in it with
// their health checks, and what it had from the tree before.
func TestATreeThatCannotBeMadeLeavesNothingBehind(t *testing.T) {
	nested, added, inside := watched(t, "made nested"), watched(t, "made again"), watched(t, "made again inside")
	const config = "storage_mux t {\n timeout 1m\n backend n mux {\n health_interval 1h\n backend s scripted \"made nested\"\n}\n backend u use inner\n}"
	c := runWith(t, "storage_mux inner memory:\n"+config, "storage_mux {\n use t\n}")
	change(t, "POST", "backends", `{"name":"x","type":"scripted","script":"made again"}`, "POST", "backends", `{"name":"n.y","type":"scripted","script":"made again inside"}`)
	m := *activeApp().Trees["t"]
	m.Timeout *= 2
	root, err := newResolver(testContext(t), activeApp()).tree("t", m)
	if err != nil {
		t.Fatal(err)
	}
	key := treeKey{"t", root.hash()}
	next, err := enterTree(key, root)
	if err != nil {
		t.Fatal(err)
	}
	broken := &tree{name: "broken"}
	broken.opened.Do(func() { broken.openErr = errors.New("out of order") })
	root.member("u").used.tree = broken
	if _, err := next.acquire(); err == nil || !strings.Contains(err.Error(), `tree "broken": out of order`) {
		t.Errorf("acquire = %v, want why the tree cannot be opened", err)
	}
	if _, err := trees.Delete(key); err != nil {
		t.Fatal(err)
	}
	for name, one := range map[string]*closing{"of the config": nested, "added": added, "added in the nested mux": inside} {
		// A health check that is under way ends by itself.
		c.eventually("the store "+name+" is closed", func() bool { return one.times.Load() == 1 })
	}
	c.load(`respond "no tree"`)
	c.eventually("the tree that ran is closed as well", func() bool {
		return nested.times.Load() == 2 && added.times.Load() == 2 && inside.times.Load() == 2
	})
}
