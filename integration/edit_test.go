package integration_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/integration/origin"
	"github.com/suaveplan/caddy-storage-mux/integration/rig"
	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// statsOf is how the tree t stands, backend by backend.
func statsOf(t *testing.T, c *rig.Caddy) map[string]muxcore.BackendStats {
	t.Helper()
	status, answer := c.Admin(http.MethodGet, "/storage_mux/t", "")
	var s muxcore.Stats
	if err := json.Unmarshal([]byte(answer), &s); status != http.StatusOK || err != nil {
		t.Fatalf("GET /storage_mux/t = %d %s: %v", status, answer, err)
	}
	all := make(map[string]muxcore.BackendStats)
	for _, b := range s.Backends {
		all[b.Name] = b
	}
	return all
}

// outage is what is to be the same of a backend that is down, over edits and restarts.
func outage(b muxcore.BackendStats) string {
	if b.NextTrialAt == nil {
		return string(b.Status)
	}
	return fmt.Sprintf("%s since %v until %v after %d failures: %s", b.Status, b.Since.UTC(), b.NextTrialAt.UTC(), b.ConsecutiveFailures, b.Reason)
}

// operate makes calls of the admin API below the tree t that must succeed: method, path and body in turn.
func operate(t *testing.T, c *rig.Caddy, calls ...string) {
	t.Helper()
	for i := 0; i < len(calls); i += 3 {
		if status, answer := c.Admin(calls[i], "/storage_mux/t/"+calls[i+1], calls[i+2]); status != http.StatusOK {
			t.Fatalf("%s %s = %d %s", calls[i], calls[i+1], status, answer)
		}
	}
}

// Under load one backend is edited twenty times. No request fails; of the others, the one that is down is so for the same reason and as
// long, and is never asked; weight, drain and an addition of run time stay; counters go on; nothing of the old trees does.
func TestTwentyEditsUnderLoadLeaveTheOthersAlone(t *testing.T) {
	t.Parallel()
	var origins [5]*origin.Origin
	options := make([]rig.Option, len(origins))
	for i := range origins {
		origins[i] = origin.New(t)
		origins[i].Put("/x", origin.Object{Body: []byte("body")})
		options[i] = rig.Env(fmt.Sprint("F", i), origins[i].URL())
	}
	sick := origins[0]
	sick.Script(origin.Faults{Status: http.StatusInternalServerError})
	site := func(i int, ofSick string) string {
		return fmt.Sprintf(`
			storage_mux weighted {
				name t
				timeout %ds
				cooldown 1h
				journal off
				backend sick http {$F0} {
					weight 1
					%s
				}
				backend edited http {$F1} {
					header X-Edit %d
				}
				backend drained http {$F2}
				backend heavy http {$F3}
			}`, 10+i, ofSick, i)
	}
	c := rig.Start(t, site(0, ""), options...)
	c.Eventually(soon, "the outage", func() error {
		wantStatus(t, "GET", c.Get("/x"), http.StatusOK)
		if s := statsOf(t, c)["sick"]; s.Status != muxcore.StatusDown {
			return errors.New("it is up")
		}
		return nil
	})
	operate(t, c, http.MethodPatch, "backends/heavy", `{"weight":5}`, http.MethodPost, "backends/drained/drain", "",
		http.MethodPost, "backends", fmt.Sprintf(`{"name":"added","type":"http","base_url":%q}`, origins[4].URL()))
	c.Reload(site(1, "")) // whatever is made once is made
	before, goroutines, sockets := statsOf(t, c), c.Goroutines(), c.Descriptors("socket:")

	clients := loadOn(t, c)
	hits := before["heavy"].Hits
	for i := range 20 {
		seen := clients.answered.Load()
		c.Reload(site(i+2, ""))
		after := statsOf(t, c)
		if was, is := outage(before["sick"]), outage(after["sick"]); is != was {
			t.Errorf("edit %d: the outage is\n%s, was\n%s", i, is, was)
		}
		for name, want := range map[string][]muxcore.Change{
			"sick": nil, "edited": nil, "drained": {muxcore.ChangeDrained}, "heavy": {muxcore.ChangeWeight}, "added": {muxcore.ChangeAdded},
		} {
			if b, ok := after[name]; !ok || !slices.Equal(b.Changed, want) {
				t.Errorf("edit %d: %s is changed by %v, want %v", i, name, b.Changed, want)
			}
		}
		if n := after["heavy"].Hits; n < hits || after["heavy"].Weight != 5 {
			t.Errorf("edit %d: heavy has weight %d and %d hits, had 5 and %d", i, after["heavy"].Weight, n, hits)
		}
		hits = after["heavy"].Hits
		clients.goesOn(t, seen)
	}
	clients.stop()
	if n := sick.Hits(); n != 1 {
		t.Errorf("the one that is down was asked %d times, want once", n)
	}
	c.CloseIdle()
	c.Eventually(soon, "the end of the old trees", func() error {
		s := c.Descriptors("socket:")
		n := c.Goroutines() - 2*max(s-sockets, 0) // an idle connection to an origin has two
		if n > goroutines+15 || s > sockets+10 {
			return fmt.Errorf("%d goroutines beside those of %d sockets; before %d and %d", n, s, goroutines, sockets)
		}
		return nil
	})

	// An edit of the one that is down is its cure, as far as Caddy knows.
	sick.Heal()
	c.Reload(site(50, "header X-Edit sick"))
	if s := statsOf(t, c); s["sick"].Status != muxcore.StatusUp || s["sick"].Errors != 0 || s["heavy"].Weight != 5 {
		t.Errorf("after its edit: sick %+v, heavy %+v", s["sick"], s["heavy"])
	}
	c.Eventually(soon, "it being asked", func() error {
		if wantStatus(t, "GET", c.Get("/x"), http.StatusOK); sick.Hits() < 2 {
			return errors.New("it is not")
		}
		return nil
	})
}

