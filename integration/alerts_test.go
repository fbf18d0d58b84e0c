package integration_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

// observedFor is how long alerts are looked at, in minutes. Series are scraped, and rules evaluated, once a minute.
const observedFor = 120

// alertCases say when an alert is firing. Series are as in the tests of promtool: 1+2x3 is 1 3 5 7, and _ no sample.
var alertCases = map[string]map[string]struct {
	series string
	want   string // who it fires for, and from which minute to which
}{
	"StorageMuxBackendDown": {
		"down for ten minutes": {`caddy_storage_mux_backend_up{tree="t",backend="a"} 1x9 0x9 1x100`, `{backend="a", tree="t"} 15-19`},
		"down for four":        {`caddy_storage_mux_backend_up{tree="t",backend="a"} 1x9 0x4 1x100`, ``},
		"up now and then":      {`caddy_storage_mux_backend_up{tree="t",backend="a"} 0x4 1 0x4 1 0x4 1x105`, ``},
		"taken out of the tree": {
			`caddy_storage_mux_backend_up{tree="t",backend="a"} 0x9 _x110
			caddy_storage_mux_backend_up{tree="t",backend="b"} 1x120`, `{backend="a", tree="t"} 5-13`, // as long as Prometheus looks back
		},
	},
	"StorageMuxTreeDown": {
		"all down": {
			`caddy_storage_mux_backend_up{tree="t",backend="a"} 1x9 0x20 1x90
			caddy_storage_mux_backend_up{tree="t",backend="b"} 0x40 1x80`, `{tree="t"} 11-30`,
		},
		"one up": {
			`caddy_storage_mux_backend_up{tree="t",backend="a"} 0x120
			caddy_storage_mux_backend_up{tree="t",backend="b"} 1x120`, ``,
		},
		"another tree up": {
			`caddy_storage_mux_backend_up{tree="t",backend="a"} 0x120
			caddy_storage_mux_backend_up{tree="u",backend="a"} 1x120`, `{tree="t"} 1-120`,
		},
		"a nested one has its own word for what is in it": {
			`caddy_storage_mux_backend_up{tree="t",backend="eu"} 0x120
			caddy_storage_mux_backend_up{tree="t",backend="eu.a"} 1x120`, `{tree="t"} 1-120`,
		},
	},
	"StorageMuxBackendErrors": {
		"one in ten fails": {
			`caddy_storage_mux_requests_total{tree="t",backend="a",op="get",outcome="ok"} 0+90x120
			caddy_storage_mux_requests_total{tree="t",backend="a",op="get",outcome="timeout"} 0+5x120
			caddy_storage_mux_requests_total{tree="t",backend="a",op="put",outcome="transient"} 0+5x120`, `{backend="a", tree="t"} 11-120`,
		},
		"one in fifty fails": {
			`caddy_storage_mux_requests_total{tree="t",backend="a",op="get",outcome="ok"} 0+98x120
			caddy_storage_mux_requests_total{tree="t",backend="a",op="get",outcome="transient"} 0+2x120`, ``,
		},
		"half are missing keys": {
			`caddy_storage_mux_requests_total{tree="t",backend="a",op="get",outcome="ok"} 0+50x120
			caddy_storage_mux_requests_total{tree="t",backend="a",op="get",outcome="semantic"} 0+50x120`, ``,
		},
		"nobody asks": {
			`caddy_storage_mux_requests_total{tree="t",backend="a",op="get",outcome="ok"} 7x120
			caddy_storage_mux_requests_total{tree="t",backend="a",op="get",outcome="transient"} 7x120`, ``,
		},
		"all fail for a while": {
			`caddy_storage_mux_requests_total{tree="t",backend="a",op="get",outcome="ok"} 0+10x20 200x100
			caddy_storage_mux_requests_total{tree="t",backend="a",op="get",outcome="transient"} 0x20 0+10x30 300x80`, `{backend="a", tree="t"} 32-54`,
		},
	},
	"StorageMuxFanoutPartial": {
		"one write":  {`caddy_storage_mux_fanout_partials_total{tree="t"} 0x20 1x100`, `{tree="t"} 21-29`},
		"long ago":   {`caddy_storage_mux_fanout_partials_total{tree="t"} 7x120`, ``},
		"a restart":  {`caddy_storage_mux_fanout_partials_total{tree="t"} 7x20 0x100`, ``},
		"other tree": {"caddy_storage_mux_fanout_partials_total{tree=\"t\"} 0x120\ncaddy_storage_mux_fanout_partials_total{tree=\"u\"} 0x20 2x100", `{tree="u"} 21-29`},
	},
	"StorageMuxRepairsOld": {
		"pending for an hour and more": {`caddy_storage_mux_pending_repairs{tree="t",backend="a"} 0x9 3x80 0x40`, `{backend="a", tree="t"} 70-90`},
		"from the first look at it":    {`caddy_storage_mux_pending_repairs{tree="t",backend="a"} 3x50 0x80`, ``},
		"caught up in between":         {`caddy_storage_mux_pending_repairs{tree="t",backend="a"} 3x50 0 3x50 0x20`, ``},
	},
	"StorageMuxRepairsGrowing": {
		"by ten a minute":    {`caddy_storage_mux_pending_repairs{tree="t",backend="a"} 0+10x120`, `{backend="a", tree="t"} 26-120`},
		"many, and no more":  {`caddy_storage_mux_pending_repairs{tree="t",backend="a"} 5000x120`, ``},
		"many, and fewer":    {`caddy_storage_mux_pending_repairs{tree="t",backend="a"} 5000-10x120`, ``},
		"few, and more":      {`caddy_storage_mux_pending_repairs{tree="t",backend="a"} 0+0.5x120`, ``},
		"a peak that passes": {`caddy_storage_mux_pending_repairs{tree="t",backend="a"} 0x9 0+50x10 500-50x10 0x90`, ``},
	},
	"RelayBreakerOpen": {
		"open for ten minutes": {`caddy_relay_breaker_state{registry="default",path="me→a"} 0x9 2x9 0x100`, `{path="me→a", registry="default"} 11-19`},
		"open at one look":     {`caddy_relay_breaker_state{registry="default",path="me→a"} 0x9 2 0x100`, ``},
		"half-open":            {`caddy_relay_breaker_state{registry="default",path="me→a"} 1x120`, ``},
		"tried in between":     {`caddy_relay_breaker_state{registry="default",path="me→a"} 0x9 2 1 2 1 2 0x105`, ``},
	},
	"RelayBreakerFlaps": {
		"every three minutes": {`caddy_relay_breaker_transitions_total{registry="default",path="me→a",to="OPEN"} 0x30 1x2 2x2 3x2 4x2 5x2 6x2 7x70`, `{path="me→a", registry="default", to="OPEN"} 46-65`},
		"every ten minutes":   {`caddy_relay_breaker_transitions_total{registry="default",path="me→a",to="OPEN"} 0x30 1x9 2x9 3x9 4x9 5x60`, ``},
		"it closes":           {`caddy_relay_breaker_transitions_total{registry="default",path="me→a",to="CLOSED"} 0+1x120`, ``},
	},
}

