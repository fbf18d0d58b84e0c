package muxcore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

var (
	errOriginStays = errors.New("the origin of a shield cannot be removed")
	errLastWeight  = errors.New("no other backend has a weight")
)

// Add puts a backend at the end of the list. mux is "" for this mux, or the dotted name of one nested in it. Errors have
// CodeBackendNameConflict, CodeInvalidWeight, CodeRecursionDepthExceeded or CodeBackendNotFound (no such mux).
func (m *Mux) Add(mux string, cfg Backend) error {
	m, err := m.at(mux)
	if err != nil {
		return err
	}
	if err := checkBackend(&cfg); err != nil {
		return err
	}
	if trees := cycle(cfg.Store, m); trees != nil {
		return &Error{Code: CodeRecursionDepthExceeded, Backend: cfg.Name, Err: fmt.Errorf("a cycle: %s", strings.Join(trees, " -> "))}
	}
	if int(m.base.Load())+1+depthOf(cfg.Store) > MaxDepth {
		return tooDeep(cfg.Name)
	}
	m.mu.Lock()
	if m.index(cfg.Name) >= 0 {
		m.mu.Unlock()
		return conflict(cfg.Name)
	}
	b := newBackend(cfg, m.set.Timeout, m.set.Now())
	b.added = true
	b.nest(m)
	m.backends = append(slices.Clip(m.backends), b)
	m.refreshLocked()
	m.mu.Unlock()
	m.refreshAbove()
	m.watchHealth(b)
	m.emit(Event{Kind: EventBackendAdded, Name: b.Name, Weight: cfg.Weight})
	return nil
}

// Remove takes a backend out of the list at once; what is in flight on it ends as it would have, and then its store is
// closed. Errors have CodeBackendNotFound, or CodeWeightedRequiresWeights and CodeMirrorOriginRequired where the mux could
// not do without.
func (m *Mux) Remove(name string) error {
	m, name, err := m.owner(name)
	if err != nil {
		return err
	}
	m.mu.Lock()
	i := m.index(name)
	if err := m.canLose(i, name, nil); err != nil {
		m.mu.Unlock()
		return err
	}
	b := m.backends[i]
	m.backends = slices.Delete(slices.Clone(m.backends), i, i+1)
	b.drain.stage.Store(removed)
	if !b.added {
		m.removed = append(slices.Clip(m.removed), name)
	}
	m.refreshLocked()
	m.mu.Unlock()
	m.refreshAbove()
	b.stopHealth()
	m.leaving.Go(func() {
		_ = b.drain.wait(context.Background()) // ends with the last call
		b.unnest(m)
		_ = b.letGo()
	})
	m.emit(Event{Kind: EventBackendRemoved, Name: b.Name})
	return nil
}

// SetWeight changes a backend's weight. Errors have CodeInvalidWeight, CodeBackendNotFound, or
// CodeWeightedRequiresWeights if a weighted mux would be left without any.
func (m *Mux) SetWeight(name string, weight int) error {
	if !isWeight(weight) {
		return invalidWeight(name, weight)
	}
	m, name, err := m.owner(name)
	if err != nil {
		return err
	}
	m.mu.Lock()
	i := m.index(name)
	if err := m.canLose(i, name, &weight); err != nil {
		m.mu.Unlock()
		return err
	}
	b := m.backends[i]
	was := int(b.weight.Swap(int64(weight)))
	m.refreshLocked()
	m.mu.Unlock()
	if was != weight {
		m.emit(Event{Kind: EventWeightChanged, Name: b.Name, FromWeight: was, ToWeight: weight})
	}
	return nil
}

// Drain takes a backend out of service and returns when nothing is in flight on it. It stays listed, down, and nothing
// but [Mux.Undrain] puts it back. If ctx ends first, the backend is back in service, and the error is that of ctx.
func (m *Mux) Drain(ctx context.Context, name string) error {
	if err := m.StartDrain(name); err != nil {
		return err
	}
	return m.AwaitDrain(ctx, name)
}

