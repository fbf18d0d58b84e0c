package caddymux

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// maxAdminBody bounds what the admin API reads of a request.
const maxAdminBody = 1 << 20

// mutation is a call that changes a tree: what is asked of which backend, or of none.
type mutation func(r *http.Request, t *tree, backend string) error

// mutations are the calls below /storage_mux/<tree>/, by what follows there and by method.
var mutations = map[string]map[string]mutation{
	"backends":              {http.MethodPost: addBackend},
	"backends/<name>":       {http.MethodDelete: removeBackend, http.MethodPatch: patchBackend},
	"backends/<name>/drain": {http.MethodPost: drainBackend, http.MethodDelete: undrainBackend},
}

// mutate finds the call that the path after the tree's name means, and makes it. The answer is the tree as it is then.
func (a *adminAPI) mutate(w http.ResponseWriter, r *http.Request, name, rest string) error {
	shape, backend := rest, ""
	if parts := strings.Split(rest, "/"); len(parts) > 1 {
		backend, parts[1] = parts[1], "<name>"
		shape = strings.Join(parts, "/")
	}
	methods, known := mutations[shape]
	if !known {
		return apiError(http.StatusNotFound, fmt.Errorf("no such call: %s", r.URL.Path))
	}
	call, allowed := methods[r.Method]
	if !allowed {
		w.Header().Set("Allow", strings.Join(slices.Sorted(maps.Keys(methods)), ", "))
		return apiError(http.StatusMethodNotAllowed, fmt.Errorf("method %s is not allowed here", r.Method))
	}
	t := activeTree(name)
	if t == nil {
		return noTree(name)
	}
	defer t.release()
	if err := call(r, t, backend); err != nil {
		return apiError(mutationStatus(err), err)
	}
	return answerJSON(w, treeStats{t.name, t.store.Stats()})
}

// mutationStatus is the status for a mutation that failed: a conflict with the state of the tree, something that is not
// there, time that ran out, else a bad request.
func mutationStatus(err error) int {
	switch muxcore.CodeOf(err) {
	case muxcore.CodeBackendNotFound:
		return http.StatusNotFound
	case muxcore.CodeBackendNameConflict, muxcore.CodeWeightedRequiresWeights, muxcore.CodeMirrorOriginRequired:
		return http.StatusConflict
	default:
	}
	if errors.Is(err, muxcore.ErrBackInService) || errors.Is(err, muxcore.ErrLastBackend) || errors.Is(err, errGuarded) {
		return http.StatusConflict
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return http.StatusGatewayTimeout
	}
	return http.StatusBadRequest
}

// addBackend adds the backend in the body. A dotted name adds it to a nested mux.
func addBackend(r *http.Request, t *tree, _ string) error {
	raw, err := io.ReadAll(io.LimitReader(r.Body, maxAdminBody))
	if err != nil {
		return err
	}
	var head struct {
		Name string `json:"name"`
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return fmt.Errorf("the body must be a backend's JSON config: %w", err)
	}
	mux := ""
	if dot := strings.LastIndexByte(head.Name, '.'); dot >= 0 {
		mux = head.Name[:dot]
		if raw, err = renamed(raw, head.Name[dot+1:]); err != nil {
			return err
		}
	}
	one, err := makeMember(raw, t, mux, activeApp())
	if err != nil {
		return err
	}
	b, err := one.build(t, nil)
	if err != nil {
		return errors.Join(err, one.close())
	}
	if err := t.store.Add(mux, b); err != nil {
		return errors.Join(err, letGo(b))
	}
	return nil
}

// letGo gives back the store of a backend that no mux has.
func letGo(b muxcore.Backend) error {
	if b.Release != nil {
		return b.Release()
	}
	return muxcore.Close(b.Store)
}

// renamed gives a backend's config another name.
func renamed(raw json.RawMessage, name string) (json.RawMessage, error) {
	fields := make(map[string]json.RawMessage)
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, err
	}
	quoted, err := json.Marshal(name)
	if err != nil {
		return nil, err
	}
	fields["name"] = quoted
	return json.Marshal(fields)
}

// makeMember makes a backend of its config, to become a member of the mux of that dotted name at run time; app knows the named
// trees. Its module is cleaned up at once: the store may not depend on it (see BackendType), since it outlives the config
// that is running now.
func makeMember(raw json.RawMessage, t *tree, mux string, app *App) (*member, error) {
	ctx, cancel := caddy.NewContext(caddy.Context{Context: context.Background()})
	defer cancel()
	depth := 1
	if mux != "" {
		depth += 1 + strings.Count(mux, ".")
	}
	one, err := newResolver(ctx, app).backend(raw, depth)
	if err != nil {
		return nil, err
	}
	if one.Locks {
		return nil, errors.New("locks: their place cannot change at run time")
	}
	one.raw = raw
	alone := &branch{members: []member{one}}
	alone.rename(strings.TrimSuffix(t.name+"."+mux, "."))
	if err := alone.shareJournals(t.root, mux); err != nil {
		return nil, err
	}
	if err := alone.enterUsed(); err != nil {
		return nil, err
	}
	if err := alone.openStores(); err != nil {
		return nil, errors.Join(err, alone.leaveUsed())
	}
	if t.secrets.Load() > 0 {
		if err := alone.checkSecret(); err != nil {
			return nil, errors.Join(err, alone.members[0].close())
		}
	}
	return &alone.members[0], nil
}

func removeBackend(_ *http.Request, t *tree, backend string) error {
	if err := t.checkRemoval(backend); err != nil {
		return err
	}
	return t.store.Remove(backend)
}

// patchBackend sets a weight, the one thing that can be changed.
func patchBackend(r *http.Request, t *tree, backend string) error {
	var patch struct {
		Weight *int `json:"weight"`
	}
	dec := json.NewDecoder(io.LimitReader(r.Body, maxAdminBody))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&patch); err != nil {
		return fmt.Errorf(`the body must be {"weight": n}: %w`, err)
	}
	if patch.Weight == nil {
		return errors.New(`the body must be {"weight": n}`)
	}
	return t.store.SetWeight(backend, *patch.Weight)
}

// drainBackend takes a backend out of service and answers when nothing is in flight on it; with a timeout that runs out
// before, or a caller that leaves, it is back in service.
func drainBackend(r *http.Request, t *tree, backend string) error {
	ctx := r.Context()
	if word := r.URL.Query().Get("timeout"); word != "" {
		timeout, err := caddy.ParseDuration(word)
		if err != nil || timeout <= 0 {
			return fmt.Errorf("timeout: must be a duration such as 30s, got %q", word)
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, timeout, fmt.Errorf("%w: after %s", context.DeadlineExceeded, timeout.Round(time.Millisecond)))
		defer cancel()
	}
	err := t.store.Drain(ctx, backend)
	if err != nil && ctx.Err() != nil {
		t.undrainNext(backend) //nolint:contextcheck // trees outlive requests
	}
	return err
}

// undrainNext is for a drain that ran out of time: if the config was edited meanwhile, the tree in the place of t has taken
// over the drain as well.
func (t *tree) undrainNext(backend string) {
	next := activeTree(t.name)
	if next == nil {
		return
	}
	if next != t {
		_ = next.store.Undrain(backend) // it may not have the backend any more
	}
	next.release()
}

func undrainBackend(_ *http.Request, t *tree, backend string) error { return t.store.Undrain(backend) }