// Each alert fires when it is said to, and not otherwise, by Prometheus's own engine.
func TestAlertsFireWhenTheyAreSaidTo(t *testing.T) {
	t.Parallel()
	groups, errs := rulefmt.ParseFile("../monitoring/alerts.yml", false, model.UTF8Validation)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1 << 20, Timeout: time.Minute, LookbackDelta: 5 * time.Minute})
	defer func() { _ = engine.Close() }()
	tried := 0
	for _, group := range groups.Groups {
		for _, rule := range group.Rules {
			cases := alertCases[rule.Alert]
			fires, quiet := false, false
			for name, c := range cases {
				t.Run(rule.Alert+"/"+name, func(t *testing.T) {
					if got := strings.Join(firing(t, engine, &rule, parseSeries(t, c.series)), "; "); got != c.want {
						t.Errorf("it fires for %q, want %q", got, c.want)
					}
				})
				fires, quiet = fires || c.want != "", quiet || c.want == ""
			}
			if !fires || !quiet {
				t.Errorf("%s has no case in which it fires, or none in which it does not", rule.Alert)
			}
			tried++
		}
	}
	if tried != len(alertCases) {
		t.Errorf("%d alerts, and cases for %d", tried, len(alertCases))
	}
}

// firing evaluates a rule once a minute, and says for whom it fires, and from which minute to which. It is pending for as long as the
// rule says first.
func firing(t *testing.T, engine *promql.Engine, rule *rulefmt.Rule, series storage.Queryable) (spans []string) {
	t.Helper()
	hold := int(time.Duration(rule.For) / time.Minute)
	active, last := make(map[string]int), make(map[string]int) // the first and the last minute of each that is active
	end := func(who string) {
		if from := active[who] + hold; from <= last[who] {
			spans = append(spans, fmt.Sprintf("%s %d-%d", who, from, last[who]))
		}
		delete(active, who)
	}
	for minute := range observedFor + 1 {
		query, err := engine.NewInstantQuery(t.Context(), series, nil, rule.Expr, minuteOf(minute))
		if err != nil {
			t.Fatal(err)
		}
		result := query.Exec(t.Context())
		vector, err := result.Vector()
		if err != nil {
			t.Fatalf("%s: %v", rule.Expr, err)
		}
		for _, sample := range vector {
			who := labels.NewBuilder(sample.Metric).Del(model.MetricNameLabel).Labels().String()
			if _, ok := active[who]; !ok {
				active[who] = minute
			}
			last[who] = minute
		}
		query.Close()
		for who := range active {
			if last[who] != minute || minute == observedFor {
				end(who)
			}
		}
	}
	slices.Sort(spans)
	return spans
}

