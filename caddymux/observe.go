package caddymux

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyevents"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// queueLength is how many events may wait for the subscribers of the events app.
const queueLength = 256

// observer tells one config of what happens in its trees: its log, and its events app. Events come on the path of
// requests; subscribers of the events app may take their time, so they are served by a goroutine of their own.
type observer struct {
	ctx    caddy.Context // for events, which carry the module they come from
	logger *zap.Logger
	events *caddyevents.App
	app    *App

	running atomic.Bool // all apps are started
	queue   chan muxcore.Event
	lost    atomic.Uint64 // events for which there was no room

	mu   sync.Mutex
	quit chan struct{} // nil while not started
}

func newObserver(ctx caddy.Context, of *App) (*observer, error) {
	app, err := ctx.App("events")
	if err != nil {
		return nil, err
	}
	o := &observer{ctx: ctx, logger: ctx.Logger(), events: app.(*caddyevents.App), app: of, queue: make(chan muxcore.Event, queueLength)}
	// The events app may still be about to start when our trees see their first event.
	return o, o.events.On("started", allStarted{o})
}

// allStarted hears when every app of the config has started.
type allStarted struct{ o *observer }

// Handle implements caddyevents.Handler.
func (s allStarted) Handle(context.Context, caddy.Event) error {
	s.o.running.Store(true)
	return nil
}

// start begins to serve subscribers.
func (o *observer) start() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.quit == nil {
		o.quit = make(chan struct{})
		go o.serve(o.quit)
	}
}

// stop ends that. It does not wait for a subscriber that is busy: Caddy stops and reloads under a lock, which such a
// subscriber may itself be waiting for; it touches nothing but the events app of its own config.
func (o *observer) stop() {
	o.mu.Lock()
	quit := o.quit
	o.quit = nil
	o.mu.Unlock()
	if quit != nil {
		o.running.Store(false)
		close(quit)
	}
}

func (o *observer) serve(quit <-chan struct{}) {
	for {
		select {
		case <-quit:
			return
		case e := <-o.queue:
			if n := o.lost.Swap(0); n > 0 {
				o.logger.Warn("subscribers are too slow: events dropped", zap.Uint64("count", n))
			}
			o.events.Emit(o.ctx, string(e.Kind), payload(&e))
		}
	}
}

// observe hands an event on.
func (o *observer) observe(e *muxcore.Event) {
	o.log(e)
	if !o.running.Load() || !o.events.ShouldEmit(string(e.Kind)) {
		return
	}
	select {
	case o.queue <- *e:
	default:
		o.lost.Add(1)
	}
}

// lines are what the log says of events, and how loud: what got worse is a warning, what got better or was changed by hand
// is information, and what may come with every request is for debugging.
var lines = map[muxcore.EventKind]struct {
	level zapcore.Level
	text  string
}{
	muxcore.EventBackendDown:      {zapcore.WarnLevel, "backend down"},
	muxcore.EventBackendRecovered: {zapcore.InfoLevel, "backend recovered"},
	muxcore.EventFailover:         {zapcore.DebugLevel, "failover"},
	muxcore.EventFanoutPartial:    {zapcore.WarnLevel, "write missed backends"},
	muxcore.EventDrainStarted:     {zapcore.InfoLevel, "drain started"},
	muxcore.EventDrainCompleted:   {zapcore.InfoLevel, "drain completed"},
	muxcore.EventBackendAdded:     {zapcore.InfoLevel, "backend added"},
	muxcore.EventBackendRemoved:   {zapcore.InfoLevel, "backend removed"},
	muxcore.EventWeightChanged:    {zapcore.InfoLevel, "weight changed"},
	muxcore.EventRepaired:         {zapcore.DebugLevel, "copy repaired"},
	muxcore.EventRepairStarted:    {zapcore.InfoLevel, "bringing a backend what it missed"},
	muxcore.EventRepairCompleted:  {zapcore.InfoLevel, "backend has all it missed"},
	muxcore.EventRepairFailed:     {zapcore.WarnLevel, "backend could not be brought what it missed; trying again"},
	muxcore.EventJournalFailed:    {zapcore.ErrorLevel, "journal cannot be read: writes that a backend misses fail"},
}

