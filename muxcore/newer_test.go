package muxcore_test

import (
	"strings"
	"testing"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// What was uploaded where only whole seconds are kept seems to be older than a file that somebody put there earlier in the same second.
// The upload, which has an identity of ours, wins all the same; a file of a later second does not lose by it. Where both keep finer
// times, those decide.
func TestTheLaterOfTwoCopiesIsTheTruth(t *testing.T) {
	second := time.Unix(1_700_000_000, 0)
	for name, c := range map[string]struct {
		ours, foreign time.Duration // since the second
		want          string
	}{
		"in the same second":          {0, 900 * time.Millisecond, "ours"},
		"as coarse as ours":           {900 * time.Millisecond, 0, "ours"},
		"in a later second":           {0, time.Second, "foreign"},
		"in an earlier one":           {0, -time.Nanosecond, "ours"},
		"later within the second":     {100 * time.Millisecond, 101 * time.Millisecond, "foreign"},
		"earlier within the second":   {100 * time.Millisecond, 99 * time.Millisecond, "ours"},
		"at the same time to a digit": {100 * time.Millisecond, 100 * time.Millisecond, "ours"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, mode := range []muxcore.Mode{muxcore.Failover, muxcore.Mirror} {
				stores := []muxcore.Store{memory(t), memory(t)}
				put := func(i int, body string, opts muxcore.PutOptions) {
					t.Helper()
					if _, err := stores[i].Put(t.Context(), "k", strings.NewReader(body), int64(len(body)), opts); err != nil {
						t.Fatal(err)
					}
				}
				put(0, "ours", muxcore.PutOptions{ETag: `"ours"`, ModTime: second.Add(c.ours)})
				put(1, "foreign", muxcore.PutOptions{ModTime: second.Add(c.foreign)})
				m := newMux(t, muxcore.Settings{Mode: mode}, muxcore.Backend{Name: "a", Store: stores[0]}, muxcore.Backend{Name: "b", Store: stores[1]})
				if _, errs := repair(t, m, muxcore.RepairOptions{}); len(errs) > 0 {
					t.Fatal(errs)
				}
				for i, s := range stores {
					if got := holds(t, s)["k"]; got != c.want {
						t.Errorf("%s: backend %d holds %q, want %q", mode, i, got, c.want)
					}
				}
			}
		})
	}
}
