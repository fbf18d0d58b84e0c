package integration_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/suaveplan/caddy-storage-mux/integration/rig"
	"github.com/suaveplan/caddy-storage-mux/muxcore"
	core "github.com/suaveplan/caddy-storage-mux/muxcore/breaker"
)

// observed is a config in which every metric comes to have a value.
const observed = `
	reverse_proxy /api/* 127.0.0.1:1 {
		lb_policy relay_breaker
		transport relay_breaker {
			failure_threshold 1
		}
	}
	storage_mux mirror {
		name t
		writable
		backend a file {$DIR}/a
		backend b file {$DIR}/b
		backend gone http http://127.0.0.1:1
	}`

// known are the metrics of the plugins in a real Caddy: the names of the labels of each series by its name.
type known map[string][]string

// realMetrics runs a Caddy until all its metrics have a value, and gives the families of our own.
func realMetrics(t *testing.T) map[string]*dto.MetricFamily {
	t.Helper()
	dir := folders(t, "a", "b")
	writeFile(t, dir, "a/one", []byte("only here"))
	c := rig.Start(t, observed, rig.InDir(dir))
	c.Put("/x", "x")
	c.Get("/x")
	for range 2 {
		c.Get("/api/")
	}
	repaired(t, c, "")
	status, text := c.Admin(http.MethodGet, "/metrics", "")
	if status != http.StatusOK {
		t.Fatalf("metrics = %d", status)
	}
	p := expfmt.NewTextParser(model.UTF8Validation)
	all, err := p.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	for name := range all {
		if !strings.HasPrefix(name, "caddy_storage_mux_") && !strings.HasPrefix(name, "caddy_relay_breaker_") {
			delete(all, name)
		}
	}
	return all
}

// seriesOf are the series that Prometheus makes of the families.
func seriesOf(families map[string]*dto.MetricFamily) known {
	all := make(known)
	for name, family := range families {
		var names []string
		for _, pair := range family.GetMetric()[0].GetLabel() {
			names = append(names, pair.GetName())
		}
		if family.GetType() != dto.MetricType_HISTOGRAM {
			all[name] = names
			continue
		}
		all[name+"_count"], all[name+"_sum"] = names, names
		all[name+"_bucket"] = append(slices.Clone(names), "le")
	}
	return all
}

// values are those of labels that are closed sets, by the metric.
func values(metric, label string) (all []string) {
	ofBreaker := strings.HasPrefix(metric, "caddy_relay_breaker_")
	switch {
	case label == "outcome" && ofBreaker:
		for _, o := range []core.Outcome{core.Success, core.Failure, core.Neutral} {
			all = append(all, o.String())
		}
	case label == "outcome":
		for _, c := range []muxcore.Class{muxcore.ClassOK, muxcore.ClassTransient, muxcore.ClassTimeout, muxcore.ClassSemantic, muxcore.ClassAbort} {
			all = append(all, c.Outcome())
		}
	case label == "to":
		for _, s := range []core.State{core.Closed, core.Open, core.HalfOpen} {
			all = append(all, s.String())
		}
	case label == "op":
		for _, op := range []muxcore.Op{muxcore.OpGet, muxcore.OpStat, muxcore.OpPut, muxcore.OpDelete, muxcore.OpList} {
			all = append(all, op.String())
		}
	}
	return all
}

// check parses an expression, as Prometheus does, and says what in it no Caddy has. It returns the names of the series.
func (k known) check(expr string) (used []string, problems []string) {
	tree, err := parser.ParseExpr(expr)
	if err != nil {
		return nil, []string{err.Error()}
	}
	var selectors []*parser.VectorSelector
	var grouping []string
	parser.Inspect(tree, func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.VectorSelector:
			selectors = append(selectors, n)
		case *parser.AggregateExpr:
			grouping = append(grouping, n.Grouping...)
		}
		return nil
	})
	labelsOf := []string{"instance", "job"} // given by the scrape
	for _, s := range selectors {
		used = append(used, s.Name)
		names, ok := k[s.Name]
		if !ok {
			problems = append(problems, fmt.Sprintf("no metric %q", s.Name))
			continue
		}
		labelsOf = append(labelsOf, names...)
		for _, m := range s.LabelMatchers {
			problems = append(problems, k.judge(s.Name, m)...)
		}
	}
	for _, name := range grouping {
		if !slices.Contains(labelsOf, name) {
			problems = append(problems, fmt.Sprintf("no label %q to group by", name))
		}
	}
	return used, problems
}