// log writes a line. Keys are data of users: only the debug log has them.
func (o *observer) log(e *muxcore.Event) {
	line, ok := lines[e.Kind]
	if !ok {
		return
	}
	c := o.logger.Check(line.level, line.text)
	if c == nil {
		return
	}
	fields := []zap.Field{zap.String("tree", e.Tree)}
	if e.Name != "" {
		fields = append(fields, zap.String("backend", e.Name))
	}
	switch e.Kind {
	case muxcore.EventBackendDown:
		fields = append(fields, zap.Stringer("op", e.Op), zap.String("code", string(e.Code)), zap.Error(withoutKey(e.Err)))
	case muxcore.EventBackendRecovered:
		fields = append(fields, zap.Stringer("op", e.Op), zap.Duration("down_for", e.Took))
	case muxcore.EventFailover:
		fields = append(fields, zap.String("from", e.From), zap.String("to", e.To), zap.Int("attempt", e.Attempt),
			zap.String("key", e.Key), zap.Error(e.Err))
	case muxcore.EventFanoutPartial:
		fields = append(fields, zap.String("mode", string(e.Mode)), zap.Strings("failed", e.Failed), zap.Error(withoutKey(errors.Join(e.Causes...))))
	case muxcore.EventDrainStarted:
		fields = append(fields, zap.Int("in_flight", e.InFlight))
	case muxcore.EventDrainCompleted:
		fields = append(fields, zap.Duration("took", e.Took))
	case muxcore.EventRepaired:
		fields = append(fields, zap.Stringer("op", e.Op), zap.String("from", e.From), zap.String("key", e.Key), zap.String("cause", string(e.Cause)))
	case muxcore.EventRepairStarted:
		fields = append(fields, zap.Int("pending", e.Pending))
	case muxcore.EventRepairCompleted:
		fields = append(fields, zap.Duration("took", e.Took))
	case muxcore.EventRepairFailed:
		fields = append(fields, zap.Int("pending", e.Pending), zap.Error(withoutKey(e.Err)))
	case muxcore.EventJournalFailed:
		fields = append(fields, zap.Error(e.Err))
	case muxcore.EventWeightChanged:
		fields = append(fields, zap.Int("from", e.FromWeight), zap.Int("to", e.ToWeight))
	default: // the backend says it all
	}
	c.Write(fields...)
}

// withoutKey takes keys out of what an error says: out of every core error and every path in its tree. What is left is
// for logs, not for errors.Is.
func withoutKey(err error) error {
	switch e := err.(type) { //nolint:errorlint // it goes through the tree itself
	case nil:
		return nil
	case *muxcore.Error:
		bare := *e
		bare.Key, bare.Err = "", withoutKey(e.Err)
		return &bare
	case *fs.PathError:
		return fmt.Errorf("%s: %w", e.Op, e.Err)
	case *os.LinkError:
		return fmt.Errorf("%s: %w", e.Op, e.Err)
	case interface{ Unwrap() []error }:
		var all []error
		for _, one := range e.Unwrap() {
			all = append(all, withoutKey(one))
		}
		return errors.Join(all...)
	case interface{ Unwrap() error }:
		if inner := e.Unwrap(); inner != nil && mentionsKey(inner) {
			return withoutKey(inner) // the words around it may repeat the key
		}
	}
	return err
}

// mentionsKey tells whether an error in the tree knows a key or a path.
func mentionsKey(err error) bool {
	_, coded := errors.AsType[*muxcore.Error](err)
	_, path := errors.AsType[*fs.PathError](err)
	_, link := errors.AsType[*os.LinkError](err)
	return coded || path || link
}

// payload is what the events app is told: the fields of the design, and the tree.
func payload(e *muxcore.Event) map[string]any {
	p := map[string]any{"tree": e.Tree}
	switch e.Kind {
	case muxcore.EventBackendDown:
		p["name"], p["cause"], p["code"] = e.Name, text(e.Err), string(e.Code)
	case muxcore.EventBackendRecovered:
		p["name"], p["downForMs"] = e.Name, e.Took.Milliseconds()
	case muxcore.EventFailover:
		p["from"], p["to"], p["attemptIndex"], p["cause"] = e.From, e.To, e.Attempt, text(e.Err)
	case muxcore.EventFanoutPartial:
		causes := make([]string, 0, len(e.Causes))
		for _, cause := range e.Causes {
			causes = append(causes, text(cause))
		}
		p["mode"], p["failed"], p["causes"] = string(e.Mode), e.Failed, causes
	case muxcore.EventDrainStarted:
		p["name"], p["inFlightCount"] = e.Name, e.InFlight
	case muxcore.EventDrainCompleted:
		p["name"], p["drainedDurationMs"] = e.Name, float64(e.Took)/float64(time.Millisecond)
	case muxcore.EventBackendAdded:
		p["name"] = e.Name
		if e.Weight != nil {
			p["weight"] = *e.Weight
		}
	case muxcore.EventBackendRemoved:
		p["name"] = e.Name
	case muxcore.EventRepaired:
		p["name"], p["op"], p["from"], p["cause"] = e.Name, e.Op.String(), e.From, string(e.Cause)
	case muxcore.EventRepairStarted:
		p["name"], p["pending"] = e.Name, e.Pending
	case muxcore.EventRepairCompleted:
		p["name"], p["tookMs"] = e.Name, e.Took.Milliseconds()
	case muxcore.EventRepairFailed:
		p["name"], p["pending"], p["cause"] = e.Name, e.Pending, text(e.Err)
	case muxcore.EventJournalFailed:
		p["cause"] = text(e.Err)
	case muxcore.EventWeightChanged:
		p["name"], p["from"], p["to"] = e.Name, e.FromWeight, e.ToWeight
	default: // what a later version of the core tells of has its tree at least
	}
	return p
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
