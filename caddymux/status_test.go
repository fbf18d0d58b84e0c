package caddymux

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/breaker"
)

func TestTheStatusPageDrawsTreesAsTrees(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	due := now.Add(1500 * time.Millisecond)
	stats := muxcore.Stats{Mode: muxcore.Failover, Backends: []muxcore.BackendStats{
		{Name: "a", Status: muxcore.StatusDown, Reason: "<dial>\nrefused", Since: now.Add(-3 * time.Minute), NextTrialAt: &due, Hits: 1},
		{Name: "eu", Status: muxcore.StatusUp, Hits: 3, Mux: &muxcore.Stats{Mode: muxcore.Mirror, Backends: []muxcore.BackendStats{
			{Name: "x", Status: muxcore.StatusDraining, Reason: "draining", Weight: 7, Changed: []muxcore.Change{muxcore.ChangeAdded, muxcore.ChangeWeight, muxcore.ChangeDrained}},
			{Name: "y", Status: muxcore.StatusUp, WritesDown: true, Reason: "disk full", PendingRepairs: 1, RepairError: "too large"},
		}}},
	}, Removed: []string{"us"}}
	stats.Backends[1].Mux.Removed = []string{"v", "w"}
	tree := viewTree("t", &stats, now)
	var got []string
	for _, row := range tree.Rows {
		got = append(got, strings.Join([]string{row.Twig + row.Name, row.Mode, row.State.Word, row.State.Tone, row.Why, row.Share}, " | "))
	}
	want := []string{
		"├─ a |  | down | down | <dial>\nrefused; for 3 min; next trial in 2 s | 25 %",
		"├─ eu | mirror | up | up |  | 75 %",
		"│  ├─ x |  | draining | wait | added at run time; weight 7 set at run time | 0 %",
		"│  ├─ y |  | up, writes down | wait | disk full; cannot be given what it missed: too large | 0 %",
		"│  ├─ v |  | removed | wait | at run time | ",
		"│  └─ w |  | removed | wait | at run time | ",
		"└─ us |  | removed | wait | at run time | ",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	html, err := (&statusView{Trees: []treeView{tree}}).html()
	if err != nil || strings.ContainsAny(string(html), "\r\n") || !strings.Contains(string(html), "&lt;dial&gt;refused") {
		t.Errorf("html = %s, %v, want one line in which reasons are text", html, err)
	}
	if n := strings.Count(string(html), `colspan="9"`); n != 3 {
		t.Errorf("%d rows have nothing to count, want 3:\n%s", n, html)
	}
}

func TestTheStatusPageShowsBreakers(t *testing.T) {
	now := time.Now()
	for state, tone := range map[breaker.State]string{breaker.Closed: toneUp, breaker.Open: toneDown, breaker.HalfOpen: toneWait} {
		v := viewBreaker(&breaker.Snapshot{PathID: "me→you", State: state, Since: now.Add(-time.Minute), Recent: []breaker.Result{
			{Outcome: breaker.Success}, {Outcome: breaker.Failure, Cause: "502"}, {Outcome: breaker.Neutral},
		}}, now)
		if v.State.Tone != tone || (v.Why == "") != (state == breaker.Closed) {
			t.Errorf("%v is shown as %+v: %s", state, v.State, v.Why)
		}
		if diff := cmp.Diff([]outcomeView{{toneUp, "success"}, {toneDown, "failure: 502"}, {toneWait, "neutral"}}, v.Recent); diff != "" {
			t.Errorf("outcomes (-want +got):\n%s", diff)
		}
	}
}

func TestTimesAndLatenciesInWords(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0 s", 59 * time.Second: "59 s", 61 * time.Second: "1 min", 3 * time.Hour: "3 h", 49 * time.Hour: "2 days",
	} {
		if got := age(d); got != want {
			t.Errorf("age(%s) = %q, want %q", d, got, want)
		}
	}
	if got := until(-1) + until(time.Millisecond); got != "is due"+"in 1 s" {
		t.Errorf("until = %q", got)
	}
	for ms, want := range map[float64]string{0: "–", 0.5: "0.50 ms", 12.4: "12 ms", 2500: "2.5 s"} {
		if got := latencyText(ms); got != want {
			t.Errorf("latencyText(%v) = %q, want %q", ms, got, want)
		}
	}
	if got := spark([]float64{0, 2, 1}); got != "0.0,19.0 48.0,1.0 96.0,10.0" {
		t.Errorf("spark = %q", got)
	}
	if got := spark([]float64{0, 0}) + spark([]float64{1}) + spark(nil); got != "0.0,19.0 96.0,19.0" {
		t.Errorf("spark of nothing = %q", got)
	}
}
