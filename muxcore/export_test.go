package muxcore

import "context"

// What tests outside of the package see of its inside.
var (
	ErrChanged = errChanged
	ErrCorrupt = errCorrupt
	ErrAltered = errAltered
)

// RaceGrace is how long those that are beaten go on.
const RaceGrace = raceGrace

// Copy is copyTo between backends of these names.
func (m *Mux) Copy(ctx context.Context, key, from, to string, source *Info, target Conditions, still func(context.Context, *Info) error) (PutResult, error) {
	named := func(name string) *backend {
		for _, b := range m.snapshot.Load().all {
			if b.Name == name {
				return b
			}
		}
		panic("no backend " + name)
	}
	return m.copyTo(ctx, key, named(from), named(to), copyRules{source: source, target: target, still: still})
}

// LockKey takes the turn to commit at a key.
func (m *Mux) LockKey(ctx context.Context, key string) (unlock func(), err error) {
	return m.commits.lock(ctx, key)
}