// judge says what is wrong with a matcher: a label that there is not, or one value in a closed set of others.
func (k known) judge(metric string, m *labels.Matcher) []string {
	if m.Name == model.MetricNameLabel || m.Name == "instance" || m.Name == "job" {
		return nil
	}
	if !slices.Contains(k[metric], m.Name) {
		return []string{fmt.Sprintf("%s has no label %q", metric, m.Name)}
	}
	closed := values(metric, m.Name)
	if len(closed) == 0 {
		return nil
	}
	var problems []string
	for word := range strings.SplitSeq(m.Value, "|") {
		if !slices.Contains(closed, word) {
			problems = append(problems, fmt.Sprintf("%s is never %q in %s", m.Name, word, metric))
		}
	}
	return problems
}

// panel is what of a Grafana panel is checked here.
type panel struct {
	ID      int     `json:"id"`
	Type    string  `json:"type"`
	Title   string  `json:"title"`
	GridPos gridPos `json:"gridPos"`
	Targets []struct {
		Expr   string `json:"expr"`
		Legend string `json:"legendFormat"`
	} `json:"targets"`
}

type gridPos struct{ H, W, X, Y int }

func (a gridPos) overlaps(b gridPos) bool {
	return a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H
}

type dashboard struct {
	UID        string  `json:"uid"`
	Title      string  `json:"title"`
	Panels     []panel `json:"panels"`
	Templating struct {
		List []struct {
			Name       string          `json:"name"`
			Definition string          `json:"definition"`
			Query      json.RawMessage `json:"query"`
		} `json:"list"`
	} `json:"templating"`
}

var (
	dashboardWords  = regexp.MustCompile(`\$\{?(\w+)\}?`)
	labelsOfLegends = regexp.MustCompile(`\{\{(\w+)\}\}`)
)

// Every metric and label of the dashboard is in a real Caddy's metrics, and every metric of ours on the dashboard.
func TestTheDashboardShowsWhatThereIs(t *testing.T) {
	t.Parallel()
	families := realMetrics(t)
	series := seriesOf(families)
	text, err := os.ReadFile("../monitoring/grafana-dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	if err := json.Unmarshal(text, &d); err != nil || d.UID == "" || d.Title == "" {
		t.Fatalf("the dashboard %q %q: %v", d.UID, d.Title, err)
	}
	variables := map[string]bool{"__rate_interval": true}
	for _, v := range d.Templating.List {
		variables[v.Name] = true
		if inner, ok := strings.CutPrefix(v.Definition, "label_values("); ok {
			expr, label, _ := strings.Cut(strings.TrimSuffix(inner, ")"), ", ")
			for name := range strings.SplitSeq(strings.TrimSuffix(strings.TrimPrefix(expr, `{__name__=~"`), `"}`), "|") {
				if names, ok := series[name]; !ok || label != "instance" && !slices.Contains(names, label) {
					t.Errorf("the variable %s asks for %s of %s", v.Name, label, name)
				}
			}
		}
	}
	var used []string
	ids := make(map[int]bool)
	for i, p := range d.Panels {
		if p.ID <= 0 || ids[p.ID] || p.Title == "" {
			t.Errorf("panel %d %q: its id is not one of its own, or it has no title", p.ID, p.Title)
		}
		ids[p.ID] = true
		for _, other := range d.Panels[:i] {
			if p.GridPos.overlaps(other.GridPos) {
				t.Errorf("%q and %q overlap", p.Title, other.Title)
			}
		}
		if (p.Type == "row") != (len(p.Targets) == 0) {
			t.Errorf("%q is a %s with %d queries", p.Title, p.Type, len(p.Targets))
		}
		for _, target := range p.Targets {
			for _, word := range dashboardWords.FindAllStringSubmatch(target.Expr, -1) {
				if !variables[word[1]] {
					t.Errorf("%q asks with the variable %s, which there is not", p.Title, word[1])
				}
			}
			names, problems := series.check(strings.ReplaceAll(target.Expr, "$__rate_interval", "5m"))
			used = append(used, names...)
			for _, problem := range problems {
				t.Errorf("%q: %s: %s", p.Title, problem, target.Expr)
			}
			for _, label := range labelsOfLegends.FindAllStringSubmatch(target.Legend, -1) {
				if !strings.Contains(target.Expr, label[1]) && len(names) > 0 && !slices.Contains(series[names[0]], label[1]) {
					t.Errorf("%q names lines by %s, which they do not have", p.Title, label[1])
				}
			}
		}
	}
	for name := range families {
		if !slices.ContainsFunc(used, func(u string) bool { return u == name || u == name+"_bucket" }) {
			t.Errorf("%s is not on the dashboard", name)
		}
	}
}

