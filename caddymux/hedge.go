package caddymux

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// hedgeOf reads the hedge options: off, auto or a delay, and the most extra reads in percent, 0 for the default.
func hedgeOf(word string, percent float64) (muxcore.Hedge, error) {
	h := muxcore.Hedge{Share: percent / 100}
	if percent < 0 || percent > 100 {
		return h, fmt.Errorf("hedge_max_percent: must be above 0 and at most 100, got %v", percent)
	}
	switch word {
	case "", "off":
		return muxcore.Hedge{}, nil
	case "auto":
		h.Auto = true
		return h, nil
	}
	after, err := caddy.ParseDuration(word)
	if err != nil || after <= 0 {
		return h, fmt.Errorf("hedge: must be auto, off, or a duration such as 50ms, got %q", word)
	}
	h.After = after
	return h, nil
}

// parsePercent reads 5 and 5%.
func parsePercent(word string) (float64, error) {
	n, err := strconv.ParseFloat(strings.TrimSuffix(word, "%"), 64)
	if err != nil || !(n > 0 && n <= 100) {
		return 0, fmt.Errorf("hedge: the most extra reads must be above 0%% and at most 100%%, got %q", word)
	}
	return n, nil
}

// hedge reads: hedge <dur>|auto|off [<max-%>].
func (p *muxParser) hedge(d *caddyfile.Dispenser) error {
	if !d.NextArg() {
		return d.ArgErr()
	}
	p.m.Hedge = d.Val()
	if !hasPlaceholder(p.m.Hedge) {
		if _, err := hedgeOf(p.m.Hedge, 0); err != nil {
			return at(d, err)
		}
	}
	if !d.NextArg() {
		return nil
	}
	if p.m.Hedge == "off" {
		return d.Errf("hedge: off makes no extra reads, and takes no share of them, got %q", d.Val())
	}
	percent, err := parsePercent(d.Val())
	p.m.HedgeMaxPercent = percent
	return at(d, err)
}
