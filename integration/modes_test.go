package integration_test

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/suaveplan/caddy-storage-mux/integration/origin"
	"github.com/suaveplan/caddy-storage-mux/integration/rig"
)

// group is a Caddy with a tree "t" of one mode over three origins, f1 to f3, that hold the same object at /x.
type group struct {
	*rig.Caddy
	origins []*origin.Origin
	config  string
}

func newGroup(t *testing.T, mode, options string, body []byte, backends ...string) *group {
	t.Helper()
	g := &group{}
	lines := ""
	var env []rig.Option
	for i := range 3 {
		f := origin.New(t)
		f.Put("/x", origin.Object{Body: body})
		g.origins = append(g.origins, f)
		name := fmt.Sprintf("F%d", i+1)
		env = append(env, rig.Env(name, f.URL()))
		block := ""
		if i < len(backends) {
			block = " {\n" + backends[i] + "\n}"
		}
		lines += fmt.Sprintf("backend %s http {$%s}%s\n", strings.ToLower(name), name, block)
	}
	g.config = "header >X-Backend {http.storage_mux.backend}\nstorage_mux " + mode + " {\nname t\nwritable\nlist\n" + options + "\n" + lines + "}"
	g.Caddy = rig.Start(t, g.config, env...)
	return g
}

// answers counts who answers n reads of a path; anything but the body is an error.
func (g *group) answers(t *testing.T, n int, path string, body []byte) map[string]int {
	t.Helper()
	got := make(map[string]int)
	for range n {
		r := g.Get(path)
		wantBody(t, "GET "+path, r, http.StatusOK, body)
		got[r.Header.Get("X-Backend")]++
	}
	return got
}

var modes = []string{"failover", "round_robin", "weighted", "sticky_by_key", "shield", "mirror"}

// weightsOf gives the backends weights where the mode wants them.
func weightsOf(mode string) []string {
	if mode == "weighted" {
		return []string{"weight 1", "weight 2", "weight 3"}
	}
	return nil
}

// In every mode, with every subset of the origins dead, there is an answer while one is well, and a 503 with Retry-After
// when none is; no answer is ever empty (case 32).
func TestCase032EveryModeWithEverySubsetDown(t *testing.T) {
	t.Parallel()
	body := someBytes(10_000)
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			g := newGroup(t, mode, "timeout 20s\ncooldown 50ms 100ms", body, weightsOf(mode)...)
			for down := range 8 {
				for i, f := range g.origins {
					if f.Heal(); down&(1<<i) != 0 {
						f.Refuse()
					}
				}
				if down != 7 {
					g.Eventually(soon, "an answer", func() error {
						if r := g.Get("/x"); r.Status != http.StatusOK {
							return fmt.Errorf("%d", r.Status)
						}
						return nil
					})
					g.answers(t, 20, "/x", body)
					continue
				}
				for range 20 {
					r := g.Get("/x")
					if r.Status != http.StatusServiceUnavailable || r.Header.Get("Retry-After") == "" {
						t.Fatalf("all down = %d, Retry-After %q", r.Status, r.Header.Get("Retry-After"))
					}
				}
			}
		})
	}
}

func TestTheModesChooseAsTheySay(t *testing.T) {
	t.Parallel()
	body := []byte("body")
	t.Run("round_robin takes turns", func(t *testing.T) {
		t.Parallel()
		g := newGroup(t, "round_robin", "", body, "", "weight 0")
		if got := g.answers(t, 30, "/x", body); got["f1"] != 15 || got["f3"] != 15 {
			t.Errorf("answers = %v", got)
		}
	})
	t.Run("weighted draws by weight, and follows a change of it", func(t *testing.T) {
		t.Parallel()
		g := newGroup(t, "weighted", "", body, weightsOf("weighted")...)
		shares(t, g.answers(t, 1200, "/x", body), 1, 2, 3)
		if status, answer := g.Admin("PATCH", "/storage_mux/t/backends/f1", `{"weight":7}`); status != http.StatusOK {
			t.Fatalf("PATCH = %d %s", status, answer)
		}
		shares(t, g.answers(t, 1200, "/x", body), 7, 2, 3)
	})
	t.Run("sticky_by_key is fnv1a modulo", func(t *testing.T) {
		t.Parallel()
		g := newGroup(t, "sticky_by_key", "", body)
		for i := range 60 {
			key := fmt.Sprintf("dir/key-%d", i)
			h := fnv.New32a()
			_, _ = h.Write([]byte(key))
			want := fmt.Sprint("f", 1+h.Sum32()%3)
			for _, f := range g.origins {
				f.Put("/"+key, origin.Object{Body: body})
			}
			if got := g.answers(t, 1, "/"+key, body); got[want] != 1 {
				t.Errorf("%s: answered by %v, want %s", key, got, want)
			}
		}
	})
	t.Run("shield asks the origin, and the mirrors in order", func(t *testing.T) {
		t.Parallel()
		g := newGroup(t, "shield", "cooldown 1h", body)
		for i, want := range []string{"f1", "f2", "f3"} {
			if got := g.answers(t, 5, "/x", body); got[want] != 5 {
				t.Errorf("answers = %v, want all from %s", got, want)
			}
			g.origins[i].Refuse()
		}
	})
	t.Run("mirror takes the fastest, and the losers are not to blame", func(t *testing.T) {
		t.Parallel()
		g := newGroup(t, "mirror", "", body)
		g.origins[0].Script(origin.Faults{Delay: time.Minute})
		g.origins[2].Script(origin.Faults{Delay: time.Minute})
		if got := g.answers(t, 5, "/x", body); got["f2"] != 5 {
			t.Errorf("answers = %v", got)
		}
		for _, b := range g.stats(t).Backends {
			if b.Status != "up" || b.Errors != 0 {
				t.Errorf("%+v", b)
			}
		}
	})
}

