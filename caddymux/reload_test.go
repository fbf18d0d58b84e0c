package caddymux

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/storetest"
)

// treesAlive counts what is in the pool.
func treesAlive() (n int) {
	trees.Range(func(any, any) bool {
		n++
		return true
	})
	return n
}

func TestAnUnchangedTreeSurvivesAReload(t *testing.T) {
	f := scripted(t, "survives")
	const tree = "storage_mux {\n writable\n journal off\n cooldown 1h\n backend f scripted survives\n backend m memory\n}\n"
	c := run(t, "header >X-Attempts {http.storage_mux.attempts}\n"+tree)
	f.Break(&muxcore.Error{Code: muxcore.CodeUnavailable})
	c.expect(http.StatusCreated, "PUT", "/x", "in memory")
	if got := c.expect(http.StatusOK, "GET", "/x", ""); got.header.Get("X-Attempts") != "2" {
		t.Errorf("%s attempts, want 2", got.header.Get("X-Attempts"))
	}
	f.Mend()
	for i := range 3 {
		c.load(fmt.Sprintf("header X-Config %d\nheader >X-Attempts {http.storage_mux.attempts}\n%s", i, tree))
		got := c.expect(http.StatusOK, "GET", "/x", "")
		if got.header.Get("X-Config") != fmt.Sprint(i) || got.header.Get("X-Attempts") != "1" || got.body != "in memory" {
			t.Errorf("after reload %d: config %s, %s attempts, want one: f is still down", i, got.header.Get("X-Config"), got.header.Get("X-Attempts"))
		}
	}
	if n := treesAlive(); n != 1 {
		t.Errorf("%d trees are alive, want 1", n)
	}
}

func TestAnEditedTreeHasItsOwnStores(t *testing.T) {
	const tree = "storage_mux {\n name t\n writable\n timeout %dm\n backend m memory\n}"
	c := run(t, fmt.Sprintf(tree, 1))
	for i := range 3 {
		c.expect(http.StatusCreated, "PUT", "/x", "body")
		c.load(fmt.Sprintf(tree, i+2))
		c.expect(http.StatusNotFound, "GET", "/x", "")
	}
	c.eventually("only one tree is alive", func() bool { return treesAlive() == 1 })
}

func TestHandlersOfOneNameAreOneTree(t *testing.T) {
	const backend = "\n name t\n writable\n backend m memory\n"
	c := run(t, "handle_path /a/* {\n storage_mux {"+backend+"}\n}\nhandle_path /b/* {\n storage_mux {"+backend+" prefix p\n}\n}")
	c.expect(http.StatusCreated, "PUT", "/a/p/x", "body")
	if got := c.expect(http.StatusOK, "GET", "/b/x", ""); got.body != "body" {
		t.Errorf("body = %q", got.body)
	}
	if n := treesAlive(); n != 1 {
		t.Errorf("%d trees are alive, want 1", n)
	}
	for name, site := range map[string]string{
		"named":   "route {\nstorage_mux {\n name t\n backend m memory\n}\nstorage_mux {\n name t\n backend m memory 1MB\n}\n}",
		"unnamed": "route {\nstorage_mux memory: {\n timeout 1s\n}\nstorage_mux memory: {\n timeout 2s\n}\n}",
	} {
		err := c.tryLoad(site)
		if err == nil || !strings.Contains(err.Error(), "not alike") {
			t.Errorf("%s: two trees of one name: %v", name, err)
		}
		c.expect(http.StatusOK, "GET", "/b/x", "")
		if n := treesAlive(); n != 1 {
			t.Errorf("%s: %d trees are alive after the failed load, want 1", name, n)
		}
	}
}

func TestTreesThatDifferInPlaceHaveDifferentDefaultNames(t *testing.T) {
	names := map[string]string{}
	for _, directive := range []string{
		"storage_mux file:///srv/a", "storage_mux file:///mnt/a", "storage_mux mirror file:///srv/a",
		"storage_mux {\n backend a mux {\n backend m memory\n }\n}", "storage_mux {\n backend a mux {\n backend n memory\n }\n}",
	} {
		h := provisioned(t, directive)
		if other, taken := names[h.tree.name]; taken {
			t.Errorf("%q and %q are both named %s", directive, other, h.tree.name)
		}
		names[h.tree.name] = directive
		if !strings.HasPrefix(h.tree.name, "a-") || len(h.tree.name) != len("a-")+8 {
			t.Errorf("%q is named %s, want a- and 8 hex digits", directive, h.tree.name)
		}
	}
	one := provisioned(t, "storage_mux file:///srv/a {\n timeout 3s\n}")
	if _, same := names[one.tree.name]; !same {
		t.Errorf("an option changed the default name to %s", one.tree.name)
	}
}

