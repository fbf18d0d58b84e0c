package caddymux

import (
	"bytes"
	"fmt"
	"html/template"
	"strings"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/breaker"
)

// statusView is what the page shows.
type statusView struct {
	Trees    []treeView
	Breakers []breakerView
}

// Empty tells whether there is nothing to show.
func (v *statusView) Empty() bool { return len(v.Trees)+len(v.Breakers) == 0 }

type treeView struct {
	Name, Mode                          string
	Calls, Failovers, Partials, Resumes uint64
	Rows                                []backendView
}

// stateView is a state as a word in a colour.
type stateView struct{ Word, Tone string }

// The tones of the style sheet.
const (
	toneUp   = "up"
	toneDown = "down"
	toneWait = "wait"
)

type backendView struct {
	Twig, Name, Mode     string
	State                stateView
	Why                  string
	Share, ShareWidth    string
	Spark                string // points of a polyline in a box of sparkWidth and sparkHeight
	P50, P99             string
	Hits, Misses, Errors uint64
	InFlight             int64
	Pending              string
	Gone                 bool // there is nothing to count
}

type breakerView struct {
	Path, Registry      string
	State               stateView
	Why                 string
	Recent              []outcomeView
	Failures, Successes int
	Refused, Opened     uint64
}

type outcomeView struct{ Tone, Title string }

// viewTree is a tree as drawn at a time.
func viewTree(name string, s *muxcore.Stats, now time.Time) treeView {
	t := treeView{
		Name: name, Mode: string(s.Mode), Calls: s.TotalCalls, Failovers: s.TotalFailovers, Partials: s.TotalFanoutPartials, Resumes: s.TotalResumes,
	}
	t.grow(s, "", now)
	return t
}

// grow adds a row for each backend below the twigs that lead to them.
func (t *treeView) grow(s *muxcore.Stats, twigs string, now time.Time) {
	var all uint64
	for i := range s.Backends {
		all += s.Backends[i].Hits
	}
	for i := range s.Backends {
		b := &s.Backends[i]
		twig, below := "├─ ", "│  "
		if i == len(s.Backends)-1 && len(s.Removed) == 0 {
			twig, below = "└─ ", "   "
		}
		row := viewBackend(b, all, now)
		row.Twig = twigs + twig
		t.Rows = append(t.Rows, row)
		if b.Mux != nil {
			t.Rows[len(t.Rows)-1].Mode = string(b.Mux.Mode)
			t.grow(b.Mux, twigs+below, now)
		}
	}
	for i, name := range s.Removed {
		twig := "├─ "
		if i == len(s.Removed)-1 {
			twig = "└─ "
		}
		t.Rows = append(t.Rows, backendView{Twig: twigs + twig, Name: name, State: stateView{"removed", toneWait}, Why: "at run time", Gone: true})
	}
}

func viewBackend(b *muxcore.BackendStats, all uint64, now time.Time) backendView {
	share := 0.0
	if all > 0 {
		share = float64(b.Hits) / float64(all)
	}
	v := backendView{
		Name: b.Name, State: stateOf(b), Why: whyOf(b, now),
		Share: fmt.Sprintf("%.0f %%", share*100), ShareWidth: fmt.Sprintf("%.1f", share*60), Spark: spark(b.RecentLatencyMs),
		P50: latencyText(b.P50LatencyMs), P99: latencyText(b.P99LatencyMs), Hits: b.Hits, Misses: b.Misses, Errors: b.Errors,
		InFlight: b.InFlightCount, Pending: fmt.Sprint(b.PendingRepairs),
	}
	if b.FullRepairNeeded {
		v.Pending += ", all to be compared"
	}
	return v
}

func stateOf(b *muxcore.BackendStats) stateView {
	switch {
	case b.Status == muxcore.StatusUp && b.WritesDown:
		return stateView{"up, writes down", toneWait}
	case b.Status == muxcore.StatusUp && b.Reason != "":
		return stateView{"up, denied", toneWait}
	case b.Status == muxcore.StatusUp:
		return stateView{"up", toneUp}
	case b.Status == muxcore.StatusDraining:
		return stateView{"draining", toneWait}
	case b.Reason == "drained":
		return stateView{"drained", toneWait}
	}
	return stateView{"down", toneDown}
}

