package breaker

import (
	"iter"
	"slices"
	"sync"
)

// Registry holds one breaker per path. It is safe for concurrent use.
type Registry struct {
	defaults Settings
	paths    sync.Map // string -> *Breaker
}

// NewRegistry returns an empty registry whose breakers get s.
func NewRegistry(s Settings) (*Registry, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	return &Registry{defaults: s}, nil
}

// GetOrCreate returns the breaker of path, a new one at first.
func (r *Registry) GetOrCreate(path string) *Breaker {
	// The defaults were validated, so New cannot fail.
	b, _ := r.GetOrCreateWith(path, r.defaults)
	return b
}

// GetOrCreateWith is GetOrCreate with settings for a path that is new. Those of
// one that is there already stay as they are.
func (r *Registry) GetOrCreateWith(path string, s Settings) (*Breaker, error) {
	if v, ok := r.paths.Load(path); ok {
		return v.(*Breaker), nil
	}
	b, err := New(path, s)
	if err != nil {
		return nil, err
	}
	v, _ := r.paths.LoadOrStore(path, b)
	return v.(*Breaker), nil
}

// State returns the state of path, or an error with CodeRegistryPathNotFound.
func (r *Registry) State(path string) (State, error) {
	v, ok := r.paths.Load(path)
	if !ok {
		return Closed, &Error{Code: CodeRegistryPathNotFound, Path: path}
	}
	return v.(*Breaker).State(), nil
}

// Remove forgets path and closes its breaker, or returns an error with
// CodeRegistryPathNotFound. Permits that are out stay harmless.
func (r *Registry) Remove(path string) error {
	v, ok := r.paths.LoadAndDelete(path)
	if !ok {
		return &Error{Code: CodeRegistryPathNotFound, Path: path}
	}
	v.(*Breaker).Close()
	return nil
}

// All ranges over the breakers, in no order.
func (r *Registry) All() iter.Seq2[string, *Breaker] {
	return func(yield func(string, *Breaker) bool) {
		r.paths.Range(func(k, v any) bool { return yield(k.(string), v.(*Breaker)) })
	}
}

// ListOpen returns the paths that are open, sorted.
func (r *Registry) ListOpen() []string {
	open := []string{}
	for path, b := range r.All() {
		if b.State() == Open {
			open = append(open, path)
		}
	}
	slices.Sort(open)
	return open
}

// Close closes every breaker and empties the registry.
func (r *Registry) Close() {
	for path := range r.All() {
		_ = r.Remove(path)
	}
}
