package integration_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/suaveplan/caddy-storage-mux/integration/origin"
	"github.com/suaveplan/caddy-storage-mux/integration/rig"
)

// pathView is a path as the admin API shows it.
type pathView struct {
	PathID           string `json:"path_id"`
	Registry         string
	State            string
	Since            time.Time
	Reason           string
	Failures         int
	Successes        int
	HalfOpenInFlight int        `json:"half_open_in_flight"`
	NextTrialAt      *time.Time `json:"next_trial_at"`
	RejectedTotal    int        `json:"rejected_total"`
	OpenedTotal      int        `json:"opened_total"`
	Recent           []struct{ Outcome, Cause string }
	Options          map[string]any
}

// pathViews returns what the admin API shows of all paths.
func pathViews(t *testing.T, c *rig.Caddy) []pathView {
	t.Helper()
	status, body := c.Admin(http.MethodGet, "/relay_breaker", "")
	var all []pathView
	if err := json.Unmarshal([]byte(body), &all); status != http.StatusOK || err != nil {
		t.Fatalf("GET /relay_breaker = %d %v: %s", status, err, body)
	}
	return all
}

// pathTo returns what the admin API shows of the one path to an origin.
func pathTo(t *testing.T, c *rig.Caddy, f *origin.Origin) pathView {
	t.Helper()
	var found []pathView
	for _, v := range pathViews(t, c) {
		if strings.HasSuffix(v.PathID, "→"+f.Addr()) {
			found = append(found, v)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d paths to the origin, want 1: %+v", len(found), found)
	}
	return found[0]
}

// becomes waits, without any traffic, until the path to an origin is in a state.
func becomes(t *testing.T, c *rig.Caddy, f *origin.Origin, state string) pathView {
	t.Helper()
	var v pathView
	c.Eventually(soon, "the path's being "+state, func() error {
		if v = pathTo(t, c, f); v.State != state {
			return fmt.Errorf("it is %s: %s", v.State, v.Reason)
		}
		return nil
	})
	return v
}

// failuresIn counts the failures that a path remembers.
func failuresIn(v pathView) int {
	n := 0
	for _, r := range v.Recent {
		if r.Outcome == "failure" {
			n++
		}
	}
	return n
}

// atOnce sends n requests for /x at a time, and returns how often each status came.
func atOnce(c *rig.Caddy, n int) map[int]int {
	ctx, cancel := context.WithTimeout(context.Background(), rig.AnswerWithin)
	defer cancel()
	return tally(asking(ctx, c, n), n)
}

// asking sends n requests for /x at a time, whose clients leave when ctx ends, and
// returns their statuses as they come; 0 stands for no answer.
func asking(ctx context.Context, c *rig.Caddy, n int) (answers chan int) {
	answers = make(chan int, n)
	for range n {
		go func() {
			resp, err := c.Open(ctx, rig.Request{Path: "/x"})
			if err != nil {
				answers <- 0
				return
			}
			defer resp.Body.Close()
			_, _ = io.Copy(io.Discard, resp.Body)
			answers <- resp.StatusCode
		}()
	}
	return answers
}

// tally counts the statuses of the next n answers.
func tally(answers <-chan int, n int) map[int]int {
	count := make(map[int]int)
	for range n {
		count[<-answers]++
	}
	return count
}

// hits waits until n requests have reached an origin.
func hits(c *rig.Caddy, f *origin.Origin, n int) {
	c.Eventually(soon, fmt.Sprintf("%d requests at the origin", n), func() error {
		if got := f.Hits(); got != n {
			return fmt.Errorf("%d", got)
		}
		return nil
	})
}