// shares fails the test unless the answers are within 6 sigma of the weights: within 4, one run of a thousand would fail.
func shares(t *testing.T, got map[string]int, weights ...float64) {
	t.Helper()
	n, sum := 0.0, 0.0
	for i, w := range weights {
		n += float64(got[fmt.Sprint("f", i+1)])
		sum += w
	}
	for i, w := range weights {
		p := w / sum
		if diff := math.Abs(float64(got[fmt.Sprint("f", i+1)]) - n*p); diff > 6*math.Sqrt(n*p*(1-p)) {
			t.Errorf("answers = %v, weights %v", got, weights)
		}
	}
}

// treeStats is what the admin API says of a tree.
type treeStats struct {
	TotalFailovers int `json:"total_failovers"`
	Backends       []struct {
		Name, Status, Reason         string
		Weight, Hits, Misses, Errors int
		WritesDown                   bool `json:"writes_down"`
		InFlight                     int  `json:"in_flight_count"`
	}
}

func (g *group) stats(t *testing.T) treeStats {
	t.Helper()
	status, answer := g.Admin("GET", "/storage_mux/t", "")
	var s treeStats
	if err := json.Unmarshal([]byte(answer), &s); status != http.StatusOK || err != nil {
		t.Fatalf("GET /storage_mux/t = %d %s: %v", status, answer, err)
	}
	return s
}

// The seeds' table of error classes, row by row: what the client sees, who is asked next, and who is blamed.
func TestTheTableOfErrorClasses(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		fault  func(*origin.Origin)
		header []string
		status int
		moves  bool // the next one is asked
		blamed bool
	}{
		{"404", func(f *origin.Origin) { f.Remove("/x") }, nil, 404, false, false},
		{"304", script(origin.Faults{}), []string{"If-None-Match", "*"}, 304, false, false},
		{"412", script(origin.Faults{}), []string{"If-Match", `"other"`}, 412, false, false},
		{"416", script(origin.Faults{}), []string{"Range", "bytes=99999-"}, 416, false, false},
		{"410", script(origin.Faults{Status: 410}), nil, 404, false, false},
		{"another 4xx", script(origin.Faults{Status: 418}), nil, 418, false, false},
		{"401", script(origin.Faults{Status: 401}), nil, 200, true, false},
		{"403", script(origin.Faults{Status: 403}), nil, 200, true, false},
		{"407", script(origin.Faults{Status: 407}), nil, 200, true, false},
		{"408", script(origin.Faults{Status: 408}), nil, 200, true, true},
		{"429", script(origin.Faults{Status: 429}), nil, 200, true, true},
		{"500", script(origin.Faults{Status: 500}), nil, 200, true, true},
		{"503", script(origin.Faults{Status: 503}), nil, 200, true, true},
		{"a timeout", script(origin.Faults{Hang: true}), nil, 200, true, true},
		{"a reset", script(origin.Faults{Drop: true}), nil, 200, true, true},
		{"refused", (*origin.Origin).Refuse, nil, 200, true, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			g := newGroup(t, "failover", "timeout 5s\ncooldown 1h", []byte("a body of some bytes"))
			row.fault(g.origins[0])
			r := g.Get("/x", row.header...)
			if r.Status != row.status {
				t.Errorf("GET = %d %q, want %d", r.Status, r.Body, row.status)
			}
			if moved := g.origins[1].Hits() > 0; moved != row.moves {
				t.Errorf("the next one was asked: %v, want %v", moved, row.moves)
			}
			if s := g.stats(t).Backends[0]; (s.Status == "down") != row.blamed {
				t.Errorf("the first one is %s (%s), blamed is %v", s.Status, s.Reason, row.blamed)
			}
		})
	}
}

