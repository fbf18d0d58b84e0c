package caddybreaker

import (
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/suaveplan/caddy-storage-mux/muxcore/breaker"
)

// eventStateChanged is the topic of Caddy's events app for transitions.
const eventStateChanged = "relay-breaker.state.changed"

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
	a.events.Emit(a.ctx, eventStateChanged, map[string]any{
		"registry": e.key.registry,
		"path_id":  e.key.path,
		"from":     c.From.String(),
		"state":    c.To.String(),
		"reason":   c.Reason,
	})
}
