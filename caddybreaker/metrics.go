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

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	for _, r := range c.app.allRegistries() {
		states := make(map[string]float64)
		for _, g := range r.guards() {
			states[g.label] = max(states[g.label], severity[g.entry.breaker.State()])
		}
		for label, l := range r.ledgers() {
			send(ch, r.name, label, states[label], l.sum())
		}
	}
}

func send(ch chan<- prometheus.Metric, registry, label string, state float64, t totals) {
	counter := func(desc *prometheus.Desc, n uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n), labels...)
	}
	ch <- prometheus.MustNewConstMetric(stateDesc, prometheus.GaugeValue, state, registry, label)
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
