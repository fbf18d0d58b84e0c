package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// table gathers the measurements of one object.
type table struct {
	object object
	names  []string
	rounds map[string][]measurement
}

func newTable(o object) *table {
	return &table{object: o, rounds: make(map[string][]measurement)}
}

// add takes one measurement of a site.
func (t *table) add(name string, m measurement) {
	if t.rounds[name] == nil {
		t.names = append(t.names, name)
	}
	t.rounds[name] = append(t.rounds[name], m)
}

// print writes the medians, and each of our sites as a share of its peer.
func (t *table) print(w io.Writer) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintf(tw, "%s\trequests/s\tlow..high\tallocs\tCPU, µs\tshare\n", t.object.name)
	for i, name := range t.names {
		rounds := t.rounds[name]
		perSecond := func(m measurement) float64 { return m.perSecond }
		rate := median(rounds, perSecond)
		low := slices.MinFunc(rounds, func(a, b measurement) int { return int(a.perSecond - b.perSecond) })
		high := slices.MaxFunc(rounds, func(a, b measurement) int { return int(a.perSecond - b.perSecond) })
		share := ""
		if peer, ok := t.peer(i); ok {
			share = fmt.Sprintf("%.2f of %s (CPU %.2f)", rate/median(t.rounds[peer], perSecond), peer, median(rounds, cpuOf)/median(t.rounds[peer], cpuOf))
		}
		_, _ = fmt.Fprintf(tw, "%s\t%.0f\t%.0f..%.0f\t%.1f\t%.1f\t%s\n", name, rate, low.perSecond, high.perSecond,
			median(rounds, func(m measurement) float64 { return m.allocs }), median(rounds, cpuOf), share)
	}
	_, _ = fmt.Fprintln(tw)
	_ = tw.Flush()
}

// peers name, for each of our sites, what Caddy has for the same work.
var peers = map[string]string{
	"storage_mux file":              "file_server",
	"storage_mux memory":            "respond",
	"storage_mux http":              "reverse_proxy",
	"reverse_proxy + relay_breaker": "reverse_proxy",

	"mirror of 3 origins":              "storage_mux http",
	"round_robin of 3 with hedge auto": "storage_mux http",
	"failover, the first one dead":     "storage_mux http",
}

func cpuOf(m measurement) float64 { return m.cpu }

// peer returns the peer of the i-th site, if it was measured.
func (t *table) peer(i int) (string, bool) {
	peer, ok := peers[t.names[i]]
	return peer, ok && t.rounds[peer] != nil
}

// median returns the median of a figure.
func median[T any](rounds []T, figure func(T) float64) float64 {
	values := make([]float64, len(rounds))
	for i, m := range rounds {
		values[i] = figure(m)
	}
	slices.Sort(values)
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}
