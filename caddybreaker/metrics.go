package caddybreaker

import (
	"github.com/caddyserver/caddy/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/suaveplan/caddy-storage-mux/muxcore/breaker"
)

// collector answers a scrape from the breakers themselves, so a metric cannot
// say anything else than they do, before and after a reload. Labels come from
// the config: paths first seen in traffic share one.
type collector struct{ app *App }

var (
	stateDesc = prometheus.NewDesc("caddy_relay_breaker_state",
		"State of a path: 0 closed, 1 half-open, 2 open; the worst where a label stands for several.",
		[]string{"registry", "path"}, nil)
	transitionsDesc = prometheus.NewDesc("caddy_relay_breaker_transitions_total",
		"Transitions of a path, by the state they led to.",
		[]string{"registry", "path", "to"}, nil)
	rejectedDesc = prometheus.NewDesc("caddy_relay_breaker_rejected_total",
		"Calls refused.",
		[]string{"registry", "path"}, nil)
	callsDesc = prometheus.NewDesc("caddy_relay_breaker_calls_total",
		"Calls admitted, by outcome.",
		[]string{"registry", "path", "outcome"}, nil)
)

var (
	allStates   = []breaker.State{breaker.Closed, breaker.Open, breaker.HalfOpen}
	allOutcomes = []breaker.Outcome{breaker.Success, breaker.Failure, breaker.Neutral}

	severity = map[breaker.State]float64{breaker.Closed: 0, breaker.HalfOpen: 1, breaker.Open: 2}
)

func registerMetrics(ctx caddy.Context, a *App) error {
	registry := ctx.GetMetricsRegistry()
	if registry == nil {
		return nil // outside a running Caddy
	}
	return registry.Register(collector{app: a})
}

// Describe implements prometheus.Collector.
func (collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- stateDesc
	ch <- transitionsDesc
	ch <- rejectedDesc
	ch <- callsDesc
}

// totals are the numbers of one label.
type totals struct {
	state       float64
	rejected    uint64
	transitions [3]uint64
	calls       [3]uint64
}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	for _, r := range c.app.allRegistries() {
		byLabel := r.retiredTotals()
		for _, g := range r.guards() {
			t := byLabel[g.label]
			if t == nil {
				t = new(totals)
				byLabel[g.label] = t
			}
			t.add(g.entry)
		}
		for label, t := range byLabel {
			t.send(ch, r.name, label)
		}
	}
}

// retiredTotals returns a copy of what paths that were forgotten had counted.
func (r *registry) retiredTotals() map[string]*totals {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make(map[string]*totals, len(r.retired))
	for label, t := range r.retired {
		all[label] = new(*t)
	}
	return all
}

func (t *totals) add(e *entry) {
	t.state = max(t.state, severity[e.breaker.State()])
	t.count(e)
}

// count adds what only ever grows. It delivers no changes, so a lock may be held.
func (t *totals) count(e *entry) {
	t.rejected += e.breaker.Rejected()
	for i := range t.calls {
		t.calls[i] += e.calls[i].Load()
		t.transitions[i] += e.transitions[i].Load()
	}
}

func (t *totals) send(ch chan<- prometheus.Metric, registry, label string) {
	counter := func(desc *prometheus.Desc, n uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n), labels...)
	}
	ch <- prometheus.MustNewConstMetric(stateDesc, prometheus.GaugeValue, t.state, registry, label)
	counter(rejectedDesc, t.rejected, registry, label)
	for _, s := range allStates {
		counter(transitionsDesc, t.transitions[s], registry, label, s.String())
	}
	for _, o := range allOutcomes {
		counter(callsDesc, t.calls[o], registry, label, o.String())
	}
}

// Interface guards.
var _ prometheus.Collector = collector{}
