package caddymux

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/storetest"
)

// standing is what an operator sees of a mux, in short.
func standing(s *muxcore.Stats) string {
	var all []string
	for i := range s.Backends {
		b := &s.Backends[i]
		one := fmt.Sprintf("%s:%s w%d", b.Name, b.Status, b.Weight)
		for _, change := range b.Changed {
			one += " " + string(change)
		}
		if b.Mux != nil {
			one += " [" + standing(b.Mux) + "]"
		}
		all = append(all, one)
	}
	if len(s.Removed) > 0 {
		all = append(all, fmt.Sprintf("without %v", s.Removed))
	}
	return strings.Join(all, ", ")
}

// change makes calls of the admin API that must succeed: method, path below the tree t, and body in turn.
func change(t *testing.T, calls ...string) {
	t.Helper()
	for i := 0; i < len(calls); i += 3 {
		if status, _ := admin(t, calls[i], adminPath+"/t/"+calls[i+1], calls[i+2]); status != http.StatusOK {
			t.Fatalf("%s %s %s = %d", calls[i], calls[i+1], calls[i+2], status)
		}
	}
}

// wantStanding compares how the tree t stands.
func wantStanding(t *testing.T, want string) treeStats {
	t.Helper()
	_, stats := admin(t, "GET", adminPath+"/t", "")
	if got := standing(&stats.Stats); got != want {
		t.Errorf("the tree is\n%s, want\n%s", got, want)
	}
	return stats
}

// An edit drops what it touches: of a backend its own health, weight and drain, of the list additions and removals.
func TestAnEditDropsWhatItTouches(t *testing.T) {
	const before = "f:down w1, a:up w7 weight, d:down w1 drained, x:down w1 added drained, without [m]"
	for name, row := range map[string]struct{ from, to, want string }{
		"an option of the tree":    {"journal off", "journal off\n timeout 3s", before},
		"the mode":                 {"journal off", "journal off\n mode mirror", before},
		"another backend":          {"a memory", "a memory 1MB", "f:down w1, a:up w1, d:down w1 drained, x:down w1 added drained, without [m]"},
		"the backend that is down": {"f scripted %s", "f scripted %s {\n secret s\n }", "f:up w1, a:up w7 weight, d:down w1 drained, x:down w1 added drained, without [m]"},
		"the drained one":          {"d memory", "d memory {\n read_only\n }", "f:down w1, a:up w7 weight, d:up w1, x:down w1 added drained, without [m]"},
		"the one that was removed": {"m memory", "m memory 1MB", "f:down w1, a:up w7 weight, d:down w1 drained, m:up w1, x:down w1 added drained"},
		"the list: one more":       {"m memory", "m memory\n backend n memory", "f:down w1, a:up w7 weight, d:down w1 drained, m:up w1, n:up w1"},
		"the list: one less":       {"backend a memory", "", "f:down w1, d:down w1 drained, m:up w1"},
		"the list: the order":      {"a memory\n backend d memory", "d memory\n backend a memory", "f:down w1, d:down w1 drained, a:up w7 weight, m:up w1"},
		"the list: a name":         {"a memory", "b memory", "f:down w1, b:up w1, d:down w1 drained, m:up w1"},
		"the mode, to shield":      {"backend f", "mode shield\n backend f", before},
	} {
		t.Run(name, func(t *testing.T) {
			f := scripted(t, t.Name())
			site := "storage_mux {\n name t\n cooldown 1h\n journal off\n on_miss next\n backend f scripted %s\n backend a memory\n backend d memory\n backend m memory\n}"
			c := run(t, fmt.Sprintf(site, t.Name()))
			f.Break(&muxcore.Error{Code: muxcore.CodeUnavailable, Err: fmt.Errorf("of %s", t.Name())})
			c.expect(http.StatusServiceUnavailable, "GET", "/x", "")
			change(t, "PATCH", "backends/a", `{"weight":7}`, "POST", "backends/d/drain", "", "POST", "backends", `{"name":"x","type":"memory"}`,
				"POST", "backends/x/drain", "", "DELETE", "backends/m", "")
			was := wantStanding(t, before).Backends[0]
			c.load(fmt.Sprintf(strings.Replace(site, row.from, row.to, 1), t.Name()))
			is := wantStanding(t, row.want).Backends[0]
			if is.Status == muxcore.StatusDown && (is.Reason != was.Reason || !is.NextTrialAt.Equal(*was.NextTrialAt) || is.Errors != was.Errors) {
				t.Errorf("f is down otherwise than before:\n%+v, was\n%+v", is, was)
			}
			calls := f.AllCalls()
			c.do("GET", "/x", "")
			if asked := f.AllCalls() > calls; asked != strings.HasPrefix(row.want, "f:up") {
				t.Errorf("f was asked: %t", asked)
			}
			c.eventually("one tree is alive", func() bool { return treesAlive() == 1 })
		})
	}
}

