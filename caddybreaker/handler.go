package caddybreaker

import (
	"errors"
	"io"
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/suaveplan/caddy-storage-mux/internal/strictjson"
	"github.com/suaveplan/caddy-storage-mux/muxcore/breaker"
)

func init() { caddy.RegisterModule((*Handler)(nil)) }

// Handler puts one circuit breaker around the handlers that follow it, whatever
// they are: php_fastcgi, storage_mux, a chain of your own. An error, a status of
// failure_status, or a body that breaks off is a failure. While the path is
// open, requests are answered with 503 and Retry-After at once.
type Handler struct {
	// What the handlers stand for: the path is <local_id>→<path_id>. Handlers with
	// the same one share a breaker. Required.
	PathID string `json:"path_id,omitempty"`

	// The registry that holds the breaker. Default: "default".
	Registry string `json:"registry,omitempty"`

	// The name of this end of each path, of the whole registry. Default: as set
	// there, else the host name.
	LocalID string `json:"local_id,omitempty"`

	Options

	path *namedPath
}

// CaddyModule returns the Caddy module information.
func (*Handler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.handlers.relay_breaker",
		New: func() caddy.Module { return new(Handler) },
	}
}

// UnmarshalJSON implements json.Unmarshaler: an error names the field.
func (h *Handler) UnmarshalJSON(data []byte) error {
	type plain Handler
	return strictjson.Decode(data, (*plain)(h))
}

// Provision sets up h.
func (h *Handler) Provision(ctx caddy.Context) error {
	var err error
	h.path, err = newNamedPath(ctx, h.Registry, h.LocalID, h.PathID, h.Options)
	return err
}

// ServeHTTP implements caddyhttp.MiddlewareHandler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	g := h.path.guard()
	if g == nil {
		noteNobody(r.Context())
		return next.ServeHTTP(w, r)
	}
	c := &call{guard: g}
	var err error
	if c.permit, err = g.entry.breaker.Allow(); err != nil {
		setRetryAfter(w, r, g.entry.breaker.RetryAfter())
		// The server looks no deeper than this for the status.
		return caddyhttp.Error(http.StatusServiceUnavailable, refused(r.Context(), g, err))
	}
	c.keepPlace()
	defer c.isOver()
	takeBackRetryAfter(w, varsOf(r.Context()))
	note(r.Context(), g, "")
	answer := &answer{ResponseWriterWrapper: &caddyhttp.ResponseWriterWrapper{ResponseWriter: w}, call: c, connect: r.Method == http.MethodConnect}
	if r.Body != nil && r.Body != http.NoBody {
		answer.up.ReadCloser = r.Body
		r.Body = &answer.up
	}
	answer.late = c.hurry(&answer.up)
	defer answer.late() // ends the timer where nothing was ever written
	defer func() {
		if p := recover(); p != nil {
			c.end(answer.up.excuse(h.panicked(r, p)))
			panic(p)
		}
	}()
	err = next.ServeHTTP(answer, r)
	c.end(h.judge(r, answer, err))
	return err
}

// judge says what the end of the chain means.
func (h *Handler) judge(r *http.Request, a *answer, err error) verdict {
	if r.Context().Err() != nil {
		return neutral("the client went away")
	}
	if err == nil {
		return a.verdict
	}
	if own, ok := errors.AsType[*breaker.Error](err); ok && own.Code != "" {
		return neutral("refused further on: " + string(own.Code))
	}
	status := http.StatusInternalServerError
	if he, ok := errors.AsType[caddyhttp.HandlerError](err); ok && he.StatusCode != 0 {
		status = he.StatusCode
	}
	if status == http.StatusServiceUnavailable && varsOf(r.Context())[retryAfterVar] != nil {
		return neutral("refused further on") // by a policy, which leaves no error of ours
	}
	return a.up.excuse(h.path.def.classes.status(status, a.Header()))
}

// panicked judges a chain that did not return. Aborting the response is how
// handlers say that a body broke off.
func (h *Handler) panicked(r *http.Request, p any) verdict {
	if r.Context().Err() != nil {
		return neutral("the client went away")
	}
	if p == http.ErrAbortHandler { //nolint:errorlint // net/http compares it so
		return failure("body: aborted")
	}
	return failure("panic")
}

// answer sees the status go by.
type answer struct {
	*caddyhttp.ResponseWriterWrapper
	*call

	up      upload
	connect bool // asks for a connection of its own: a WebSocket over HTTP/2 or 3
	late    func() bool
	wrote   bool
	verdict verdict
}

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(status int) {
	if !a.wrote && (status >= 200 || status == http.StatusSwitchingProtocols) {
		a.header(status)
	}
	a.ResponseWriterWrapper.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (a *answer) Write(p []byte) (int, error) {
	if !a.wrote {
		a.header(http.StatusOK)
	}
	return a.ResponseWriterWrapper.Write(p)
}

// ReadFrom implements io.ReaderFrom.
func (a *answer) ReadFrom(r io.Reader) (int64, error) {
	if !a.wrote {
		a.header(http.StatusOK)
	}
	return a.ResponseWriterWrapper.ReadFrom(r)
}

// header judges the answer, and ends the call where nothing after it counts.
func (a *answer) header(status int) {
	a.wrote = true
	if a.late() {
		return // judged already
	}
	a.permit.Sent(a.up.sent())
	a.permit.Answered()
	a.verdict = a.up.excuse(a.guard.def.classes.status(status, a.Header()))
	upgraded := a.connect || status == http.StatusSwitchingProtocols
	if a.verdict.outcome != breaker.Success || upgraded || isStream(a.Header()) {
		a.end(a.verdict)
	}
}

// Interface guards.
var (
	_ caddy.Provisioner           = (*Handler)(nil)
	_ caddyhttp.MiddlewareHandler = (*Handler)(nil)
	_ io.ReaderFrom               = (*answer)(nil)
)