// StartDrain takes a backend out of service, and leaves it to [Mux.AwaitDrain] to wait for what is in flight on it.
func (m *Mux) StartDrain(name string) error {
	m, name, err := m.owner(name)
	if err != nil {
		return err
	}
	b, err := m.byName(name)
	if err != nil {
		return err
	}
	if b.drain.move(inService, draining) {
		m.refresh()
		m.emit(Event{Kind: EventDrainStarted, Name: name, InFlight: int(b.drain.inFlight.Load())})
	}
	return nil
}

// AwaitDrain is the second half of [Mux.Drain]. If the backend was put back in service, the error is [ErrBackInService].
func (m *Mux) AwaitDrain(ctx context.Context, name string) error {
	m, name, err := m.owner(name)
	if err != nil {
		return err
	}
	b, err := m.byName(name)
	if err != nil {
		return err
	}
	started := m.set.Now()
	if err := b.drain.wait(ctx); err != nil {
		if b.drain.move(draining, inService) {
			m.refresh()
		}
		return fmt.Errorf("draining backend %q: %w", name, err)
	}
	if b.drain.move(draining, drained) {
		m.emit(Event{Kind: EventDrainCompleted, Name: name, Took: m.set.Now().Sub(started)})
	}
	return nil
}

// Undrain puts a drained or draining backend back in service.
func (m *Mux) Undrain(name string) error {
	m, name, err := m.owner(name)
	if err != nil {
		return err
	}
	b, err := m.byName(name)
	if err != nil {
		return err
	}
	if b.drain.move(draining, inService) || b.drain.move(drained, inService) {
		m.refresh()
		m.nudgeReplay()
	}
	return nil
}

// at is the mux of a dotted name, "" being m itself.
func (m *Mux) at(path string) (*Mux, error) {
	for path != "" {
		var name string
		name, path, _ = strings.Cut(path, ".")
		b, err := m.byName(name)
		if err != nil {
			return nil, err
		}
		if b.nested == nil {
			return nil, &Error{Code: CodeBackendNotFound, Backend: name, Err: errNoMux}
		}
		m = b.nested
	}
	return m, nil
}

// owner is the mux that holds the backend of a dotted name, and its name in there.
func (m *Mux) owner(name string) (*Mux, string, error) {
	dot := strings.LastIndexByte(name, '.')
	inner, err := m.at(name[:max(dot, 0)])
	return inner, name[dot+1:], err
}

// ErrLastBackend is why a backend cannot be removed.
var ErrLastBackend = errors.New("a mux cannot be without a backend")

var errNoMux = errors.New("it is no mux")

func (m *Mux) byName(name string) (*backend, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if i := m.index(name); i >= 0 {
		return m.backends[i], nil
	}
	return nil, &Error{Code: CodeBackendNotFound, Backend: name}
}

// index must be called with m.mu held.
func (m *Mux) index(name string) int {
	return slices.IndexFunc(m.backends, func(b *backend) bool { return b.Name == name })
}

// canLose tells whether the backend at i may go, or take the weight given. It must be called with m.mu held.
func (m *Mux) canLose(i int, name string, weight *int) error {
	if i < 0 {
		return &Error{Code: CodeBackendNotFound, Backend: name}
	}
	if len(m.backends) == 1 && weight == nil {
		return ErrLastBackend
	}
	if m.set.Mode == Shield && i == 0 && weight == nil {
		return &Error{Code: CodeMirrorOriginRequired, Backend: name, Err: errOriginStays}
	}
	if m.set.Mode != Weighted || weight != nil && *weight > 0 {
		return nil
	}
	for j, b := range m.backends {
		if j != i && b.weight.Load() > 0 {
			return nil
		}
	}
	return &Error{Code: CodeWeightedRequiresWeights, Backend: name, Err: errLastWeight}
}
