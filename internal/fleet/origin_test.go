package fleet

import (
	"context"
	"errors"
	"sync"
	"time"
)

// phase is how all origins are doing.
type phase int

const (
	well phase = iota
	failing
	slow
)

// story is when the phases begin, counted from the start.
type story struct{ fail, slow, recover, end time.Duration }

func (s story) phase(at time.Duration) phase {
	switch {
	case at < s.fail || at >= s.recover:
		return well
	case at < s.slow:
		return failing
	}
	return slow
}

const (
	serviceTime = 5 * time.Millisecond
	failTime    = 2 * time.Millisecond
	slowTime    = 2 * time.Second
	patience    = time.Second // of an origin: what would wait for longer is refused
)

var errRefused = errors.New("503")

// origin serves as many requests a second as it can, all others wait: whether those who asked still want to know or not.
type origin struct {
	story    story
	begin    time.Time
	cost     time.Duration // of one request
	arrivals *histogram

	mu   sync.Mutex
	busy time.Time // until then with what has come
}

// serve answers a request.
func (o *origin) serve(ctx context.Context) error {
	now := time.Now()
	o.arrivals.add(now.Sub(o.begin))
	takes, err := o.admit(now)
	timer := time.NewTimer(takes)
	defer timer.Stop()
	select {
	case <-timer.C:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// admit tells how long the answer takes, and what it is.
func (o *origin) admit(now time.Time) (time.Duration, error) {
	p := o.story.phase(now.Sub(o.begin))
	if p == failing {
		return failTime, errRefused
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.busy.Before(now) {
		o.busy = now
	}
	waits := o.busy.Sub(now)
	if waits > patience {
		return failTime, errRefused
	}
	o.busy = o.busy.Add(o.cost)
	if p == slow {
		return waits + slowTime, nil
	}
	return waits + serviceTime, nil
}

// histogram counts by moments.
type histogram struct {
	step time.Duration

	mu sync.Mutex
	n  []int
}

func (h *histogram) add(at time.Duration) {
	i := int(at / h.step)
	h.mu.Lock()
	defer h.mu.Unlock()
	for len(h.n) <= i {
		h.n = append(h.n, 0)
	}
	h.n[i]++
}

// most is the largest count of width within a time, and sum all of it.
func (h *histogram) most(from, to, width time.Duration) (most, sum int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	steps := int(width / h.step)
	for i := int(from / h.step); i < min(int(to/h.step), len(h.n)); i++ {
		sum += h.n[i]
		n := 0
		for _, one := range h.n[i:min(i+steps, len(h.n))] {
			n += one
		}
		most = max(most, n)
	}
	return most, sum
}

// rates are the counts as so many a second, in steps of width.
func (h *histogram) rates(width time.Duration) []float64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	steps := int(width / h.step)
	var all []float64
	for i := 0; i < len(h.n); i += steps {
		n := 0
		for _, one := range h.n[i:min(i+steps, len(h.n))] {
			n += one
		}
		all = append(all, float64(n)/width.Seconds())
	}
	return all
}
