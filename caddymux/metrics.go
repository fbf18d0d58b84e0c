package caddymux

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// Metrics are counted in the tree, which outlives a config, and collected by every config that uses the tree: so a reload
// changes neither series nor values. Labels come from the config and from closed sets.

// buckets of durations, in seconds.
var buckets = []float64{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30}

var (
	ops      = []muxcore.Op{muxcore.OpGet, muxcore.OpStat, muxcore.OpPut, muxcore.OpDelete, muxcore.OpList}
	causes   = []muxcore.RepairCause{muxcore.CauseRepair, muxcore.CauseRead, muxcore.CauseMissed}
	outcomes = []muxcore.Class{muxcore.ClassOK, muxcore.ClassTransient, muxcore.ClassTimeout, muxcore.ClassSemantic, muxcore.ClassAbort}
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("caddy_storage_mux_"+name, help, labels, nil)
}

var (
	requestsDesc  = desc("requests_total", "Calls to backends, by outcome.", "tree", "backend", "op", "outcome")
	durationDesc  = desc("request_duration_seconds", "Time until a backend answered a call, without the body.", "tree", "backend", "op")
	upDesc        = desc("backend_up", "1 if the backend is up for reads, else 0.", "tree", "backend")
	inFlightDesc  = desc("in_flight", "Operations under way on the backend, open bodies included.", "tree", "backend")
	failoversDesc = desc("failovers_total", "Operations that went on to another backend because one failed.", "tree")
	partialsDesc  = desc("fanout_partials_total", "Writes that missed a backend.", "tree")
	resumesDesc   = desc("resumes_total", "Bodies that went on from another backend in the middle.", "tree")
	pendingDesc   = desc("pending_repairs", "Keys of which the backend lacks the newest state.", "tree", "backend")
	repairsDesc   = desc("repairs_total", "Copies that the backend got, or lost, to be as it should: by a repair, after a read, or because it had missed a write.", "tree", "backend", "cause")
	hedgesDesc    = desc("hedges_total", "Second reads made because the backend took its time.", "tree", "backend")
	hedgeWinsDesc = desc("hedge_wins_total", "Second reads that the backend answered first.", "tree", "backend")
)

// counters are those of one tree. The zero value is ready to use.
type counters struct {
	backends sync.Map // backendID -> *callCounters
}

// backendID tells backends of a tree apart: the dotted name of the mux, as its events have it, and the backend's own.
type backendID struct{ mux, name string }

// callCounters are those of one backend, each updated without a lock.
type callCounters struct {
	tree    string
	backend string              // dotted
	calls   [8][8]atomic.Uint64 // by op and class
	seconds [8]histogram        // by op
	repairs [3]atomic.Uint64    // by cause, in the order of causes
}

// of finds the counters of the backend that an event is about.
func (c *counters) of(e *muxcore.Event) *callCounters {
	id := backendID{e.Tree, e.Name}
	found, ok := c.backends.Load(id)
	if !ok {
		found, _ = c.backends.LoadOrStore(id, newCallCounters(id))
	}
	return found.(*callCounters)
}

// share has the backend go on with what was counted of it in another tree, together with that.
func (c *counters) share(old *counters, id backendID) {
	if found, ok := old.backends.Load(id); ok {
		c.backends.LoadOrStore(id, found)
	}
}

// repaired counts a copy that was set right.
func (c *counters) repaired(e *muxcore.Event) {
	if i := slices.Index(causes, e.Cause); i >= 0 {
		c.of(e).repairs[i].Add(1)
	}
}

// attempt counts a call to a backend.
func (c *counters) attempt(e *muxcore.Event) {
	b := c.of(e)
	op, class := int(e.Op)&7, e.Class
	if class == muxcore.ClassDenied {
		class = muxcore.ClassSemantic // as Class.Outcome has it
	}
	b.calls[op][int(class)&7].Add(1)
	b.seconds[op].observe(e.Took)
}

// newCallCounters splits the dotted name: the tree is what stands before the first dot, which no name contains.
func newCallCounters(id backendID) *callCounters {
	tree, inner, nested := strings.Cut(id.mux, ".")
	backend := id.name
	if nested {
		backend = inner + "." + backend
	}
	return &callCounters{tree: tree, backend: backend}
}

// histogram counts durations. It may be read while it is written: a reader may then see the newest one not yet everywhere.
type histogram struct {
	counts [16]atomic.Uint64 // by bucket, not cumulative; the last one is beyond all
	sum    atomic.Int64      // nanoseconds
}

