package caddymux

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/caddyserver/caddy/v2"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

func init() { caddy.RegisterModule(new(adminAPI)) }

// adminPath is where the admin API of trees begins.
const adminPath = "/storage_mux"

// adminAPI tells how the trees of the running config stand:
//
//	GET /storage_mux           a JSON array, all trees by name
//	GET /storage_mux/<tree>    one of them
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
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		return caddy.APIError{HTTPStatus: http.StatusMethodNotAllowed, Err: fmt.Errorf("method %s is not allowed here", r.Method)}
	}
	name := strings.Trim(strings.TrimPrefix(r.URL.Path, adminPath), "/")
	all := []treeStats{}
	for _, t := range activeTrees() {
		if name != "" && name != t.name {
			continue
		}
		if t = t.peek(); t != nil {
			all = append(all, treeStats{t.name, t.store.Stats()})
			t.release()
		}
	}
	if name == "" {
		return answerJSON(w, all)
	}
	if len(all) == 0 {
		return caddy.APIError{HTTPStatus: http.StatusNotFound, Err: fmt.Errorf("no storage tree %q in the running config", name)}
	}
	return answerJSON(w, all[0])
}

func answerJSON(w http.ResponseWriter, value any) error {
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(value)
}

// activeTrees lists the trees of the running config.
func activeTrees() []*tree {
	ctx := caddy.ActiveContext()
	if ctx.Context == nil {
		return nil
	}
	app, err := ctx.AppIfConfigured(appID)
	if err != nil {
		return nil // a config without trees
	}
	return app.(*App).all()
}

// Interface guards.
var _ caddy.AdminRouter = (*adminAPI)(nil)
