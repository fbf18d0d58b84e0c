package caddymux

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// maxPurge is the most keys that one call purges.
const maxPurge = 1000

// purgeReport is the answer to a purge: which backends' networks have forgotten the keys, and which have not.
type purgeReport struct {
	Keys   int          `json:"keys"`
	Purged []string     `json:"purged"`
	Failed []purgeFault `json:"failed,omitempty"`
}

type purgeFault struct {
	Backend string       `json:"backend"`
	Code    muxcore.Code `json:"code"`
	Error   string       `json:"error"`
}

// purge purges the keys in the body, as the tree knows them, at the networks of all its backends. The answer is 200 when all have
// done so, else 502; 501 when there is no network at all.
func (a *adminAPI) purge(w http.ResponseWriter, r *http.Request, name string) error {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return apiError(http.StatusMethodNotAllowed, fmt.Errorf("method %s is not allowed here", r.Method))
	}
	var body struct {
		Keys []string `json:"keys"`
	}
	if err := readJSON(r, `{"keys": ["key", …]}`, &body); err != nil {
		return apiError(http.StatusBadRequest, err)
	}
	if n := len(body.Keys); n == 0 || n > maxPurge {
		return apiError(http.StatusBadRequest, fmt.Errorf("keys: must be 1 to %d, got %d", maxPurge, n))
	}
	for i, key := range body.Keys {
		if err := muxcore.CheckKey(key); err != nil {
			return apiError(http.StatusBadRequest, fmt.Errorf("keys[%d]: %w", i, err))
		}
	}
	t := activeTree(name) //nolint:contextcheck // a tree outlives requests
	if t == nil {
		return noTree(name)
	}
	defer t.release()
	all, err := t.store.PurgeEach(r.Context(), body.Keys)
	switch {
	case errors.Is(err, muxcore.ErrUnsupported):
		return apiError(http.StatusNotImplemented, err)
	case err != nil:
		return apiError(http.StatusBadRequest, err)
	}
	report := purgeReport{Keys: len(body.Keys), Purged: []string{}}
	for _, one := range all {
		if one.Err == nil {
			report.Purged = append(report.Purged, one.Backend)
			continue
		}
		code := muxcore.CodeOf(one.Err)
		if code == "" {
			code = muxcore.CodeUnavailable
		}
		report.Failed = append(report.Failed, purgeFault{one.Backend, code, one.Err.Error()})
	}
	if report.Failed != nil {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadGateway)
	}
	return answerJSON(w, report)
}
