package caddymux

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

// mutation is a call that changes a tree.
type mutation struct {
	// read reads the request, whose path may name the backend that it is about: what is wrong with it, nobody else waits for.
	read func(m *mutating) error

	// do makes the change in the tree that has the backend, and knows it by that name.
	do func(m *mutating, owner *tree, backend string) error

	// wait waits for what the change takes; nil for nothing.
	wait func(m *mutating, t *tree) error
}

// mutating is a mutation in progress.
type mutating struct {
	r       *http.Request
	body    []byte
	backend string // dotted
	weight  int
	timeout time.Duration
}

// mutations are the calls below /storage_mux/<tree>/, by what follows there and by method.
var mutations = map[string]map[string]mutation{
	"backends": {http.MethodPost: {readAddition, addBackend, nil}},
	"backends/<name>": {
		http.MethodDelete: {readNothing, removeBackend, nil},
		http.MethodPatch:  {readPatch, patchBackend, nil},
	},
	"backends/<name>/drain": {
		http.MethodPost:   {readTimeout, drainBackend, awaitDrain},
		http.MethodDelete: {readNothing, undrainBackend, nil},
	},
}

// mutate finds the call that the path after the tree's name means, and makes it. The answer is the tree as it is then.
func (a *adminAPI) mutate(w http.ResponseWriter, r *http.Request, name, rest string) error {
	m := &mutating{r: r}
	shape := rest
	if parts := strings.Split(rest, "/"); len(parts) > 1 {
		m.backend, parts[1] = parts[1], "<name>"
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
	if err := call.read(m); err != nil {
		return apiError(http.StatusBadRequest, err)
	}
	t, err := changeTree(name, m.backend, func(owner *tree, backend string) error { return call.do(m, owner, backend) })
	if t == nil {
		return noTree(name)
	}
	defer t.release()
	if err == nil && call.wait != nil {
		err = call.wait(m, t)
	}
	if err != nil {
		return apiError(mutationStatus(err), err)
	}
	return answerJSON(w, treeStats{t.name, t.store.Stats()})
}

// mutationStatus is the status for a mutation that failed: a conflict with the state of the tree, something that is not
// there, time that ran out, else a bad request.
func mutationStatus(err error) int {
	switch muxcore.CodeOf(err) {
	case muxcore.CodeBackendNotFound:
		if _, bad := errors.AsType[backendConfigError](err); bad {
			return http.StatusBadRequest
		}
		return http.StatusNotFound
	case muxcore.CodeBackendNameConflict, muxcore.CodeWeightedRequiresWeights, muxcore.CodeMirrorOriginRequired:
		return http.StatusConflict
	default:
	}
	for _, conflict := range []error{muxcore.ErrBackInService, muxcore.ErrLastBackend, errGuarded, errReloading} {
		if errors.Is(err, conflict) {
			return http.StatusConflict
		}
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return http.StatusGatewayTimeout
	}
	return http.StatusBadRequest
}

// readAddition reads the backend in the body. A dotted name adds it to a nested mux.
func readAddition(m *mutating) error {
	fields := make(map[string]json.RawMessage)
	if err := readJSON(m.r, "a backend's JSON config", &fields); err != nil {
		return err
	}
	if err := take(maps.Clone(fields), "name", &m.backend); err != nil {
		return err
	}
	var err error
	m.body, err = json.Marshal(fields)
	return err
}

func addBackend(m *mutating, t *tree, backend string) error {
	raw := json.RawMessage(m.body)
	mux := ""
	if dot := strings.LastIndexByte(backend, '.'); dot >= 0 {
		mux, backend = backend[:dot], backend[dot+1:]
	}
	if backend != m.backend {
		var err error
		if raw, err = renamed(raw, backend); err != nil {
			return err
		}
	}
	one, err := makeMember(raw, t, mux, activeApp())
	if err != nil {
		return backendConfigError{err}
	}
	b, err := one.build(t, nil)
	if err != nil {
		return errors.Join(err, one.close())
	}
	t.announce(one)
	if err := t.store.Add(mux, b); err != nil {
		return errors.Join(err, letGo(b))
	}
	return nil
}

// backendConfigError is what is wrong with a backend that was to be added. What its config lacks is nothing that the caller has not found.
type backendConfigError struct{ error }

func (e backendConfigError) Unwrap() error { return e.error }

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
// that is running now. It must be called with changing locked.
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
	if name := one.wantsLocks(); name != "" {
		return nil, fmt.Errorf("backend %q: locks: their place cannot change at run time", name)
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
	if t.keepsSecrets() {
		if err := checkSecret(func(f func(seat)) { alone.eachSeatNow(nil, seat{}, f) }); err != nil {
			return nil, errors.Join(err, alone.members[0].close())
		}
	}
	return &alone.members[0], nil
}

// wantsLocks names what has the option locks: the backend, or one in it that is no tree of its own.
func (one *member) wantsLocks() string {
	switch {
	case one.Locks:
		return one.Name
	case one.nested == nil:
		return ""
	}
	for i := range one.nested.members {
		if inner := one.nested.members[i].wantsLocks(); inner != "" {
			return one.Name + "." + inner
		}
	}
	return ""
}

func readNothing(*mutating) error { return nil }

func removeBackend(_ *mutating, t *tree, backend string) error {
	if err := t.checkRemoval(backend); err != nil {
		return err
	}
	return t.store.Remove(backend)
}

// readPatch reads a weight, the one thing that can be changed.
func readPatch(m *mutating) error {
	var patch struct {
		Weight *int `json:"weight"`
	}
	const form = `{"weight": n}`
	if err := readJSON(m.r, form, &patch); err != nil {
		return err
	}
	if patch.Weight == nil {
		return errors.New("the body must be " + form)
	}
	m.weight = *patch.Weight
	return nil
}

func patchBackend(m *mutating, t *tree, backend string) error {
	return t.store.SetWeight(backend, m.weight)
}

// readTimeout reads how long to wait for what is in flight.
func readTimeout(m *mutating) (err error) {
	params := m.r.URL.Query()
	for name := range params {
		if name != "timeout" {
			return fmt.Errorf("unknown parameter %q, known is timeout", name)
		}
	}
	word := params.Get("timeout")
	if word == "" {
		return nil
	}
	if m.timeout, err = caddy.ParseDuration(word); err != nil || m.timeout <= 0 {
		return fmt.Errorf("timeout: must be a duration such as 30s, got %q", word)
	}
	return nil
}

func drainBackend(_ *mutating, t *tree, backend string) error { return t.store.StartDrain(backend) }

// awaitDrain answers when nothing is in flight on the backend; with a timeout that runs out before, or a caller that leaves, it is
// back in service.
func awaitDrain(m *mutating, t *tree) error {
	ctx := m.r.Context()
	if m.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, m.timeout, fmt.Errorf("%w: after %s", context.DeadlineExceeded, m.timeout.Round(time.Millisecond)))
		defer cancel()
	}
	err := t.store.AwaitDrain(ctx, m.backend)
	if err != nil && ctx.Err() != nil {
		t.undrainAll(m.backend)
	}
	return err
}

// undrainAll is for a drain that ran out of time: if the config was edited meanwhile, or is just now, the tree in the place of t has
// taken over the drain as well.
func (t *tree) undrainAll(backend string) {
	changing.Lock()
	defer changing.Unlock()
	for _, other := range namesakes(t.name) {
		if other != t && other.made.Load() {
			_ = other.store.Undrain(backend) // it may not have the backend any more
		}
	}
}

func undrainBackend(_ *mutating, t *tree, backend string) error { return t.store.Undrain(backend) }
