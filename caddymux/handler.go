package caddymux

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/suaveplan/caddy-storage-mux/internal/strictjson"
	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

func init() { caddy.RegisterModule(new(Handler)) }

// Handler serves the objects of a storage tree: several stores (memory, folders, HTTP origins, …) that answer as one.
// A request's key is its path, decoded once, without the first slash.
//
// It sets placeholders for handlers after it, for headers set late (`header >X-Served-By …`) and for logs:
//
// Placeholder | Description
// ------------|-------------
// `{http.storage_mux.tree}` | The name of the tree
// `{http.storage_mux.backend}` | The backend that answered, dotted through nested muxes
// `{http.storage_mux.attempts}` | Calls made to backends
// `{http.storage_mux.outcome}` | `ok`, `transient`, `semantic`, `abort` or `timeout`
// `{http.storage_mux.error_code}` | The code of the error, if there was one
// `{http.storage_mux.latency_ms}` | Milliseconds until the answer stood, without the body.
type Handler struct {
	// The named tree to serve. Then nothing here may say what a tree is: no name, mode, backend or option of a tree.
	Use string `json:"use,omitempty"`

	// The name of the tree in the admin API, metrics and logs. Handlers of one name are one tree, with one health and
	// one set of counters, and must have the same backends and options. Default: the name of the first backend with 8
	// hex digits of a hash over what tells the tree from others.
	Name string `json:"name,omitempty"`

	Mux

	// Put before every key, with a slash between. Slashes at its ends do not matter. Per-request placeholders are
	// allowed; a request for which one evaluates to nothing is refused with 400. Default: none.
	Prefix string `json:"prefix,omitempty"`

	// The files to try for a path that ends in a slash, in this order. Per-request placeholders are allowed. An empty
	// list turns it off. Default: `["index.html"]`.
	Index []string `json:"index,omitzero"`

	// Admit PUT and DELETE. There is no other access control: whoever can reach the handler can then change and remove
	// objects. Default: false.
	Writable bool `json:"writable,omitempty"`

	// Admit GET with `?list`, which answers with the keys below a path as JSON. Default: false.
	List bool `json:"list,omitempty"`

	// The largest upload in bytes; a larger one is refused with 413. Default: no limit.
	MaxSize int64 `json:"max_size,omitempty"`

	// Call the next handler when the object does not exist, instead of answering 404. Default: false.
	PassThru bool `json:"pass_thru,omitempty"`

	// Keys that do not exist for anyone, neither to read, nor to write, nor in lists. A pattern without a slash hides
	// every key that has a segment like it; one with a slash hides the keys like it and all below them. Patterns are
	// globs, in which `*` stops at slashes. Paths of the file system hide what lies there from the backends of type
	// `file`. Per-request placeholders are allowed. The Caddyfile in use is added by itself.
	Hide []string `json:"hide,omitempty"`

	// Answer with this status instead of 200; in an error route, instead of the status of the error. With a status
	// other than 2xx, ranges and preconditions are ignored.
	Status caddyhttp.WeakString `json:"status,omitempty"`

	door

	hidden hidden
	status int
	logger *zap.Logger

	// readAsMatcher is the argument of the directive that Caddy took as a path matcher.
	readAsMatcher string

	// usePlace is where in the Caddyfile the option use stands, for errors.
	usePlace caddyfile.Dispenser

	// uses are the backends of type use in the Caddyfile.
	uses []usePlace
}

// CaddyModule returns the Caddy module information.
func (*Handler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.handlers.storage_mux",
		New: func() caddy.Module { return new(Handler) },
	}
}

// UnmarshalJSON implements json.Unmarshaler: an error names the field.
func (h *Handler) UnmarshalJSON(data []byte) error {
	type plain Handler
	return strictjson.Decode(data, (*plain)(h))
}

