package rig

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"sync"
)

// Log collects what a process writes. It is safe for concurrent use.
type Log struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write appends to the log.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// String returns the whole log so far.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// Entry is one line of Caddy's structured log.
type Entry map[string]any

// Str returns a field as text, or "".
func (e Entry) Str(field string) string {
	s, _ := e[field].(string)
	return s
}

// Entries returns the structured lines for which keep returns true.
func (l *Log) Entries(keep func(Entry) bool) []Entry {
	var kept []Entry
	for line := range strings.Lines(l.String()) {
		var e Entry
		if json.Unmarshal([]byte(line), &e) == nil && keep(e) {
			kept = append(kept, e)
		}
	}
	return kept
}

// tail returns the last lines of the log.
func (l *Log) tail(n int) string {
	lines := strings.Split(strings.TrimSpace(l.String()), "\n")
	if len(lines) > n {
		lines = lines[len(lines)-n:]
	}
	return strings.Join(lines, "\n")
}

// ownRace is a data race of Caddy 2.11.9 itself, below handlers of ours, where a client or an upstream ends an upload: what its proxy
// and its access log count of a request's body is read while the body is.
var ownRace = regexp.MustCompile(`(?s)^WARNING: DATA RACE\n *(Read|Write) at [^\n]+\n +` +
	`github.com/caddyserver/caddy/v2/modules/caddyhttp(/reverseproxy\.\(\*bodyNopCloserIfNotRead\)|\.\(\*lengthReader\)|\.\(\*Server\)\.logRequest)`)

// ours tells whether a report of the race detector is of code of ours: unless it is known, or none of ours is on the stack of either access.
func ours(report string) bool {
	accesses, _, _ := strings.Cut(report, ") created at:")
	return strings.Contains(accesses, "github.com/suaveplan/caddy-storage-mux/") && !ownRace.MatchString(report)
}

// raceReports are the reports of the race detector in a log.
var raceReports = regexp.MustCompile(`(?s)WARNING: DATA RACE\n.*?\n=====`)

// trouble returns the first sign of a bug that no test should pass with.
func (l *Log) trouble() string {
	text := raceReports.ReplaceAllStringFunc(l.String(), func(report string) string {
		if ours(report) {
			return report
		}
		return ""
	})
	for _, sign := range []string{"WARNING: DATA RACE", "panic: ", "panic serving", "fatal error: ", "[recovered]"} {
		if at := strings.Index(text, sign); at >= 0 {
			return text[at:min(len(text), at+4000)]
		}
	}
	return ""
}
