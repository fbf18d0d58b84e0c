//go:build !linux

package origin

import "testing"

// DeadEnd needs a listener whose queue can be filled, which only Linux has.
func DeadEnd(tb testing.TB) string {
	tb.Helper()
	tb.Skip("no unanswering address can be made on this system")
	return ""
}