func (h *histogram) observe(took time.Duration) {
	seconds, i := took.Seconds(), 0
	for i < len(buckets) && seconds > buckets[i] {
		i++
	}
	h.counts[i].Add(1)
	h.sum.Add(int64(took))
}

// read gives the cumulative counts that Prometheus wants.
func (h *histogram) read() (total uint64, sum float64, cumulative map[float64]uint64) {
	cumulative = make(map[float64]uint64, len(buckets))
	for i, bound := range buckets {
		total += h.counts[i].Load()
		cumulative[bound] = total
	}
	total += h.counts[len(buckets)].Load()
	return total, time.Duration(h.sum.Load()).Seconds(), cumulative
}

// collector collects what the trees of one config have counted.
type collector struct{ app *App }

// Describe implements prometheus.Collector.
func (*collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{requestsDesc, durationDesc, upDesc, inFlightDesc, failoversDesc, partialsDesc, resumesDesc, pendingDesc, repairsDesc, hedgesDesc, hedgeWinsDesc} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	for _, t := range c.app.all() {
		t.counters.backends.Range(func(_, value any) bool {
			value.(*callCounters).collect(out)
			return true
		})
		if t = t.peek(); t == nil {
			continue
		}
		stats := t.store.Stats()
		t.release()
		total := totalsOf(&stats)
		out <- prometheus.MustNewConstMetric(failoversDesc, prometheus.CounterValue, float64(total.TotalFailovers), t.name)
		out <- prometheus.MustNewConstMetric(partialsDesc, prometheus.CounterValue, float64(total.TotalFanoutPartials), t.name)
		out <- prometheus.MustNewConstMetric(resumesDesc, prometheus.CounterValue, float64(total.TotalResumes), t.name)
		collectStates(out, t.name, "", &stats)
	}
}

func (b *callCounters) collect(out chan<- prometheus.Metric) {
	for i, cause := range causes {
		if n := b.repairs[i].Load(); n > 0 {
			out <- prometheus.MustNewConstMetric(repairsDesc, prometheus.CounterValue, float64(n), b.tree, b.backend, string(cause))
		}
	}
	for _, op := range ops {
		total, sum, cumulative := b.seconds[op].read()
		if total == 0 {
			continue
		}
		out <- prometheus.MustNewConstHistogram(durationDesc, total, sum, cumulative, b.tree, b.backend, op.String())
		for _, class := range outcomes {
			if n := b.calls[op][class].Load(); n > 0 {
				out <- prometheus.MustNewConstMetric(requestsDesc, prometheus.CounterValue, float64(n), b.tree, b.backend, op.String(), class.Outcome())
			}
		}
	}
}

// totalsOf sums up what a mux and those inside it have counted.
func totalsOf(s *muxcore.Stats) muxcore.Stats {
	sum := *s
	for i := range s.Backends {
		if inner := s.Backends[i].Mux; inner != nil {
			below := totalsOf(inner)
			sum.TotalFailovers += below.TotalFailovers
			sum.TotalFanoutPartials += below.TotalFanoutPartials
			sum.TotalResumes += below.TotalResumes
		}
	}
	return sum
}

// collectStates collects how backends stand now.
func collectStates(out chan<- prometheus.Metric, tree, prefix string, s *muxcore.Stats) {
	for i := range s.Backends {
		b := &s.Backends[i]
		up := 0.0
		if b.Status == muxcore.StatusUp {
			up = 1
		}
		out <- prometheus.MustNewConstMetric(upDesc, prometheus.GaugeValue, up, tree, prefix+b.Name)
		out <- prometheus.MustNewConstMetric(inFlightDesc, prometheus.GaugeValue, float64(b.InFlightCount), tree, prefix+b.Name)
		out <- prometheus.MustNewConstMetric(pendingDesc, prometheus.GaugeValue, float64(b.PendingRepairs), tree, prefix+b.Name)
		out <- prometheus.MustNewConstMetric(hedgesDesc, prometheus.CounterValue, float64(b.Hedges), tree, prefix+b.Name)
		out <- prometheus.MustNewConstMetric(hedgeWinsDesc, prometheus.CounterValue, float64(b.HedgeWins), tree, prefix+b.Name)
		if b.Mux != nil {
			collectStates(out, tree, prefix+b.Name+".", b.Mux)
		}
	}
}

// Interface guards.
var _ prometheus.Collector = (*collector)(nil)
