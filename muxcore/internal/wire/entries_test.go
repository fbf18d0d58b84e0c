package wire

import (
	"strings"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// A list of a few megabytes, of entries of three bytes, became hundreds of megabytes.
func TestAnArrayIsReadWithinBounds(t *testing.T) {
	const most = 1000
	for name, row := range map[string]struct {
		text  string
		n     int
		whole bool
	}{
		"an empty one":     {"[]", 0, true},
		"two entries":      {` ["a","b"] `, 2, true},
		"no array":         {`"a"`, 0, false},
		"nothing":          {"", 0, false},
		"one that is cut":  {`["a",`, 1, false},
		"one without end":  {`["a"`, 1, false},
		"too many entries": {"[" + strings.Repeat(`"",`, most) + `""]`, most, false},
		"a large entry":    {`["` + strings.Repeat("a", 2*maxEntry) + `"]`, 0, false},
	} {
		n := 0
		err := eachEntry(strings.NewReader(row.text), most, func(*string) { n++ })
		if n != row.n || (err == nil) != row.whole || (muxcore.CodeOf(err) == muxcore.CodeUnsupported) != (n == most) {
			t.Errorf("%s: %d entries, %v, want %d", name, n, err, row.n)
		}
	}
}
