package caddybreaker

import (
	"fmt"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig"
)

// The places where options can stand. <- is where one goes, on the fourth line.
var optionPlaces = map[string]string{
	"transport": ":8080 {\nreverse_proxy a:80 {\ntransport relay_breaker {\n<-\n}\n}\n}",
	"handler":   ":8080 {\nroute {\nrelay_breaker p {\n<-\n}\n}\n}",
	"global":    "{\n\nrelay_breaker {\n<-\n}\n}\n:8080\n",
}

var (
	badCounts    = []string{"", "0", "-1", "1.5", "many", "1 2", "99999999999999999999", `""`}
	badDurations = []string{"", "0", "0s", "-1s", "soon", "30", `""`}
	badStatuses  = []string{"", "0", "99", "600", "-500", "6xx", "0xx", "50x", "xx", "5xxx", "+500", "500-599", "many", "500 bad", `""`}
)

// badValues are the values that no option may have, wherever it stands.
var badValues = map[string][]string{
	"failure_threshold":   badCounts,
	"success_threshold":   badCounts,
	"half_open_max_calls": badCounts,
	"max_concurrent":      badCounts,
	"min_available":       badCounts,
	"trial_timeout":       badDurations,
	"slow_call":           badDurations,
	"probe_interval":      badDurations,
	"probe_timeout":       badDurations,
	"failure_status":      badStatuses,
	"ignore_status":       badStatuses,
	"open_duration":       append([]string{"1m 0s", "1m -1s", "1m 30s", "1m soon", "1s 2s 3s"}, badDurations...),
	"failure_ratio": {
		"", "0.5", "0.5 10s", "0.5 10s 20 1", "0 10s 20", "-0.1 10s 20", "1.1 10s 20", "nan 10s 20", "inf 10s 20", "half 10s 20",
		"50% 10s 20", "0.5 0s 20", "0.5 -1s 20", "0.5 soon 20", "0.5 10s 0", "0.5 10s -1", "0.5 10s many",
	},
	"probe_uri":  {"", "x", "//host/x", "http://host/x", "/x y", `""`},
	"probe_only": {"yes", "off"},
}

func TestEveryBadValueIsALoadErrorThatNamesOptionAndLine(t *testing.T) {
	for option := range optionSyntax {
		if len(badValues[option]) == 0 {
			t.Errorf("no bad value of %s is tried", option)
		}
	}
	for place, config := range optionPlaces {
		for option, values := range badValues {
			for _, value := range values {
				line := strings.TrimSpace(option + " " + value)
				_, _, err := caddyconfig.GetAdapter("caddyfile").
					Adapt([]byte(strings.Replace(config, "<-", line, 1)), map[string]any{"filename": "Caddyfile"})
				if err == nil {
					t.Errorf("%s, %q: no error", place, line)
					continue
				}
				for _, want := range []string{option + ":", "at Caddyfile:4"} {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("%s, %q: %v; want %q in it", place, line, err, want)
					}
				}
			}
		}
	}
}

func TestGoodValuesAreTakenWhereverTheyCanWork(t *testing.T) {
	good := map[string]string{
		"failure_threshold":   "1",
		"success_threshold":   "1",
		"half_open_max_calls": "1",
		"max_concurrent":      "1",
		"min_available":       "1",
		"trial_timeout":       "1ms",
		"slow_call":           "1d",
		"probe_interval":      "1ms",
		"probe_timeout":       "1ms",
		"failure_status":      "100 599 5xx 1XX 429",
		"ignore_status":       "404",
		"open_duration":       "1ms 1ms",
		"failure_ratio":       "1 1ms 1",
		"probe_uri":           "/x?a=b",
		"probe_only":          "",
	}
	for place, config := range optionPlaces {
		for option := range optionSyntax {
			line := fmt.Sprint(option, " ", good[option])
			_, _, err := caddyconfig.GetAdapter("caddyfile").
				Adapt([]byte(strings.Replace(config, "<-", line, 1)), map[string]any{"filename": "Caddyfile"})
			if lacks := place == "handler" && handlerLacks[option] != ""; (err == nil) == lacks {
				t.Errorf("%s, %q: %v", place, line, err)
			}
		}
	}
}

func TestTheNearerOfThresholdAndRatioHolds(t *testing.T) {
	ratio := Options{FailureRatio: 0.5, FailureRatioMinCalls: 4}
	threshold := Options{FailureThreshold: 7}
	for name, row := range map[string]struct {
		own, registry Options
		threshold     int
		ratio         float64
	}{
		"a threshold over a ratio": {threshold, ratio, 7, 0},
		"a ratio over a threshold": {ratio, threshold, 0, 0.5},
		"nothing over a ratio":     {Options{}, ratio, 0, 0.5},
		"nothing over a threshold": {Options{}, threshold, 7, 0},
	} {
		def, err := row.own.define(row.registry, false, false)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if def.opts.FailureThreshold != row.threshold || def.opts.FailureRatio != row.ratio {
			t.Errorf("%s: threshold %d and ratio %v, want %d and %v", name, def.opts.FailureThreshold, def.opts.FailureRatio, row.threshold, row.ratio)
		}
	}
}