// A backend that was down before a kill or a stop is down after it, for the same reason and as long, and is not asked. A weight of run time
// is gone. Once it was edited, it is asked.
func TestHealthSurvivesAKillAndAStop(t *testing.T) {
	t.Parallel()
	sick, well := origin.New(t), origin.New(t)
	for _, f := range []*origin.Origin{sick, well} {
		f.Put("/x", origin.Object{Body: []byte("body")})
	}
	sick.Script(origin.Faults{Status: http.StatusInternalServerError})
	dir := t.TempDir()
	journal := filepath.Join(dir, "journal")
	if err := os.Mkdir(journal, 0o700); err != nil {
		t.Fatal(err)
	}
	start := func(ofSick string) *rig.Caddy {
		return rig.Start(t, fmt.Sprintf(`
			storage_mux {
				name t
				cooldown 1h
				journal {$DIR}/journal
				backend sick http {$SICK} {
					%s
				}
				backend well http {$WELL}
			}`, ofSick), rig.InDir(dir), rig.Env("SICK", sick.URL()), rig.Env("WELL", well.URL()))
	}
	c := start("")
	wantStatus(t, "GET", c.Get("/x"), http.StatusOK)
	before := outage(statsOf(t, c)["sick"])
	operate(t, c, http.MethodPatch, "backends/well", `{"weight":5}`)
	c.Eventually(soon, "the file", func() error {
		_, err := os.Stat(filepath.Join(journal, "health.json"))
		return err
	})
	sick.Heal() // nobody knows
	for _, end := range []struct {
		name string
		with func()
	}{{"a kill", func() { c.Kill() }}, {"a stop", func() { c.Stop() }}} {
		end.with()
		c = start("")
		for range 5 {
			wantStatus(t, "GET after "+end.name, c.Get("/x"), http.StatusOK)
		}
		after := statsOf(t, c)
		if is := outage(after["sick"]); is != before {
			t.Errorf("after %s the outage is\n%s, was\n%s", end.name, is, before)
		}
		if n := sick.Hits(); n != 1 || after["well"].Weight != 1 {
			t.Errorf("%s: asked %d times, want once; the weight of the other is %d, want 1", end.name, n, after["well"].Weight)
		}
	}
	c.Stop()
	c = start("header X-Edit 1")
	wantStatus(t, "GET after an edit", c.Get("/x"), http.StatusOK)
	if n := sick.Hits(); n != 2 {
		t.Errorf("after an edit it was asked %d times in all, want twice", n)
	}
	c.Stop()
	if _, err := os.Stat(filepath.Join(journal, "health.json")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("all are up, and the file is there: %v", err)
	}
}