// Writes in the modes that fan out: to all, partial where one is down, refused where the origin or the quorum is.
func TestFanOutsOverSockets(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"shield", "mirror"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			g := newGroup(t, mode, "timeout 20s\ncooldown 1ms 1ms", nil)
			for _, size := range []int{0, 10, 300_000} {
				body := someBytes(size)
				g.Eventually(soon, "a whole PUT, after the last cooldown", func() error {
					r := g.Put("/new", string(body))
					if r.Status != 201 && r.Status != 204 || r.Header.Get("Storage-Mux-Partial") != "" {
						return fmt.Errorf("PUT of %d bytes = %d, partial %q", size, r.Status, r.Header.Get("Storage-Mux-Partial"))
					}
					return nil
				})
				for i, f := range g.origins {
					if obj, ok := f.Object("/new"); !ok || rig.Same(obj.Body, body) != nil {
						t.Errorf("origin %d does not hold the %d bytes", i+1, size)
					}
				}
				g.origins[2].Script(origin.Faults{Status: 500})
				if r := g.Put("/new", string(body)); r.Status >= 300 || r.Header.Get("Storage-Mux-Partial") != "f3" {
					t.Errorf("PUT with f3 failing = %d, partial %q", r.Status, r.Header.Get("Storage-Mux-Partial"))
				}
				g.origins[2].Heal()
			}
			g.Eventually(soon, "all taking writes again", func() error {
				if missed := g.Put("/new", "last").Header.Get("Storage-Mux-Partial"); missed != "" {
					return fmt.Errorf("missed by %s", missed)
				}
				return nil
			})
			if r := g.Delete("/new"); r.Status != http.StatusNoContent {
				t.Errorf("DELETE = %d", r.Status)
			}
			for i, f := range g.origins {
				if _, ok := f.Object("/new"); ok {
					t.Errorf("origin %d still holds the object", i+1)
				}
			}
		})
	}
	t.Run("shield without its origin", func(t *testing.T) {
		t.Parallel()
		g := newGroup(t, "shield", "timeout 20s", nil)
		g.origins[0].Refuse()
		for range 2 {
			if r := g.Put("/new", "x"); r.Status != http.StatusServiceUnavailable {
				t.Errorf("PUT = %d, want 503", r.Status)
			}
		}
		for i, f := range g.origins[1:] {
			if _, ok := f.Object("/new"); ok {
				t.Errorf("origin %d has committed without the shield's origin", i+2)
			}
		}
	})
	t.Run("mirror short of its quorum", func(t *testing.T) {
		t.Parallel()
		g := newGroup(t, "mirror", "timeout 20s\nwrite_quorum all", nil)
		g.origins[1].Script(origin.Faults{Status: 500})
		if r := g.Put("/new", "x"); r.Status != http.StatusBadGateway {
			t.Errorf("PUT = %d, want 502", r.Status)
		}
	})
}

// 5,000 random keys, hosts and methods add no metric series (case 95).
func TestCase095RandomRequestsAddNoSeries(t *testing.T) {
	t.Parallel()
	g := newGroup(t, "failover", "", []byte("body"))
	series := func() []string {
		_, text := g.Admin("GET", "/metrics", "")
		var names []string
		for line := range strings.SplitSeq(text, "\n") {
			if name, _, ok := strings.Cut(line, " "); ok && strings.HasPrefix(line, "caddy_storage_mux") {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		return names
	}
	methods := []string{"GET", "HEAD", "PUT", "DELETE", "PATCH", "BREW", "FOO"}
	ask := func(from, to int) {
		var wg sync.WaitGroup
		for worker := range 8 {
			wg.Go(func() {
				for i := from + worker; i < to; i += 8 {
					_, _ = g.Try(rig.Request{Method: methods[i%len(methods)], Path: fmt.Sprintf("/key-%d/%d", i, i), Header: []string{"Host", fmt.Sprintf("h%d.example", i)}})
				}
			})
		}
		wg.Wait()
	}
	ask(0, 200)
	before := series()
	ask(200, 5000)
	if after := series(); !slices.Equal(before, after) {
		t.Errorf("series before: %d, after: %d", len(before), len(after))
	}
	if len(before) == 0 {
		t.Error("no series at all")
	}
}

// Row 36: traffic, reloads, drains and weight changes at once, under the race detector: no read fails while one origin is well and in service.
func TestCase036TrafficReloadsDrainsAndWeights(t *testing.T) {
	t.Parallel()
	body := someBytes(50_000)
	g := newGroup(t, "weighted", "timeout 20s\ncooldown 20ms 100ms", body, weightsOf("weighted")...)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	churn := func(f func(i int)) {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				case <-time.After(20 * time.Millisecond):
					f(i)
				}
			}
		})
	}
	churn(func(i int) { g.Admin("PATCH", "/storage_mux/t/backends/f2", fmt.Sprintf(`{"weight":%d}`, i%4)) })
	churn(func(int) {
		g.Admin("POST", "/storage_mux/t/backends/f3/drain?timeout=50ms", "")
		g.Admin("DELETE", "/storage_mux/t/backends/f3/drain", "")
	})
	churn(func(i int) {
		if i%20 == 0 {
			g.Load(fmt.Sprintf("header X-Config %d\n%s", i, g.config))
		}
	})
	for range 300 {
		r, err := g.Try(rig.Request{Path: "/x"})
		if err != nil { // Caddy itself closes a few fresh connections at a reload
			continue
		}
		wantBody(t, "GET", r, http.StatusOK, body)
	}
	close(stop)
	wg.Wait()
	g.Eventually(soon, "nothing in flight", func() error {
		for _, b := range g.stats(t).Backends {
			if b.InFlight != 0 {
				return fmt.Errorf("%s: %d", b.Name, b.InFlight)
			}
		}
		return nil
	})
}
