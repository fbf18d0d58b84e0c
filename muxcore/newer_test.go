package muxcore_test

import (
	"strings"
	"testing"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// An upload is dated in whole seconds, so that a file which somebody put there earlier in the same second seems to be newer. The upload,
// which has an identity of ours, wins all the same; a file of a later second does not lose by it.
func TestAnUploadIsNoOlderThanAFileOfItsSecond(t *testing.T) {
	second := time.Unix(1_700_000_000, 0)
	for name, c := range map[string]struct {
		foreign time.Time
		want    string
	}{
		"the same second": {second.Add(900 * time.Millisecond), "ours"},
		"a later one":     {second.Add(time.Second), "foreign"},
		"an earlier one":  {second.Add(-time.Nanosecond), "ours"},
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
				put(0, "ours", muxcore.PutOptions{ETag: `"ours"`, ModTime: second})
				put(1, "foreign", muxcore.PutOptions{ModTime: c.foreign})
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
