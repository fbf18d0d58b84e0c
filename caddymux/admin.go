package caddymux

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/caddyserver/caddy/v2"

	"github.com/suaveplan/caddy-storage-mux/internal/strictjson"
	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

func init() { caddy.RegisterModule(new(adminAPI)) }

// adminPath is where the admin API of trees begins.
const adminPath = "/storage_mux"

// adminAPI tells how the trees of the running config stand, and changes them:
//
//	GET    /storage_mux                                 a JSON array, all trees by name
//	GET    /storage_mux/<tree>                          one of them
//	POST   /storage_mux/<tree>/backends                 add a backend: its JSON config
//	DELETE /storage_mux/<tree>/backends/<name>          remove it; in a nested mux: eu.a
//	PATCH  /storage_mux/<tree>/backends/<name>          {"weight": n}
//	POST   /storage_mux/<tree>/backends/<name>/drain    take it out of service; ?timeout=30s
//	DELETE /storage_mux/<tree>/backends/<name>/drain    put it back
//	POST   /storage_mux/<tree>/repair                   bring its backends back together; ?delete=1&force=1&truth=a&deep=1&dry_run=1&prefix=dir/
//	POST   /storage_mux/<tree>/purge                    {"keys": […]}: at the networks in front of its backends
//	POST   /storage_mux/<tree>/misses                   what a command's writes have missed (internal)
//
// Changes last until a restart: over reloads, and over edits of the config except that one of a list of backends drops what was
// added and removed, and one of a backend drops its own weight and drain.
type adminAPI struct{}

// CaddyModule returns the Caddy module information.
func (*adminAPI) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "admin.api.storage_mux",
		New: func() caddy.Module { return new(adminAPI) },
	}
}

// Routes implements caddy.AdminRouter.
func (a *adminAPI) Routes() []caddy.AdminRoute {
	return []caddy.AdminRoute{
		{Pattern: adminPath, Handler: caddy.AdminHandlerFunc(a.serve)},
		{Pattern: adminPath + "/", Handler: caddy.AdminHandlerFunc(a.serve)},
	}
}

// treeStats is a tree as the admin API shows it.
type treeStats struct {
	Name string `json:"name"`
	muxcore.Stats
}

func (a *adminAPI) serve(w http.ResponseWriter, r *http.Request) error {
	name, rest, _ := strings.Cut(strings.Trim(strings.TrimPrefix(r.URL.Path, adminPath), "/"), "/")
	if rest == "repair" {
		return a.repair(w, r, name)
	}
	if rest == "purge" {
		return a.purge(w, r, name)
	}
	if rest == "misses" {
		return a.misses(w, r, name)
	}
	if rest != "" {
		return a.mutate(w, r, name, rest)
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		return apiError(http.StatusMethodNotAllowed, fmt.Errorf("method %s is not allowed here", r.Method))
	}
	if name != "" {
		t := activeTree(name)
		if t == nil {
			return noTree(name)
		}
		defer t.release()
		return answerJSON(w, treeStats{t.name, t.store.Stats()})
	}
	all := []treeStats{}
	for _, t := range activeTrees() {
		if t = t.peek(); t != nil {
			all = append(all, treeStats{t.name, t.store.Stats()})
			t.release()
		}
	}
	return answerJSON(w, all)
}

// activeTree is a tree of the running config, to be released; nil if there is none of that name.
func activeTree(name string) *tree {
	for _, t := range activeTrees() {
		if t.name == name {
			return t.peek()
		}
	}
	return nil
}

func noTree(name string) error {
	return apiError(http.StatusNotFound, fmt.Errorf("no storage tree %q in the running config", name))
}

func apiError(status int, err error) error { return caddy.APIError{HTTPStatus: status, Err: err} }

// readJSON decodes the body of a call, one value of that form. An error names the field that is wrong.
func readJSON(r *http.Request, form string, into any) error {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxAdminBody))
	switch {
	case err != nil:
	case len(bytes.TrimSpace(body)) == 0:
		err = errors.New("there is none")
	default:
		err = strictjson.Decode(body, into)
	}
	if err != nil {
		return fmt.Errorf("the body must be %s: %w", form, err)
	}
	return nil
}

func answerJSON(w http.ResponseWriter, value any) error {
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(value)
}

// activeTrees lists the trees of the running config.
func activeTrees() []*tree {
	app := activeApp()
	if app == nil {
		return nil
	}
	return app.all()
}

// activeApp is the app of the running config; nil if that has none.
func activeApp() *App {
	ctx := caddy.ActiveContext()
	if ctx.Context == nil {
		return nil
	}
	app, err := ctx.AppIfConfigured(appID)
	if err != nil {
		return nil // a config without trees
	}
	return app.(*App)
}

// Interface guards.
var _ caddy.AdminRouter = (*adminAPI)(nil)
