package caddymux

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

func TestAUsedTreeIsTheVeryOneThatOthersUse(t *testing.T) {
	f := scripted(t, "used")
	// The names sort so that the user comes first.
	options := "storage_mux all failover {\n backend inner use site\n backend spare memory\n}\nstorage_mux site failover {\n cooldown 1h\n journal off\n backend f scripted used\n backend m memory\n}"
	const doors = "handle_path /w/* {\n storage_mux {\n use all\n writable\n }\n}\nhandle {\n header >X-Backend {http.storage_mux.backend}\n storage_mux {\n use site\n }\n}"
	c := runWith(t, options, doors)
	c.expect(http.StatusCreated, "PUT", "/w/x", "body")
	if got := c.expect(http.StatusOK, "GET", "/x", ""); got.body != "body" {
		t.Errorf("body = %q", got.body)
	}
	f.Break(&muxcore.Error{Code: muxcore.CodeUnavailable})
	c.expect(http.StatusNotFound, "GET", "/x", "") // m's word: f goes down, in the one and only tree
	calls := f.AllCalls()
	for range 3 {
		c.expect(http.StatusNotFound, "GET", "/w/x", "")
	}
	if n := f.AllCalls(); n != calls {
		t.Errorf("%d calls more of a backend that is down in the tree that is used", n-calls)
	}
	// Both outlive a reload; a change of the inner one makes the outer one anew, and nothing stays behind.
	before := newest("all")
	before.release()
	if err := c.loadWith(options, doors+"\n"); err != nil {
		t.Fatal(err)
	}
	if after := newest("all"); after != before {
		t.Error("the tree did not outlive the reload")
	} else {
		after.release()
	}
	if err := c.loadWith(strings.Replace(options, "cooldown 1h", "cooldown 2h", 1), doors); err != nil {
		t.Fatal(err)
	}
	c.expect(http.StatusNotFound, "GET", "/w/y", "")
	c.eventually("the old trees are closed", func() bool { return treesAlive() == 2 })
	c.load(`respond "no tree"`)
	c.eventually("no tree is alive", func() bool { return treesAlive() == 0 })
}

func TestACycleOfUseIsALoadErrorThatNamesIt(t *testing.T) {
	for _, name := range []string{"a", "b", "c", "m", "z"} {
		t.Setenv("STORAGE_MUX_TREE_"+name, name)
	}
	for _, test := range []struct{ options, want, late string }{
		{"storage_mux a {\n backend x use a\n}", "a cycle of use: a -> a, at Caddyfile:3", "a cycle of use: a -> a"},
		{
			"storage_mux a {\n backend x use b\n}\nstorage_mux b {\n backend y use c\n}\nstorage_mux c {\n backend z use b\n}",
			"a cycle of use: c -> b -> c, at Caddyfile:9", "a cycle of use: b -> c -> b",
		},
		{
			"storage_mux z {\n backend x mux mirror {\n  backend y use m\n }\n}\nstorage_mux m {\n backend x use z\n}",
			"a cycle of use: m -> z -> m, at Caddyfile:8", "a cycle of use: m -> z -> m",
		},
	} {
		// What a placeholder names is known only once the config is provisioned, as is what JSON says.
		late := regexp.MustCompile(` use (.)`).ReplaceAllString(test.options, " use {env.STORAGE_MUX_TREE_$1}")
		for options, want := range map[string]string{test.options: test.want, late: test.late} {
			c := run(t, `respond "first"`)
			err := c.loadWith(options, `respond "second"`)
			if err == nil || !strings.Contains(err.Error(), "STORAGE_MUX.RECURSION_DEPTH_EXCEEDED: "+want) {
				t.Errorf("%s\ngives %v, want %q", options, err, want)
			}
			if n := treesAlive(); n != 0 {
				t.Errorf("%d trees are alive after the failed load", n)
			}
		}
	}
}

// chain declares trees t1 to tn, each but the first with the one before as its backend.
func chain(n int) string {
	all := "storage_mux t1 memory:\n"
	for i := 2; i <= n; i++ {
		all += fmt.Sprintf("storage_mux t%d {\n backend x use t%d\n}\n", i, i-1)
	}
	return all
}

