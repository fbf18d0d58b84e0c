package fleet

import (
	"flag"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/suaveplan/caddy-storage-mux/internal/svgplot"
	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/breaker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	whole = flag.Bool("fleet", false, "the whole fleet: 200 nodes at 500 requests a second each")
	plots = flag.String("fleet.plots", "", "the folder to draw offered load and errors in")
)

var ofAll = story{fail: time.Second, slow: 4 * time.Second, recover: 6 * time.Second, end: 10 * time.Second}

func fleetSize() size {
	if *whole {
		return size{nodes: 200, rate: 500, origins: 5, room: 1.5}
	}
	return size{nodes: 24, rate: 100, origins: 5, room: 1.5}
}

// lived runs a fleet, and calls look in the bubble before its nodes are closed.
func lived(t *testing.T, build makeNode, look func(r *run)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r, err := live(fleetSize(), ofAll, build)
		if err != nil {
			t.Fatal(err)
		}
		look(r)
		for _, n := range r.nodes {
			n.close()
		}
	})
}

// calm are the bounds on what a fleet may put on its origins.
func calm(t *testing.T, r *run) {
	t.Helper()
	s := fleetSize()
	// What comes when all are back is what was asked for, and no more.
	const window = 100 * time.Millisecond
	usual := s.load() * window.Seconds()
	back, _ := r.offered.most(ofAll.recover, ofAll.end-window, window)
	if noise := 1.25; float64(back) > usual*noise+50 {
		t.Errorf("after the recovery, %d requests came within %v, want %.0f", back, window, usual)
	}
	// While nobody answers, an origin is asked by trials alone: those of all nodes are spread, the longer the more.
	for i, h := range r.arrived {
		first, _ := h.most(ofAll.fail+restMin/2, ofAll.slow, resolution)
		later, all := h.most(ofAll.fail+4*restMin, ofAll.slow, 2*resolution)
		t.Logf("origin %d: at most %d trials within %v; later at most %d within %v, of %d", i, first, resolution, later, 2*resolution, all)
		if later > s.nodes*2/3 {
			t.Errorf("origin %d: %d of %d nodes try it within %v", i, later, s.nodes, 2*resolution)
		}
	}
	// At the end everybody gets what he asks for.
	if n, _ := r.failed.most(ofAll.recover+restMax+deadline, ofAll.end, window); n > 0 {
		t.Errorf("%d requests within %v fail after the recovery", n, window)
	}
}

func TestAFleetOfMuxesComesBackCalmly(t *testing.T) {
	lived(t, newMuxNode, func(r *run) {
		calm(t, r)
		for i, n := range r.nodes {
			stats := n.(*muxNode).mux.Stats()
			hedges := uint64(0)
			for _, b := range stats.Backends {
				hedges += b.Hedges
				if b.Status != muxcore.StatusUp {
					t.Errorf("node %d: %s is stuck: %s", i, b.Name, b.Status)
				}
			}
			if most := uint64(0.05*float64(stats.TotalCalls)) + 10; hedges > most {
				t.Errorf("node %d: %d hedges of %d calls, want %d at most", i, hedges, stats.TotalCalls, most)
			}
		}
		keep("mux", r)
	})
}

func TestAFleetOfBreakersComesBackCalmly(t *testing.T) {
	var mu sync.Mutex
	opened, late := map[*breaker.Breaker]int{}, 0
	build := func(origins []*origin) (node, error) {
		n, err := newBreakerNode(origins)
		if err != nil {
			return nil, err
		}
		begin := time.Now()
		for _, b := range n.(*breakerNode).breakers {
			b.Subscribe(func(c breaker.Change) {
				if c.To != breaker.Open {
					return
				}
				mu.Lock()
				defer mu.Unlock()
				opened[b]++
				if c.At.Sub(begin) > ofAll.recover+deadline {
					late++
				}
			})
		}
		return n, nil
	}
	lived(t, build, func(r *run) {
		calm(t, r)
		for i, n := range r.nodes {
			for _, b := range n.(*breakerNode).breakers {
				if b.State() != breaker.Closed {
					t.Errorf("node %d: %s is stuck %v", i, b.Path(), b.State())
				}
				// At 0.25, 0.5, 1, 2, 2… seconds there is room for six within the five that nobody answers.
				if n := opened[b]; n == 0 || n > 8 {
					t.Errorf("node %d: %s opened %d times", i, b.Path(), n)
				}
			}
		}
		if late > 0 {
			t.Errorf("%d breakers opened when all was well again", late)
		}
		keep("breaker", r)
	})
}

// What the others are held against: the origins get several times what was asked for, and do not come back from it.
func TestAFleetThatJustTriesAgainDoesNotComeBack(t *testing.T) {
	lived(t, newPlainNode, func(r *run) {
		s := fleetSize()
		const window = 100 * time.Millisecond
		back, _ := r.offered.most(ofAll.recover, ofAll.end-window, window)
		if usual := s.load() * window.Seconds(); float64(back) < 2*usual {
			t.Errorf("%d requests within %v, want a multiple of %.0f: there is nothing to compare with", back, window, usual)
		}
		keep("plain retries", r)
	})
}

var kept = map[string]*run{}

// keep takes a run for the plots, and draws them once there are three.
func keep(name string, r *run) {
	if kept[name] = r; *plots == "" || len(kept) < 3 {
		return
	}
	const width = 100 * time.Millisecond
	offered := svgplot.Plot{Title: "Requests that reach five origins of a fleet", Y: "requests a second"}
	errs := svgplot.Plot{Title: "Requests of callers that fail", Y: "errors a second"}
	for _, name := range []string{"plain retries", "mux", "breaker"} {
		offered.Lines = append(offered.Lines, svgplot.Series{Name: name, Values: kept[name].offered.rates(width)})
		errs.Lines = append(errs.Lines, svgplot.Series{Name: name, Values: kept[name].failed.rates(width)})
	}
	for file, p := range map[string]*svgplot.Plot{"fleet-load.svg": &offered, "fleet-errors.svg": &errs} {
		p.X, p.Step = "seconds of virtual time", width.Seconds()
		p.Marks = []svgplot.Mark{{X: ofAll.fail.Seconds(), Name: "all fail"}, {X: ofAll.slow.Seconds(), Name: "all slow"}, {X: ofAll.recover.Seconds(), Name: "all well"}}
		if err := os.WriteFile(filepath.Join(*plots, file), p.SVG(), 0o644); err != nil {
			panic(err)
		}
	}
}
