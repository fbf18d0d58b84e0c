package caddymux

import (
	"errors"
	"slices"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"go.uber.org/zap"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// What the types of backends at vendors have in common.

// cdnOption takes cdn [<ttl>].
func cdnOption(cdn *bool, ttl *caddy.Duration) func(*caddyfile.Dispenser) error {
	return func(d *caddyfile.Dispenser) error {
		*cdn = true
		if !d.NextArg() {
			return nil
		}
		return parseDuration(d, "cdn", ttl)
	}
}

// addressOption takes an address, which cannot be empty, as a quoted {$VARIABLE} is that is not set.
func addressOption(into *string) func(*caddyfile.Dispenser) error {
	return func(d *caddyfile.Dispenser) error {
		option := d.Val()
		if err := TextOption(into)(d); err != nil {
			return err
		}
		if *into == "" {
			return d.Errf("%s: must not be empty", option)
		}
		return nil
	}
}

// onlyArgument reads the one argument of a backend's type.
func onlyArgument(d *caddyfile.Dispenser, kind, name string, into *string) error {
	d.Next()
	if !d.NextArg() {
		return d.Errf("%s: %s is missing", kind, name)
	}
	*into = d.Val()
	if d.NextArg() {
		return d.Errf("%s: unexpected word %q", kind, d.Val())
	}
	return nil
}

// tryStore finds what keeps a type from making its store, which makes and dials nothing yet.
func tryStore(b BackendType) error {
	s, err := b.OpenStore()
	if err != nil {
		return err
	}
	return muxcore.Close(s)
}

// checkStore does so while the Caddyfile is read, unless there are placeholders.
func checkStore(d *caddyfile.Dispenser, b BackendType, values ...string) error {
	if slices.ContainsFunc(values, hasPlaceholder) {
		return nil
	}
	return at(d, tryStore(b))
}

// purgeFailed tells of purges after writes that failed. Stores outlive configs, so the log is whichever is in use. Keys are
// the users' own: the error, which has them in it, is for debugging.
func purgeFailed(kind, place string) func(string, error) {
	return func(_ string, err error) {
		logger := caddy.Log().Named("storage_mux")
		fields := []zap.Field{zap.String("type", kind), zap.String("place", place), zap.String("code", string(muxcore.CodeOf(err)))}
		if e, ok := errors.AsType[*muxcore.Error](err); ok && e.Status != 0 {
			fields = append(fields, zap.Int("status", e.Status))
		}
		logger.Warn("purge after a write failed", fields...)
		logger.Debug("purge after a write failed", zap.Error(err))
	}
}
