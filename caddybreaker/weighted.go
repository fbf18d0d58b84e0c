package caddybreaker

import (
	"net/http"
	"sync"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
)

// weighted is weighted_round_robin over those upstreams that do not refuse. Its
// weights go by position in the pool, so leaving upstreams out needs a policy
// with their weights left out, too: one for each set, kept for its turn.
type weighted struct {
	weights []int

	mu sync.Mutex

	bySet map[string]*reverseproxy.WeightedRoundRobinSelection
}

// maxSets bounds how many sets are remembered; more than that start their turns
// anew now and then.
const maxSets = 64

func newWeighted(inner *reverseproxy.WeightedRoundRobinSelection) *weighted {
	return &weighted{weights: inner.Weights, bySet: make(map[string]*reverseproxy.WeightedRoundRobinSelection)}
}

func (wt *weighted) choose(pool reverseproxy.UpstreamPool, refusing []bool, r *http.Request, w http.ResponseWriter) *reverseproxy.Upstream {
	ready := make(reverseproxy.UpstreamPool, 0, len(pool))
	weights := make([]int, 0, len(pool))
	set := make([]byte, len(pool))
	for i, up := range pool {
		// Without a weight of its own, an upstream is never chosen: as without us.
		if refusing[i] || i >= len(wt.weights) || wt.weights[i] == 0 || !up.Available() {
			continue
		}
		set[i] = 1
		ready, weights = append(ready, up), append(weights, wt.weights[i])
	}
	if len(ready) == 0 {
		return nil
	}
	return wt.of(string(set), weights).Select(ready, r, w)
}

func (wt *weighted) of(set string, weights []int) *reverseproxy.WeightedRoundRobinSelection {
	wt.mu.Lock()
	defer wt.mu.Unlock()
	if policy, ok := wt.bySet[set]; ok {
		return policy
	}
	if len(wt.bySet) >= maxSets {
		clear(wt.bySet)
	}
	policy := &reverseproxy.WeightedRoundRobinSelection{Weights: weights}
	// It only adds up the weights; a context is not looked at.
	_ = policy.Provision(caddy.Context{})
	wt.bySet[set] = policy
	return policy
}