func TestUseCountsOneInAChain(t *testing.T) {
	c := run(t, `respond "first"`)
	for n, site := range map[int]string{8: "storage_mux {\n use t8\n}", 7: "storage_mux {\n backend o use t7\n}"} {
		if err := c.loadWith(chain(n), site); err != nil {
			t.Errorf("eight in a chain: %v", err)
		}
		c.eventually("the new config serves", func() bool { return c.do("GET", "/x", "").status == http.StatusNotFound }) // a late request to the old one is 503
	}
	t.Setenv("STORAGE_MUX_TREE_8", "t8")
	for n, site := range map[int]string{9: `respond "never"`, 8: "storage_mux {\n backend o use t8\n}"} {
		late := strings.ReplaceAll(chain(n), "use t8", "use {env.STORAGE_MUX_TREE_8}")
		for _, options := range []string{chain(n), late} {
			err := c.loadWith(options, strings.ReplaceAll(site, "use t8", "use {env.STORAGE_MUX_TREE_8}"))
			if err == nil || !strings.Contains(err.Error(), "STORAGE_MUX.RECURSION_DEPTH_EXCEEDED") {
				t.Errorf("nine in a chain: %v", err)
			}
		}
	}
	nested := strings.Repeat("backend n mux {\n", 7) + "backend x use t1\n" + strings.Repeat("}\n", 7)
	if err := c.loadWith(chain(1), "storage_mux {\n"+nested+"}"); err == nil || !strings.Contains(err.Error(), "RECURSION_DEPTH_EXCEEDED") {
		t.Errorf("nine in a chain of nested ones: %v", err)
	}
}

func TestUseOfAnUnknownTreeIsALoadError(t *testing.T) {
	c := run(t, `respond "first"`)
	err := c.loadWith("storage_mux site {\n backend x use missing\n}", `respond "second"`)
	if err == nil || !strings.Contains(err.Error(), `unknown storage tree "missing", known are site`) {
		t.Errorf("loading: %v", err)
	}
}

func TestATreeCanBeUsedAtRunTime(t *testing.T) {
	c := runWith(t, "storage_mux a memory:\nstorage_mux b {\n backend a use a\n}\nstorage_mux c memory:", "storage_mux {\n use c\n}")
	add := func(tree, config string) (int, string) {
		return adminCall(t, http.MethodPost, "/storage_mux/"+tree+"/backends", config)
	}
	if status, body := add("c", `{"name":"more","type":"use","tree":"b"}`); status != http.StatusOK || !strings.Contains(body, `"more"`) {
		t.Fatalf("adding = %d %s", status, body)
	}
	for tree, config := range map[string]string{"a": `{"name":"x","type":"use","tree":"c"}`, "b": `{"name":"x","type":"use","tree":"b"}`} {
		if status, body := add(tree, config); status != http.StatusBadRequest || !strings.Contains(body, "a cycle: "+tree+" -> ") || !strings.Contains(body, "-> "+tree) {
			t.Errorf("a cycle by %s: %d %s", tree, status, body)
		}
	}
	if status, body := add("c", `{"name":"x","type":"use","tree":"missing"}`); status != http.StatusBadRequest || !strings.Contains(body, "unknown storage tree") {
		t.Errorf("an unknown tree: %d %s", status, body)
	}
	if status, body := add("c", `{"name":"x","type":"memory","locks":true}`); status != http.StatusBadRequest || !strings.Contains(body, "cannot change at run time") {
		t.Errorf("locks at run time: %d %s", status, body)
	}
	if status, body := adminCall(t, http.MethodDelete, "/storage_mux/c/backends/more", ""); status != http.StatusOK {
		t.Errorf("removing = %d %s", status, body)
	}
	if status, body := add("a", `{"name":"x","type":"use","tree":"c"}`); status != http.StatusOK {
		t.Errorf("without the other way there is no cycle: %d %s", status, body)
	}
	c.load(`respond "no tree"`)
	c.eventually("no tree is alive", func() bool { return treesAlive() == 0 })
}

// Requests that are late look through the pool of trees while a reload makes new ones. One that was made together with
// those that it uses had them wait for each other for ever.
func TestLateRequestsAndTreesThatUseOthersDoNotWaitForEachOther(t *testing.T) {
	c := run(t, `respond "first"`)
	stop, looked := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		defer func() { looked <- n }()
		for ; ; n++ {
			select {
			case <-stop:
				return
			default:
				if found := newest("nobody"); found != nil {
					found.release()
				}
			}
		}
	}()
	for i := range 20 {
		options := fmt.Sprintf("storage_mux inner memory: {\n cooldown %ds\n}\nstorage_mux outer {\n backend x mux {\n  backend y use inner\n }\n}", i+1)
		if err := c.loadWith(options, "storage_mux {\n use outer\n}"); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	if n := <-looked; n == 0 {
		t.Error("nobody has looked")
	}
	if err := c.loadWith("storage_mux inner memory:\nstorage_mux outer {\n backend x use inner\n backend bad memory {\n  weight 0\n }\n backend y use missing\n}", `respond "never"`); err == nil {
		t.Error("a tree that uses a missing one loads")
	}
	c.load(`respond "no tree"`)
	c.eventually("no tree is alive", func() bool { return treesAlive() == 0 })
}
