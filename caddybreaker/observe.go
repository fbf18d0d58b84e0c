package caddybreaker

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyevents"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/suaveplan/caddy-storage-mux/muxcore/breaker"
)

// eventStateChanged is the topic of Caddy's events app for transitions.
const eventStateChanged = "relay-breaker.state.changed"

const (
	// queueLength is how many events may wait for the subscribers.
	queueLength = 256
	// stopPatience is how long a config that ends waits for a subscriber.
	stopPatience = time.Second
)

// announcer tells the events app of transitions. They happen on the path of
// requests, and subscribers may take their time, so those are served by a
// goroutine of their own; and not before every app of the config has started, as
// the events app may be among the last.
type announcer struct {
	logger *zap.Logger
	emit   func(data map[string]any)

	queue   chan map[string]any
	lost    atomic.Uint64 // events for which there was no room
	started chan struct{} // closed when all apps have
	once    sync.Once     // for that
	quit    chan struct{} // closed to end serve
	late    chan struct{} // closed when nobody waits for it any longer
	done    chan struct{} // closed when it has ended
}

func newAnnouncer(logger *zap.Logger, emit func(map[string]any)) *announcer {
	return &announcer{
		logger: logger, emit: emit, queue: make(chan map[string]any, queueLength),
		started: make(chan struct{}), quit: make(chan struct{}), late: make(chan struct{}), done: make(chan struct{}),
	}
}

// announcerOf returns the announcer of a config.
func announcerOf(ctx caddy.Context) (*announcer, error) {
	app, err := ctx.App("events")
	if err != nil {
		return nil, err
	}
	events := app.(*caddyevents.App)
	n := newAnnouncer(ctx.Logger(), func(data map[string]any) { events.Emit(ctx, eventStateChanged, data) })
	return n, events.On("started", n)
}

// Handle implements caddyevents.Handler: every app of the config has started.
func (n *announcer) Handle(context.Context, caddy.Event) error {
	n.once.Do(func() { close(n.started) })
	return nil
}

// running reports whether the config has started as a whole.
func (n *announcer) running() bool { return isClosed(n.started) }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// announce hands an event on. It never waits.
func (n *announcer) announce(data map[string]any) {
	select {
	case n.queue <- data:
	default:
		n.lost.Add(1)
	}
}

func (n *announcer) serve() {
	defer close(n.done)
	select {
	case <-n.started:
	case <-n.quit:
	}
	for n.running() {
		if isClosed(n.quit) { // select might prefer an event that is late
			n.drain()
			return
		}
		select {
		case data := <-n.queue:
			n.tell(data)
		case <-n.quit:
		}
	}
}

// drain tells of what happened before the end, while there is time.
func (n *announcer) drain() {
	for !isClosed(n.late) {
		select {
		case data := <-n.queue:
			n.tell(data)
		default:
			return
		}
	}
}

func (n *announcer) tell(data map[string]any) {
	if lost := n.lost.Swap(0); lost > 0 {
		n.logger.Warn("subscribers are too slow: events dropped", zap.Uint64("count", lost))
	}
	n.emit(data)
}

// stop ends serve. A subscriber that is busy is not waited for without end.
func (n *announcer) stop() {
	close(n.quit)
	patience := time.NewTimer(stopPatience)
	defer patience.Stop()
	select {
	case <-n.done:
	case <-patience.C:
		close(n.late)
		n.logger.Warn("a subscriber of events is still busy: not waiting for it")
	}
}

// observe turns a transition into a log line and an event. It is called without
// any lock held, once per transition, whatever was reloaded meanwhile.
func (a *App) observe(e *entry, c breaker.Change) {
	level, message := zapcore.InfoLevel, "path closed"
	switch c.To {
	case breaker.Open:
		level, message = zapcore.WarnLevel, "path opened"
	case breaker.HalfOpen:
		message = "path half-open"
	case breaker.Closed:
	}
	if line := a.logger.Check(level, message); line != nil {
		fields := []zap.Field{
			zap.String("registry", e.key.registry),
			zap.String("path", e.key.path),
			zap.Stringer("from", c.From),
			zap.Stringer("to", c.To),
			zap.String("reason", c.Reason),
		}
		if !c.Until.IsZero() {
			fields = append(fields, zap.Time("next_trial_at", c.Until))
		}
		line.Write(fields...)
	}
	a.announcer.announce(map[string]any{
		"registry": e.key.registry,
		"path_id":  e.key.path,
		"from":     c.From.String(),
		"state":    c.To.String(),
		"reason":   c.Reason,
	})
}

// Interface guards.
var _ caddyevents.Handler = (*announcer)(nil)