func minuteOf(minute int) time.Time { return time.Unix(int64(minute)*60, 0) }

// parseSeries makes a store of series as promtool writes them, a line each.
func parseSeries(t *testing.T, text string) storage.Queryable {
	t.Helper()
	var all []storage.Series
	for line := range strings.Lines(text) {
		metric, values, err := parser.ParseSeriesDesc(strings.TrimSpace(line))
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		var samples []chunks.Sample
		for minute, v := range values {
			if !v.Omitted && minute <= observedFor {
				samples = append(samples, scraped{minuteOf(minute).UnixMilli(), v.Value})
			}
		}
		all = append(all, storage.NewListSeries(metric, samples))
	}
	return storage.QueryableFunc(func(_, _ int64) (storage.Querier, error) {
		return &storage.MockQuerier{SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
			set := &chosen{at: -1}
			for _, one := range all {
				if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(one.Labels().Get(m.Name)) }) {
					set.series = append(set.series, one)
				}
			}
			return set
		}}, nil
	})
}

// scraped is a sample.
type scraped struct {
	t int64
	v float64
}

func (s scraped) T() int64                      { return s.t }
func (s scraped) ST() int64                     { return 0 }
func (s scraped) F() float64                    { return s.v }
func (s scraped) H() *histogram.Histogram       { return nil }
func (s scraped) FH() *histogram.FloatHistogram { return nil }
func (s scraped) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s scraped) Copy() chunks.Sample           { return s }

// chosen is a set of series.
type chosen struct {
	series []storage.Series
	at     int
}

func (c *chosen) Next() bool                        { c.at++; return c.at < len(c.series) }
func (c *chosen) At() storage.Series                { return c.series[c.at] }
func (c *chosen) Err() error                        { return nil }
func (c *chosen) Warnings() annotations.Annotations { return nil }