// The origin of a shield cannot be removed, nor may another backend become it because the first one was removed before.
func TestARemovalThatTheNewModeForbidsIsUndone(t *testing.T) {
	const site = "storage_mux {\n name t\n mode %s\n backend a memory\n backend b memory\n}"
	c := run(t, fmt.Sprintf(site, "failover"))
	change(t, "DELETE", "backends/a", "", "POST", "backends", `{"name":"x","type":"memory"}`, "PATCH", "backends/b", `{"weight":3}`)
	c.load(fmt.Sprintf(site, "shield"))
	wantStanding(t, "a:up w1, b:up w3 weight")
}

// A quorum of all that are in the config could not be met without those that were removed.
func TestARemovalThatTheNewOptionsForbidIsUndone(t *testing.T) {
	const site = "storage_mux {\n name t\n mode mirror\n%s backend a memory\n backend b memory\n}"
	c := run(t, fmt.Sprintf(site, ""))
	change(t, "DELETE", "backends/a", "")
	c.load(fmt.Sprintf(site, " write_quorum 2\n"))
	wantStanding(t, "a:up w1, b:up w1")
}

// In a nested mux it is the same, and the mux itself goes on where only what is in it was edited.
func TestAnEditInANestedMux(t *testing.T) {
	const before = "eu:up w2 weight [f:down w1, y:up w3 weight, v:up w1 added], us:up w4 added weight [z:down w1 drained], m:up w1 added, without [m]"
	for name, row := range map[string]struct{ from, to, want string }{
		"an option inside": {"eu mux {", "eu mux {\n timeout 3s", before},
		"the mode inside":  {"eu mux {", "eu mux mirror {", strings.Replace(before, "eu:up w2 weight", "eu:up w1", 1)},
		"a backend inside": {"y memory", "y memory 1MB", strings.Replace(before, "y:up w3 weight", "y:up w1", 1)},
		"the list inside":  {"backend y", "backend w memory\n backend y", "eu:up w2 weight [f:down w1, w:up w1, y:up w3 weight], us:up w4 added weight [z:down w1 drained], m:up w1 added, without [m]"},
		"the list outside": {"backend m", "backend n memory\n backend m", "eu:up w2 weight [f:down w1, y:up w3 weight, v:up w1 added], n:up w1, m:up w1"},
	} {
		t.Run(name, func(t *testing.T) {
			f := scripted(t, t.Name())
			site := "storage_mux {\n name t\n cooldown 1h\n backend eu mux {\n cooldown 1h\n journal off\n backend f scripted %s\n backend y memory\n }\n backend m memory\n}"
			c := run(t, fmt.Sprintf(site, t.Name()))
			f.Break(&muxcore.Error{Code: muxcore.CodeUnavailable})
			c.expect(http.StatusNotFound, "GET", "/x", "")
			change(t, "PATCH", "backends/eu", `{"weight":2}`, "PATCH", "backends/eu.y", `{"weight":3}`, "POST", "backends", `{"name":"eu.v","type":"memory"}`,
				"POST", "backends", `{"name":"us","type":"mux","backends":[{"name":"z","type":"memory"}]}`, "PATCH", "backends/us", `{"weight":4}`,
				"POST", "backends/us.z/drain", "", "DELETE", "backends/m", "", "POST", "backends", `{"name":"m","type":"memory","max_size":10}`)
			wantStanding(t, before)
			c.load(fmt.Sprintf(strings.Replace(site, row.from, row.to, 1), t.Name()))
			wantStanding(t, row.want)
			c.load(fmt.Sprintf(strings.Replace(site, row.from, row.to, 1)+"\nheader X-Again 1", t.Name()))
			wantStanding(t, row.want)
		})
	}
}

