package swiftstore_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/internal/swiftfake"
	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// The real Swift answers 202 to one of two PUTs of the same moment, and keeps the other's.
func TestAPutThatIsOvertakenIsSentAgain(t *testing.T) {
	t.Parallel()
	c := swiftfake.New(t, "box")
	s := open(t, settings(c, "box"))
	var left atomic.Int32
	c.Fail(func(r *http.Request) int {
		if r.Method == http.MethodPut && left.Add(-1) >= 0 {
			return http.StatusAccepted
		}
		return 0
	})
	large := strings.Repeat("x", 100_000)
	for _, row := range []struct {
		name, body string
		size       int64
		times      int32
		taken      bool
	}{
		{"once", "body", 4, 1, true},
		{"twice", "body", 4, 2, true},
		{"again and again", "body", 4, 100, false},
		{"a stream, which cannot be sent again", large, -1, 1, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			left.Store(row.times)
			_, err := s.Put(t.Context(), "key", strings.NewReader(row.body), row.size, muxcore.PutOptions{})
			left.Store(0)
			switch {
			case row.taken && err != nil:
				t.Errorf("Put = %v", err)
			case !row.taken && (muxcore.CodeOf(err) != muxcore.CodeUnavailable || muxcore.Classify(t.Context(), err).Counts()):
				t.Errorf("Put = %v, want %s, which is not counted against the cluster", err, muxcore.CodeUnavailable)
			}
			if info, serr := s.Stat(t.Context(), "key", muxcore.Conditions{}); serr != nil || info.Size != 4 {
				t.Errorf("Stat = %+v, %v, want the four bytes of a Put that was taken", info, serr)
			}
		})
	}
}
