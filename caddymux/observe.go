package caddymux

import (
	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// observer tells one config of a tree's events.
type observer struct {
	logger *zap.Logger
}

func newObserver(_ caddy.Context, logger *zap.Logger) *observer { return &observer{logger} }

// observe turns an event into a line of the log, if something changed. Keys are data of users and stay out.
func (o *observer) observe(e muxcore.Event) {
	switch e.Kind {
	case muxcore.EventBackendDown:
		o.logger.Warn("backend down", zap.String("tree", e.Tree), zap.String("backend", e.Name), zap.Error(e.Err))
	case muxcore.EventBackendRecovered:
		o.logger.Info("backend recovered", zap.String("tree", e.Tree), zap.String("backend", e.Name), zap.Duration("down_for", e.Took))
	}
}
