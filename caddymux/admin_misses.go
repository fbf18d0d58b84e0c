package caddymux

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/journal"
)

// missesCall is the body of a call by which another process, that of a command, has the journal of a running tree remember
// what its write has missed. It is between the two of one version, and nobody else's to use.
type missesCall struct {
	// The journal's directory, so that both mean the same; "" that which the tree has by default, which depends on whose
	// data directory it is in.
	Journal string `json:"journal,omitempty"`
	journal.Handed
}

// missesAnswer is the answer: it comes once everything is on disk.
type missesAnswer struct {
	Seq uint64 `json:"seq"`
}

// misses takes over what a command's write has missed. What cannot be of this tree is refused, and the command's write fails.
func (a *adminAPI) misses(w http.ResponseWriter, r *http.Request, name string) error {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return apiError(http.StatusMethodNotAllowed, fmt.Errorf("method %s is not allowed here", r.Method))
	}
	var call missesCall
	if err := readJSON(r, "what another Caddy hands over", &call); err != nil {
		return apiError(http.StatusBadRequest, err)
	}
	if err := muxcore.CheckStoreKey(call.Key); err != nil {
		return apiError(http.StatusBadRequest, fmt.Errorf("key: %w", err))
	}
	t := activeTree(name)
	if t == nil {
		return noTree(name)
	}
	defer t.release()
	if call.Journal == "" {
		call.Journal = defaultJournal(t.name)
	}
	if err := t.keepsJournal(&call); err != nil {
		return apiError(http.StatusConflict, err)
	}
	seq, err := journalOf(call.Journal).Take(call.Handed)
	switch {
	case errors.Is(err, journal.ErrUnknownStep):
		return apiError(http.StatusBadRequest, fmt.Errorf("step: %w", err))
	case errors.Is(err, journal.ErrLocked):
		return apiError(http.StatusConflict, err)
	case err != nil:
		return apiError(http.StatusInsufficientStorage, err)
	}
	return answerJSON(w, missesAnswer{seq})
}

// keepsJournal tells whether what is handed over is of a mux of this tree, with this journal and these backends.
func (t *tree) keepsJournal(call *missesCall) error {
	found := false
	t.root.eachMux(func(b *branch) {
		found = found || b.scope == call.Scope && b.journal != "" && b.journal == call.Journal
	})
	if !found {
		return fmt.Errorf("journal: tree %q of the running config has none in %q for its mux %q", t.name, call.Journal, call.Scope)
	}
	stats := t.store.Stats()
	at := &stats
	for rest := call.Scope; rest != ""; {
		var name string
		name, rest, _ = strings.Cut(rest, ".")
		i := slices.IndexFunc(at.Backends, func(b muxcore.BackendStats) bool { return b.Name == name && b.Mux != nil })
		if i < 0 {
			return fmt.Errorf("scope: mux %q is not in service", call.Scope)
		}
		at = at.Backends[i].Mux
	}
	for _, name := range call.Backends() {
		if !slices.ContainsFunc(at.Backends, func(b muxcore.BackendStats) bool { return b.Name == name }) {
			return fmt.Errorf("backend %q is not in service", name)
		}
	}
	return nil
}

// askAdmin asks the admin API of the Caddy that runs. An answer of 400 and beyond is an error; any other must be closed.
type askAdmin func(method, uri string, body io.Reader) (*http.Response, error)

// handOver has a journal of a tree of this process hand its misses to the Caddy that runs, for as long as that one has its lock;
// running says that it has the tree, and is to be told in any case.
func handOver(j *journal.Journal, tree string, running bool, ask askAdmin) {
	uri := adminPath + "/" + url.PathEscape(tree) + "/misses"
	dir := j.Dir()
	if dir == defaultJournal(tree) {
		dir = ""
	}
	j.HandOver(func(h journal.Handed) (uint64, error) {
		body, err := json.Marshal(missesCall{dir, h})
		if err != nil {
			return 0, err
		}
		res, err := ask(http.MethodPost, uri, bytes.NewReader(body))
		if err != nil {
			return 0, err
		}
		defer func() { _ = res.Body.Close() }()
		var answer missesAnswer
		if err := json.NewDecoder(io.LimitReader(res.Body, maxAdminBody)).Decode(&answer); err != nil {
			return 0, fmt.Errorf("reading the answer: %w", err)
		}
		return answer.Seq, nil
	}, running)
}