func TestARequestKeepsItsTreeOpen(t *testing.T) {
	f := scripted(t, "keeps")
	c := run(t, "storage_mux {\n writable\n backend f scripted keeps\n}")
	body := strings.Repeat("x", 200_000)
	c.expect(http.StatusCreated, "PUT", "/x", body)
	f.From(muxcore.OpGet, 1, storetest.StallBody(100_000))
	req, err := http.NewRequestWithContext(t.Context(), "GET", "http://test/x", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := f.AwaitStalled(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	c.load(`respond "another config"`)
	if n := treesAlive(); n != 0 {
		t.Errorf("%d trees are in the pool, want none", n)
	}
	f.Release()
	if got, err := io.ReadAll(resp.Body); err != nil || len(got) != len(body) {
		t.Errorf("after the reload: %d bytes, %v, want all %d", len(got), err, len(body))
	}
	c.eventually("nothing is in flight", func() bool { return f.InFlight() == 0 && f.OpenBodies() == 0 })
}

func TestATreeClosesOnceWithItsLastUser(t *testing.T) {
	h := provisioned(t, "storage_mux memory:")
	one := h.tree
	root := one.root
	if got, err := one.acquire(); got != one {
		t.Fatalf("not acquired: %v", err)
	}
	if err := h.Cleanup(); err != nil {
		t.Fatal(err)
	}
	h.tree = nil
	select {
	case <-one.done:
		t.Fatal("closed under a request")
	default:
	}
	one.release()
	<-one.done
	if _, err := one.acquire(); !errors.Is(err, errClosed) {
		t.Errorf("a closed tree was acquired, or %v", err)
	}
	// A request that is late finds what has taken the tree's place.
	next := provisioned(t, "storage_mux memory: {\n timeout 3s\n}")
	if next.tree.root == root {
		t.Fatal("the old tree is still in the pool")
	}
	got, err := one.acquire()
	if got != next.tree {
		t.Fatalf("a late request got %v, %v, want the newer tree", got, err)
	}
	got.release()
}

// Nor does it find one that is no successor: of a config that may never run, or of one that is gone.
func TestALateRequestGoesToTheTreeOfTheRunningConfig(t *testing.T) {
	const site = "storage_mux memory: {\n name t\n timeout %ds\n}"
	gone := provisioned(t, fmt.Sprintf(site, 1)) // kept by another one
	c := run(t, fmt.Sprintf(site, 2))
	late := activeTree("t")
	late.release()
	c.load(fmt.Sprintf(site, 3))
	<-late.done
	loading := provisioned(t, fmt.Sprintf(site, 4))
	for range 20 {
		got, err := late.acquire()
		if err != nil {
			t.Fatal(err)
		}
		got.release()
		if got == gone.tree || got == loading.tree || !got.active() {
			t.Fatalf("it went to the tree of a config that does not run, with a timeout of %v", got.root.set.Timeout)
		}
	}
}

// A tree that a reload removes or renames is there for the requests that are still on their way to it.
func TestATreeWithoutASuccessorStaysForLateRequests(t *testing.T) {
	lateness = time.Hour
	defer func() { lateness = 0 }()
	h := provisioned(t, "storage_mux memory:")
	one := h.tree
	opened := func() {
		t.Helper()
		if _, err := one.acquire(); err != nil {
			t.Fatal(err)
		}
		one.release()
	}
	opened()
	if err := h.Cleanup(); err != nil {
		t.Fatal(err)
	}
	opened()
	if err := one.close(); err != nil {
		t.Fatal(err)
	}
	<-one.done

	unopened := provisioned(t, "storage_mux memory:")
	if err := unopened.Cleanup(); err != nil {
		t.Fatal(err)
	}
	<-unopened.tree.done

	edited := provisioned(t, "storage_mux memory: {\n timeout 3s\n}")
	one = edited.tree
	opened()
	provisioned(t, "storage_mux memory: {\n timeout 4s\n}")
	if err := edited.Cleanup(); err != nil {
		t.Fatal(err)
	}
	<-one.done // late requests go to the other
}

func TestReloadsUnderLoadLoseNoRequest(t *testing.T) {
	const tree = "storage_mux {\n name t\n writable\n timeout %dm\n backend d file {{dir}}/d {\n create_root\n }\n}"
	c := run(t, fmt.Sprintf(tree, 1))
	c.expect(http.StatusCreated, "PUT", "/x", "body")
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if got, err := c.try("GET", "/x", nil); err != nil || got.status != http.StatusOK || got.body != "body" {
					t.Errorf("GET = %d %q, %v", got.status, got.body, err)
					return
				}
			}
		})
	}
	for i := range 10 {
		c.load(fmt.Sprintf(tree, i%3+1))
	}
	close(stop)
	wg.Wait()
}

func TestValidateStartsNothing(t *testing.T) {
	f := scripted(t, "validated")
	c := &client{t: t, dir: socketDir(t), socket: "unused"}
	config, err := adapt(t, c.config("storage_mux {\n health_interval 1ms\n backend f scripted validated\n backend d file {{dir}}/d {\n create_root\n }\n}"))
	if err != nil {
		t.Fatal(err)
	}
	var cfg caddy.Config
	if err := json.Unmarshal(config, &cfg); err != nil {
		t.Fatal(err)
	}
	if err := caddy.Validate(&cfg); err != nil {
		t.Fatal(err)
	}
	if n := f.AllCalls(); n != 0 {
		t.Errorf("the store was called %d times", n)
	}
	if n := treesAlive(); n != 0 {
		t.Errorf("%d trees are alive", n)
	}
}

func TestHealthChecksRunWhileTheTreeDoes(t *testing.T) {
	f := scripted(t, "checked")
	c := run(t, "storage_mux {\n health_interval 1ms\n backend f scripted checked\n}")
	if err := f.AwaitCalls(t.Context(), muxcore.OpHealth, 3); err != nil {
		t.Fatal(err)
	}
	c.load(`respond "another config"`)
	c.eventually("the tree is gone", func() bool { return treesAlive() == 0 && f.InFlight() == 0 })
	c.eventually("the checks have ended", func() bool { // the pool forgets a tree just before it is closed
		n := f.Calls(muxcore.OpHealth)
		<-time.After(50 * time.Millisecond)
		return f.Calls(muxcore.OpHealth) == n
	})
	c.expect(http.StatusOK, "GET", "/", "")
}
