package fleet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/breaker"
)

const (
	deadline = time.Second // of a request
	timeout  = 250 * time.Millisecond
	restMin  = 250 * time.Millisecond // of an origin that failed
	restMax  = 2 * time.Second
	retries  = 3 // of nodes that just try again
)

// node asks for things.
type node interface {
	ask(ctx context.Context) error
	close()
}

// makeNode makes a node over origins.
type makeNode func(origins []*origin) (node, error)

// muxNode is one with a mux.
type muxNode struct{ mux *muxcore.Mux }

// store is an origin as a backend.
type store struct {
	muxcore.Store
	o *origin
}

func (s store) Waits() muxcore.Waits { return muxcore.WaitsWithContext }

func (s store) Stat(ctx context.Context, key string, _ muxcore.Conditions) (muxcore.Info, error) {
	if err := s.o.serve(ctx); err != nil {
		return muxcore.Info{}, &muxcore.Error{Code: muxcore.CodeUnavailable, Op: muxcore.OpStat, Key: key, Err: err}
	}
	return muxcore.Info{Key: key}, nil
}

func newMuxNode(origins []*origin) (node, error) {
	var backends []muxcore.Backend
	for i, o := range origins {
		backends = append(backends, muxcore.Backend{Name: fmt.Sprint("o", i), Store: store{o: o}})
	}
	m, err := muxcore.New(muxcore.Settings{
		Mode: muxcore.RoundRobin, Timeout: timeout, Deadline: deadline, Cooldown: restMin, MaxCooldown: restMax, Hedge: muxcore.Hedge{After: 50 * time.Millisecond},
	}, backends...)
	return &muxNode{m}, err
}

func (n *muxNode) ask(ctx context.Context) error {
	_, err := n.mux.Stat(ctx, "k", muxcore.Conditions{})
	return err
}

func (n *muxNode) close() { _ = n.mux.Close() }

// breakerNode has a breaker for each origin, and goes to the next that admits it, at most once more after a failure.
type breakerNode struct {
	origins  []*origin
	breakers []*breaker.Breaker
	turn     atomic.Uint64
}

func newBreakerNode(origins []*origin) (node, error) {
	n := &breakerNode{origins: origins}
	for i := range origins {
		b, err := breaker.New(fmt.Sprint("o", i), breaker.Settings{OpenDuration: restMin, OpenDurationMax: restMax, SlowCall: timeout})
		if err != nil {
			return nil, err
		}
		n.breakers = append(n.breakers, b)
	}
	return n, nil
}

func (n *breakerNode) ask(ctx context.Context) error {
	err := errRefused
	first := n.turn.Add(1)
	tries := 0
	for i := range len(n.origins) {
		at := (int(first) + i) % len(n.origins)
		permit, refused := n.breakers[at].TryAllow()
		if refused != nil {
			continue
		}
		call, cancel := context.WithTimeout(ctx, timeout)
		err = n.origins[at].serve(call)
		cancel()
		if err == nil {
			permit.Success()
			return nil
		}
		permit.Failure(err.Error())
		if tries++; tries == 2 {
			break
		}
	}
	return err
}

func (n *breakerNode) close() {
	for _, b := range n.breakers {
		b.Close()
	}
}

// plainNode tries again.
type plainNode struct {
	origins []*origin
	turn    atomic.Uint64
}

func newPlainNode(origins []*origin) (node, error) { return &plainNode{origins: origins}, nil }

func (n *plainNode) ask(ctx context.Context) error {
	var err error
	for range 1 + retries {
		call, cancel := context.WithTimeout(ctx, timeout)
		err = n.origins[int(n.turn.Add(1))%len(n.origins)].serve(call)
		cancel()
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
	return err
}

func (*plainNode) close() {}

// size of a fleet.
type size struct {
	nodes   int
	rate    float64 // requests a second of each
	origins int
	room    float64 // what the origins can serve, as a multiple of all requests
}

func (s size) load() float64 { return float64(s.nodes) * s.rate }

// run is what became of one fleet.
type run struct {
	nodes   []node
	arrived []*histogram // by origin
	offered *histogram   // all of them
	asked   *histogram   // by callers
	failed  *histogram   // of those
}

const resolution = 10 * time.Millisecond

// live runs a fleet through a story, in a bubble. Its nodes are closed afterwards.
func live(s size, what story, build makeNode) (*run, error) {
	r := &run{offered: &histogram{step: resolution}, asked: &histogram{step: resolution}, failed: &histogram{step: resolution}}
	begin := time.Now()
	var origins []*origin
	for range s.origins {
		h := &histogram{step: resolution}
		r.arrived = append(r.arrived, h)
		cost := float64(s.origins) / (s.load() * s.room) * float64(time.Second)
		origins = append(origins, &origin{story: what, begin: begin, cost: time.Duration(cost), arrivals: h})
	}
	for range s.nodes {
		n, err := build(origins)
		if err != nil {
			return nil, err
		}
		r.nodes = append(r.nodes, n)
	}
	var callers, requests sync.WaitGroup
	for i, n := range r.nodes {
		callers.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 1))
			for time.Since(begin) < what.end {
				time.Sleep(time.Duration(random.ExpFloat64() / s.rate * float64(time.Second)))
				requests.Go(func() { r.request(n, begin) })
			}
		})
	}
	callers.Wait()
	requests.Wait()
	r.sum()
	return r, nil
}

// request makes one request of a caller.
func (r *run) request(n node, begin time.Time) {
	at := time.Since(begin)
	r.asked.add(at)
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	if n.ask(ctx) != nil {
		r.failed.add(at)
	}
}

// sum adds up what came to the origins.
func (r *run) sum() {
	for _, h := range r.arrived {
		for i, n := range h.n {
			for len(r.offered.n) <= i {
				r.offered.n = append(r.offered.n, 0)
			}
			r.offered.n[i] += n
		}
	}
}