// A nested mux that is down is asked again once what is in it was edited: that may have been the cure.
func TestANestedMuxThatWasDownIsTriedAfterAnEditInside(t *testing.T) {
	f := scripted(t, "inside")
	const site = "storage_mux {\n name t\n cooldown 1h\n backend eu mux {\n cooldown 1h\n backend f scripted %s\n }\n backend m memory\n}"
	g := scripted(t, "inside too")
	c := run(t, fmt.Sprintf(site, "inside"))
	f.Break(&muxcore.Error{Code: muxcore.CodeUnavailable})
	c.expect(http.StatusNotFound, "GET", "/x", "")
	wantStanding(t, "eu:down w1 [f:down w1], m:up w1")
	c.load(fmt.Sprintf(site, `"inside too"`))
	wantStanding(t, "eu:up w1 [f:up w1], m:up w1")
	c.expect(http.StatusNotFound, "GET", "/x", "")
	if g.AllCalls() == 0 {
		t.Error("it was not asked")
	}
}

// A backend that is added at run time and cannot be made again with the next config is told of, and is no reason to fail.
func TestAnAdditionThatCannotBeMadeAgainIsDropped(t *testing.T) {
	const site = "storage_mux {\n name t\n timeout %dm\n backend a memory\n}"
	c := run(t, fmt.Sprintf(site, 1))
	t.Run("while the script is there", func(t *testing.T) {
		scripted(t, "gone by then")
		change(t, "POST", "backends", `{"name":"x","type":"scripted","script":"gone by then"}`, "POST", "backends", `{"name":"y","type":"memory"}`)
		c.load(fmt.Sprintf(site, 2))
		wantStanding(t, "a:up w1, x:up w1 added, y:up w1 added")
	})
	c.load(fmt.Sprintf(site, 3))
	wantStanding(t, "a:up w1, y:up w1 added")
}

// A tree that was added as a backend at run time is that of the new config afterwards, and the old one is closed.
func TestAnAddedTreeIsThatOfTheNewConfig(t *testing.T) {
	const options = "storage_mux site failover {\n cooldown %dh\n backend m memory\n}"
	const doors = "storage_mux {\n name t\n timeout %dm\n backend a memory\n}"
	c := runWith(t, fmt.Sprintf(options, 1), fmt.Sprintf(doors, 1))
	change(t, "POST", "backends", `{"name":"x","type":"use","tree":"site"}`)
	for i := range 2 {
		if err := c.loadWith(fmt.Sprintf(options, 2+i), fmt.Sprintf(doors, 2+i)); err != nil {
			t.Fatal(err)
		}
		wantStanding(t, "a:up w1, x:up w1 added [m:up w1]")
		c.eventually("two trees are alive", func() bool { return treesAlive() == 2 })
	}
	if err := c.loadWith("", fmt.Sprintf(doors, 9)); err != nil {
		t.Fatal(err)
	}
	wantStanding(t, "a:up w1")
	c.eventually("one tree is alive", func() bool { return treesAlive() == 1 })
}