// The alert rules are those that Prometheus loads, and ask for what there is.
func TestAlertRulesAskForWhatThereIs(t *testing.T) {
	t.Parallel()
	series := seriesOf(realMetrics(t))
	groups, errs := rulefmt.ParseFile("../monitoring/alerts.yml", false, model.UTF8Validation)
	if len(errs) > 0 {
		t.Fatalf("Prometheus does not take the rules: %v", errs)
	}
	rules := make(map[string]bool)
	for _, group := range groups.Groups {
		for _, rule := range group.Rules {
			rules[rule.Alert] = true
			names, problems := series.check(rule.Expr)
			for _, problem := range problems {
				t.Errorf("%s: %s", rule.Alert, problem)
			}
			for _, field := range []string{"summary", "description"} {
				if rule.Annotations[field] == "" {
					t.Errorf("%s has no %s", rule.Alert, field)
				}
				for _, label := range regexp.MustCompile(`\$labels\.(\w+)`).FindAllStringSubmatch(rule.Annotations[field], -1) {
					if label[1] != "instance" && len(names) > 0 && !slices.Contains(series[names[0]], label[1]) {
						t.Errorf("%s tells of %s, which %s does not have", rule.Alert, label[1], names[0])
					}
				}
			}
		}
	}
	for _, want := range []string{"StorageMuxBackendDown", "StorageMuxTreeDown", "StorageMuxFanoutPartial", "StorageMuxRepairsOld", "StorageMuxRepairsGrowing", "RelayBreakerOpen"} {
		if !rules[want] {
			t.Errorf("there is no rule %s", want)
		}
	}
}

// The check itself finds what is wrong with an expression.
func TestAnExpressionThatAsksForWhatThereIsNotIsFound(t *testing.T) {
	t.Parallel()
	series := known{
		"caddy_storage_mux_requests_total": {"tree", "backend", "op", "outcome"},
		"caddy_storage_mux_backend_up":     {"tree", "backend"},
	}
	for expr, want := range map[string]int{
		`sum by (outcome) (rate(caddy_storage_mux_requests_total{outcome=~"transient|timeout"}[5m]))`: 0,
		`max without (backend) (caddy_storage_mux_backend_up) == 0`:                                   0,
		`caddy_storage_mux_backend_down == 1`:                                                         1,
		`caddy_storage_mux_backend_up{name="a"}`:                                                      1,
		`sum by (op) (caddy_storage_mux_backend_up)`:                                                  1,
		`caddy_storage_mux_requests_total{outcome=~"transient|late"}`:                                 1,
		`caddy_storage_mux_requests_total{outcome=`:                                                   1,
	} {
		if _, problems := series.check(expr); len(problems) != want {
			t.Errorf("check(%s) = %q, want %d problems", expr, problems, want)
		}
	}
}