// whyOf says why a backend is as it is, since when, and what comes next.
func whyOf(b *muxcore.BackendStats, now time.Time) string {
	var parts []string
	if b.Reason != "" && b.Reason != "drained" && b.Reason != "draining" {
		parts = append(parts, b.Reason)
	}
	if b.RepairError != "" {
		parts = append(parts, "cannot be given what it missed: "+b.RepairError)
	}
	if !b.Since.IsZero() && b.Status != muxcore.StatusUp {
		parts = append(parts, "for "+age(now.Sub(b.Since)))
	}
	if b.NextTrialAt != nil {
		parts = append(parts, "next trial "+until(b.NextTrialAt.Sub(now)))
	}
	for _, change := range b.Changed { // a drain is the state
		switch change {
		case muxcore.ChangeAdded:
			parts = append(parts, "added at run time")
		case muxcore.ChangeWeight:
			parts = append(parts, fmt.Sprintf("weight %d set at run time", b.Weight))
		case muxcore.ChangeDrained:
		}
	}
	return strings.Join(parts, "; ")
}

func viewBreaker(s *breaker.Snapshot, now time.Time) breakerView {
	v := breakerView{
		Path: s.PathID, Registry: s.Registry, Failures: s.Failures, Successes: s.Successes, Refused: s.RejectedTotal, Opened: s.OpenedTotal,
	}
	v.State.Word = fmt.Sprint(s.State)
	switch s.State {
	case breaker.Closed:
		v.State.Tone = toneUp
	case breaker.Open:
		v.State.Tone = toneDown
	default:
		v.State.Tone = toneWait
	}
	var parts []string
	if s.Reason != "" {
		parts = append(parts, s.Reason)
	}
	if s.State != breaker.Closed && !s.Since.IsZero() {
		parts = append(parts, "for "+age(now.Sub(s.Since)))
	}
	if s.NextTrialAt != nil {
		parts = append(parts, "next trial "+until(s.NextTrialAt.Sub(now)))
	}
	v.Why = strings.Join(parts, "; ")
	for _, r := range s.Recent {
		o := outcomeView{Title: r.Outcome.String()}
		switch r.Outcome {
		case breaker.Success:
			o.Tone = toneUp
		case breaker.Failure:
			o.Tone = toneDown
		default:
			o.Tone = toneWait
		}
		if r.Cause != "" {
			o.Title += ": " + r.Cause
		}
		v.Recent = append(v.Recent, o)
	}
	return v
}

// age is a time span in its largest units.
func age(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(max(d, 0).Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}

func until(d time.Duration) string {
	if d <= 0 {
		return "is due"
	}
	return "in " + age(d+time.Second-1)
}

func latencyText(ms float64) string {
	switch {
	case ms <= 0:
		return "–"
	case ms < 10:
		return fmt.Sprintf("%.2f ms", ms)
	case ms < 1000:
		return fmt.Sprintf("%.0f ms", ms)
	}
	return fmt.Sprintf("%.1f s", ms/1000)
}

const (
	sparkWidth  = 96.0
	sparkHeight = 20.0
)

// spark is a line through values, the largest at the top.
func spark(values []float64) string {
	if len(values) < 2 {
		return ""
	}
	most := 0.0
	for _, v := range values {
		most = max(most, v)
	}
	var points strings.Builder
	for i, v := range values {
		y := sparkHeight - 1
		if most > 0 {
			y -= v / most * (sparkHeight - 2)
		}
		fmt.Fprintf(&points, "%.1f,%.1f ", float64(i)*sparkWidth/float64(len(values)-1), y)
	}
	return strings.TrimSpace(points.String())
}

// oneLineHTML joins lines, as an event is one.
var oneLineHTML = strings.NewReplacer("\n", "", "\r", "")

// html renders what changes of the page, on one line.
func (v *statusView) html() (template.HTML, error) {
	var out bytes.Buffer
	if err := statusMain.Execute(&out, v); err != nil {
		return "", err
	}
	return template.HTML(oneLineHTML.Replace(strings.TrimSpace(out.String()))), nil //nolint:gosec // the template has escaped it
}
