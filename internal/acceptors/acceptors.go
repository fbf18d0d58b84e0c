// Package acceptors finds the servers of a Caddy that take connections, in a trace of its goroutines. After a reload, those
// of the config before do so for a while, beside the new ones.
package acceptors

import (
	"regexp"
	"strings"
)

// goroutine is the first line of one in a trace.
var goroutine = regexp.MustCompile(`^goroutine (\d+) `)

// In returns the goroutines of a trace in which HTTP servers of Caddy wait for connections, by their numbers.
func In(trace string) map[string]bool {
	found := make(map[string]bool)
	for stack := range strings.SplitSeq(trace, "\n\n") {
		if id := goroutine.FindStringSubmatch(stack); id != nil &&
			strings.Contains(stack, "net/http.(*Server).Serve(") && strings.Contains(stack, "created by github.com/caddyserver/caddy/v2/modules/caddyhttp.(*App).Start") {
			found[id[1]] = true
		}
	}
	return found
}