// A config that fails to load changes nothing in the tree that runs.
func TestAConfigThatFailsTakesNothingAway(t *testing.T) {
	const site = "storage_mux {\n name t\n timeout %dm\n backend a memory\n backend d memory\n}"
	c := run(t, fmt.Sprintf(site, 1))
	change(t, "POST", "backends/d/drain", "", "POST", "backends", `{"name":"x","type":"memory"}`)
	if err := c.tryLoad(fmt.Sprintf(site, 2) + "\nstorage_mux {\n name t\n backend other memory\n}"); err == nil {
		t.Fatal("loaded")
	}
	wantStanding(t, "a:up w1, d:down w1 drained, x:up w1 added")
	change(t, "DELETE", "backends/d/drain", "")
	c.load(fmt.Sprintf(site, 2))
	wantStanding(t, "a:up w1, d:up w1, x:up w1 added")
}

// A drain that is under way when the config is edited goes on in the new tree; if whoever asked for it leaves, the backend is back
// in service there as well.
func TestADrainOverAnEdit(t *testing.T) {
	f := scripted(t, "drains over")
	const site = "storage_mux {\n name t\n timeout %dm\n backend f scripted \"drains over\"\n backend m memory\n}"
	c := run(t, fmt.Sprintf(site, 1))
	f.On(muxcore.OpGet, 1, storetest.Hang())
	requested := make(chan struct{})
	go func() {
		defer close(requested)
		_, _ = c.try("GET", "/x", nil)
	}()
	c.eventually("a request is in flight", func() bool { return f.InFlight() == 1 })
	ctx, leave := context.WithCancel(t.Context())
	drained := make(chan error)
	go func() {
		r := httptest.NewRequestWithContext(ctx, "POST", adminPath+"/t/backends/f/drain", nil)
		drained <- new(adminAPI).serve(httptest.NewRecorder(), r)
	}()
	c.eventually("it is draining", func() bool {
		_, stats := admin(t, "GET", adminPath+"/t", "")
		return names(stats.Stats) == "f:draining m:up"
	})
	c.load(fmt.Sprintf(site, 2))
	_, stats := admin(t, "GET", adminPath+"/t", "")
	first := names(stats.Stats)
	leave()
	if err, ok := errors.AsType[caddy.APIError](<-drained); !ok || err.HTTPStatus != http.StatusGatewayTimeout {
		t.Errorf("the drain = %v", err)
	}
	if first != "f:down m:up" {
		t.Errorf("after the edit: %s", first)
	}
	wantStanding(t, "f:up w1, m:up w1")
	f.Release()
	<-requested
}

// Series go on over an edit, together with what is counted in the old tree while that is in use; those of a backend that is gone end.
func TestMetricsGoOnOverAnEdit(t *testing.T) {
	const site = "storage_mux {\n name t\n timeout %dm\n on_miss next\n backend a memory\n%s}"
	c := run(t, fmt.Sprintf(site, 1, " backend b memory\n"))
	const a, b = "requests_total{backend=a,op=get,outcome=semantic,tree=t}", "requests_total{backend=b,op=get,outcome=semantic,tree=t}"
	c.expect(http.StatusNotFound, "GET", "/x", "")
	c.load(fmt.Sprintf(site, 2, " backend b memory 1MB\n"))
	c.expect(http.StatusNotFound, "GET", "/x", "")
	if got := gathered(t); got[a] != 2 || got[b] != 2 {
		t.Errorf("after an edit: %v and %v, want 2", got[a], got[b])
	}
	c.load(fmt.Sprintf(site, 3, ""))
	c.expect(http.StatusNotFound, "GET", "/x", "")
	got := gathered(t)
	if _, there := got[b]; got[a] != 3 || there {
		t.Errorf("after b was taken out: %v, b is there: %t", got[a], there)
	}
	if _, stats := admin(t, "GET", adminPath+"/t", ""); stats.TotalCalls != 3 || stats.Backends[0].Misses != 3 {
		t.Errorf("%d calls, %d misses of a, want 3", stats.TotalCalls, stats.Backends[0].Misses)
	}
}