// Provision sets up the handler. It builds the tree, or joins the one that is there, and dials nobody.
func (h *Handler) Provision(ctx caddy.Context) error {
	h.logger = ctx.Logger()
	if h.Index == nil {
		h.Index = []string{"index.html"}
	}
	if err := h.provisionStatus(); err != nil {
		return err
	}
	if h.MaxSize < 0 {
		return fmt.Errorf("max_size: must be >= 0, got %d", h.MaxSize)
	}
	app, err := appOf(ctx)
	if err != nil {
		return err
	}
	root, err := h.enter(ctx, app, h.Use, h.Name, h.Mux)
	if err != nil {
		return err
	}
	if h.Writable {
		h.admitWrites()
	}
	h.hidden.patterns = h.Hide
	if _, err := newHideList(h.Hide, nil); err != nil {
		return err
	}
	for _, advice := range root.advice(h.Writable) {
		h.logger.Warn("config that is hardly meant", zap.String("why", advice))
	}
	return nil
}

// provisionStatus reads the status to answer with.
func (h *Handler) provisionStatus() error {
	word := caddy.NewReplacer().ReplaceAll(h.Status.String(), "")
	if word == "" {
		return nil
	}
	status, err := strconv.Atoi(word)
	if err != nil || status < 200 || status > 999 {
		return fmt.Errorf("status: must be a number from 200 to 999, got %q", word)
	}
	if status == http.StatusNoContent || status == http.StatusNotModified {
		return fmt.Errorf("status: %d has no body, so no object can be served with it", status)
	}
	h.status = status
	return nil
}

// Cleanup lets go of the tree. Requests that still use it keep it open.
func (h *Handler) Cleanup() error {
	return h.leave()
}

// ServeHTTP answers a request from the tree.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	t, err := h.tree.acquire() //nolint:contextcheck // a tree outlives the request that opens it
	if err != nil {
		return errNoTree(w, err)
	}
	held := true
	defer func() {
		if held {
			t.release()
		}
	}()
	x := &exchange{h: h, t: t, w: w, r: r, method: r.Method}
	x.repl, _ = r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	x.begin()
	err = x.serve()        //nolint:contextcheck // an exchange is one request, and has its context
	if err == errMissing { //nolint:errorlint // never wrapped
		held = false
		t.release() // what comes next may last for hours
		return next.ServeHTTP(w, r)
	}
	return err
}

// serve decides what the request asks for.
func (x *exchange) serve() error {
	switch x.method {
	case http.MethodGet, http.MethodHead:
		if x.h.List && x.wantsList() {
			return x.list()
		}
		return x.read()
	case http.MethodPut, http.MethodDelete:
		if !x.h.Writable {
			break
		}
		if x.method == http.MethodPut {
			return x.put()
		}
		return x.del()
	}
	return x.notAllowed(x.h.allowed())
}

// allowed lists the methods that the handler admits.
func (h *Handler) allowed() string {
	if h.Writable {
		return "GET, HEAD, PUT, DELETE"
	}
	return "GET, HEAD"
}

// Validate checks what needs no tree.
func (h *Handler) Validate() error {
	for _, name := range h.Index {
		if err := checkPlain("index", name); err != nil {
			return err
		}
	}
	return checkPlain("prefix", strings.Trim(h.Prefix, "/"))
}

// checkPlain tells whether what has no placeholders is a key.
func checkPlain(option, word string) error {
	if word == "" && option == "prefix" || hasPlaceholder(word) {
		return nil
	}
	if err := muxcore.CheckKey(word); err != nil {
		return fmt.Errorf("%s: %q: %w", option, word, errors.Unwrap(err))
	}
	return nil
}

// Interface guards.
var (
	_ caddy.Provisioner           = (*Handler)(nil)
	_ caddy.Validator             = (*Handler)(nil)
	_ caddy.CleanerUpper          = (*Handler)(nil)
	_ caddyhttp.MiddlewareHandler = (*Handler)(nil)
)
