package caddybreaker

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/suaveplan/caddy-storage-mux/internal/strictjson"
	"github.com/suaveplan/caddy-storage-mux/muxcore/breaker"
)

func init() { caddy.RegisterModule(AdminAPI{}) }

// maxAction is the longest request body of the admin API that is read.
const maxAction = 64 << 10

// AdminAPI shows the breakers and lets an operator decide for them:
// GET and POST /relay_breaker.
type AdminAPI struct{}

// CaddyModule returns the Caddy module information.
func (AdminAPI) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "admin.api.relay_breaker",
		New: func() caddy.Module { return new(AdminAPI) },
	}
}

// Routes implements caddy.AdminRouter.
func (a AdminAPI) Routes() []caddy.AdminRoute {
	return []caddy.AdminRoute{{Pattern: "/relay_breaker", Handler: caddy.AdminHandlerFunc(a.serve)}}
}

// pathView is a path in an answer.
type pathView struct {
	breaker.Snapshot
	Options map[string]any `json:"options"`
}

// action is the body of a POST.
type action struct {
	Registry string `json:"registry"`
	PathID   string `json:"path_id"`
	Action   string `json:"action"`
	// TTL ends a forced state by itself. A duration, as in "10m".
	TTL string `json:"ttl"`
}

func (a AdminAPI) serve(w http.ResponseWriter, r *http.Request) error {
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		return answerJSON(w, views())
	case http.MethodPost:
		return a.act(w, r)
	}
	w.Header().Set("Allow", "GET, HEAD, POST")
	return caddy.APIError{HTTPStatus: http.StatusMethodNotAllowed, Err: fmt.Errorf("method not allowed: %s", r.Method)}
}

func (AdminAPI) act(w http.ResponseWriter, r *http.Request) error {
	var do action
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxAction))
	if err == nil {
		err = strictjson.Decode(body, &do)
	}
	if err != nil {
		return badRequest(fmt.Errorf("decoding the action: %w", err))
	}
	perform, err := do.parse()
	if err != nil {
		return badRequest(err)
	}
	found := false
	for _, e := range entries() {
		if e.key.registry == or(do.Registry, defaultRegistry) && e.key.path == do.PathID {
			if app := e.observer(); app != nil {
				app.logger.Info("breaker set by hand", zap.String("registry", e.key.registry),
					zap.String("path", e.key.path), zap.String("action", do.Action), zap.String("ttl", do.TTL))
			}
			perform(e)
			found = true
		}
	}
	if !found {
		err := &breaker.Error{Code: breaker.CodeRegistryPathNotFound, Path: do.PathID}
		return caddy.APIError{HTTPStatus: http.StatusNotFound, Err: err}
	}
	return answerJSON(w, views())
}

// parse says what an action does, or which of its fields makes no sense.
func (do action) parse() (func(*entry), error) {
	var ttl time.Duration
	if do.TTL != "" {
		var err error
		if ttl, err = caddy.ParseDuration(do.TTL); err != nil || ttl <= 0 {
			return nil, fmt.Errorf("ttl: must be a duration above 0, got '%s'", do.TTL)
		}
		if do.Action != "force_open" && do.Action != "force_closed" {
			return nil, fmt.Errorf("ttl: only force_open and force_closed end by themselves, not '%s'", do.Action)
		}
	}
	if do.PathID == "" {
		return nil, fmt.Errorf("path_id: missing")
	}
	switch do.Action {
	case "force_open":
		return func(e *entry) { e.breaker.ForceOpen(ttl) }, nil
	case "force_closed":
		return func(e *entry) { e.breaker.ForceClosed(ttl) }, nil
	case "auto":
		return func(e *entry) { e.breaker.Auto() }, nil
	case "reset":
		return func(e *entry) { e.breaker.Reset() }, nil
	case "remove":
		return func(e *entry) { e.remove() }, nil
	}
	return nil, fmt.Errorf("action: must be force_open, force_closed, auto, reset or remove, got '%s'", do.Action)
}

// views returns every path, sorted.
func views() []pathView {
	all := entries()
	slices.SortFunc(all, func(a, b *entry) int {
		return cmp.Or(
			cmp.Compare(a.key.registry, b.key.registry),
			cmp.Compare(a.key.path, b.key.path),
			cmp.Compare(a.key.digest, b.key.digest),
		)
	})
	out := make([]pathView, 0, len(all))
	for _, e := range all {
		v := pathView{Snapshot: e.breaker.Snapshot(), Options: e.opts.view()}
		v.Registry = e.key.registry
		out = append(out, v)
	}
	return out
}

// Snapshots returns every path of this process as it stands, sorted: what a status page shows.
func (*App) Snapshots() []breaker.Snapshot {
	var out []breaker.Snapshot
	for _, v := range views() {
		out = append(out, v.Snapshot)
	}
	return out
}

func answerJSON(w http.ResponseWriter, v any) error {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(v); err != nil {
		return caddy.APIError{HTTPStatus: http.StatusInternalServerError, Err: err}
	}
	return nil
}

func badRequest(err error) error {
	return caddy.APIError{HTTPStatus: http.StatusBadRequest, Err: err}
}

// Interface guards.
var _ caddy.AdminRouter = AdminAPI{}
