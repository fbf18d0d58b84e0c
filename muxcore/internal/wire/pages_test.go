package wire

import (
	"context"
	"slices"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// A service that does not go by the prefix had the objects of others listed as this store's.
func TestAListHasNothingFromOutsideItsPrefix(t *testing.T) {
	for name, row := range map[string]struct {
		opts muxcore.ListOptions
		want []string
	}{
		"the store's prefix": {muxcore.ListOptions{}, []string{"a/1", "b"}},
		"a list's own":       {muxcore.ListOptions{Prefix: "a/"}, []string{"a/1"}},
		"rolled up":          {muxcore.ListOptions{Prefix: "a", Delimiter: "/"}, []string{"a/"}},
	} {
		pages := Pages{Prefix: "p/", Page: func(context.Context, *PageQuestion) ([]Listed, bool, error) {
			return []Listed{{Path: "a/0"}, {Path: "o/", Rolled: true}, {Path: "p/a/1"}, {Path: "p/b"}, {Path: "p/c/", Rolled: true}, {Path: "q"}}, false, nil
		}}
		var keys []string
		for e, err := range pages.List(t.Context(), row.opts) {
			if err != nil {
				t.Fatal(err)
			}
			keys = append(keys, e.Key)
		}
		if !slices.Equal(keys, row.want) {
			t.Errorf("List by %s = %q, want %q", name, keys, row.want)
		}
	}
}
