package breaker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// What the zero value of [ProbeSettings] stands for.
const (
	DefaultProbeInterval = 5 * time.Second
	DefaultProbeTimeout  = 5 * time.Second
)

// ErrNoVerdict is what a probe's check returns when the answer says nothing about
// the path: it is neutral.
var ErrNoVerdict = errors.New("says nothing about the path")

// ProbeSettings describes a [HalfOpenProbe]. The zero value works.
type ProbeSettings struct {
	// Interval is the time between two probes of a path. Default: 5s.
	Interval time.Duration
	// Timeout is the longest a probe may take. Default: 5s.
	Timeout time.Duration
	// OnFailure is told of each failed probe, with CodeProbeFailed. Default: nobody.
	OnFailure func(*Error)
}

// Validate says which setting makes no sense.
func (s ProbeSettings) Validate() error {
	if s.Interval < 0 {
		return fmt.Errorf("probe_interval: must be positive, got %s", s.Interval)
	}
	if s.Timeout < 0 {
		return fmt.Errorf("probe_timeout: must be positive, got %s", s.Timeout)
	}
	return nil
}

// HalfOpenProbe finds out whether a half-open path is well, so that no caller
// has to. It runs only while a path it watches is half-open: the first probe at
// once, then one per interval. Safe for concurrent use.
type HalfOpenProbe struct {
	set   ProbeSettings
	check func(ctx context.Context, path string) error
	wg    sync.WaitGroup

	mu sync.Mutex

	stopped bool
	loops   map[*Breaker]*probeLoop
}

type probeLoop struct {
	cancel context.CancelFunc
	again  bool // it turned half-open once more while the loop was ending
}

// NewHalfOpenProbe returns a probe that calls check. check must respect its
// context; nil means the path is well, ErrNoVerdict that nobody knows.
func NewHalfOpenProbe(check func(ctx context.Context, path string) error, s ProbeSettings) (*HalfOpenProbe, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	s.Interval = or(s.Interval, DefaultProbeInterval)
	s.Timeout = or(s.Timeout, DefaultProbeTimeout)
	return &HalfOpenProbe{set: s, check: check, loops: make(map[*Breaker]*probeLoop)}, nil
}

// Watch probes b whenever it is half-open, until the returned function is
// called or the probe is stopped.
func (p *HalfOpenProbe) Watch(b *Breaker) (unwatch func()) {
	unsubscribe := b.Subscribe(func(c Change) {
		if c.To == HalfOpen {
			p.start(b)
		}
	})
	if b.State() == HalfOpen {
		p.start(b)
	}
	return func() {
		unsubscribe()
		p.mu.Lock()
		defer p.mu.Unlock()
		if l := p.loops[b]; l != nil {
			l.cancel()
			delete(p.loops, b) // a later Watch starts a loop of its own
		}
	}
}

// Stop ends all probing and waits for the probes that are running.
func (p *HalfOpenProbe) Stop() {
	p.mu.Lock()
	p.stopped = true
	for _, l := range p.loops {
		l.cancel()
	}
	p.mu.Unlock()
	p.wg.Wait()
}

func (p *HalfOpenProbe) start(b *Breaker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return
	}
	if l := p.loops[b]; l != nil {
		l.again = true
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := &probeLoop{cancel: cancel}
	p.loops[b] = l
	p.wg.Go(func() { p.run(ctx, b, l) })
}

// run probes b until it is no longer half-open.
func (p *HalfOpenProbe) run(ctx context.Context, b *Breaker, l *probeLoop) {
	defer l.cancel()
	ticker := time.NewTicker(p.set.Interval)
	defer ticker.Stop()
	for {
		for b.State() == HalfOpen && ctx.Err() == nil {
			p.once(ctx, b)
			if b.State() != HalfOpen {
				break
			}
			select {
			case <-ctx.Done():
			case <-ticker.C:
			}
		}
		p.mu.Lock()
		if !l.again || ctx.Err() != nil {
			if p.loops[b] == l {
				delete(p.loops, b)
			}
			p.mu.Unlock()
			return
		}
		l.again = false
		p.mu.Unlock()
		ticker.Reset(p.set.Interval)
	}
}

// once makes one probe, which counts like a trial. No free place: no probe.
func (p *HalfOpenProbe) once(ctx context.Context, b *Breaker) {
	permit, err := b.AllowProbe()
	if err != nil {
		return
	}
	defer permit.Neutral()
	probing, cancel := context.WithTimeout(ctx, p.set.Timeout)
	defer cancel()
	err = p.check(probing, b.Path())
	switch {
	case err == nil:
		permit.Success()
	case ctx.Err() != nil, errors.Is(err, ErrNoVerdict): // neutral; the first: we are ending
	default:
		failed := &Error{Code: CodeProbeFailed, Path: b.Path(), Err: err}
		permit.Failure(string(CodeProbeFailed) + ": " + err.Error())
		if p.set.OnFailure != nil {
			p.set.OnFailure(failed)
		}
	}
}
