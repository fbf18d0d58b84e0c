package caddymux

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

const (
	maxRecallAge = 10 * time.Minute // of a file that is believed
	maxRecallLen = 1 << 20
)

// recollection is what is remembered of a tree over a restart: which backends were down, in a file beside its journal. It is a hint
// and no more: whatever is wrong with it, and it is as if it were not there.
type recollection struct {
	Tree  string         `json:"tree"`
	Saved time.Time      `json:"saved"`
	Down  []downRecalled `json:"down"`
}

// downRecalled is a backend that was down for reads or for writes.
type downRecalled struct {
	Name   string          `json:"name"`   // dotted
	Config string          `json:"config"` // tells whether it was edited
	Reads  *healthRecalled `json:"reads,omitempty"`
	Writes *healthRecalled `json:"writes,omitempty"`
}

type healthRecalled struct {
	Failures int          `json:"failures"`
	Since    time.Time    `json:"since"`
	Until    time.Time    `json:"until"`
	Code     muxcore.Code `json:"code"`
	Reason   string       `json:"reason"`
}

// recalledError is why a backend was down before the restart.
type recalledError struct {
	code   muxcore.Code
	reason string
}

func (e recalledError) Error() string { return e.reason }
func (e recalledError) Unwrap() error { return &muxcore.Error{Code: e.code} }

// mark tells configs of a backend apart, nearly always. It is so short that whoever reads it learns nothing of the secrets in them.
func (one *member) mark() string {
	sum := sha256.Sum256(one.canonical)
	return hex.EncodeToString(sum[:2])
}

// down lists the backends of a mux that were down. What was added at run time is gone with a restart.
func down(state *muxcore.State, prefix string) (all []downRecalled) {
	for i := range state.Backends {
		s := &state.Backends[i]
		made, known := s.Spec.(*member)
		if !known || s.Added {
			continue
		}
		if s.Reads.Down || s.Writes.Down {
			all = append(all, downRecalled{prefix + s.Name, made.mark(), healthOn(&s.Reads), healthOn(&s.Writes)})
		}
		if made.nested != nil && s.Mux != nil {
			all = append(all, down(s.Mux, prefix+s.Name+".")...)
		}
	}
	return all
}

func healthOn(h *muxcore.HealthState) *healthRecalled {
	if !h.Down {
		return nil
	}
	return &healthRecalled{h.Failures, h.Since.UTC(), h.Until.UTC(), muxcore.CodeOf(h.Err), h.Err.Error()}
}

func (h *healthRecalled) state() muxcore.HealthState {
	if h == nil {
		return muxcore.HealthState{}
	}
	return muxcore.HealthState{Down: true, Failures: h.Failures, Since: h.Since, Until: h.Until, Err: recalledError{h.Code, h.Reason}}
}

// recall finds what the Caddy that ran before left.
func (t *tree) recall() *legacy {
	if t.root.journal == "" {
		return nil
	}
	known := healthOf(t.root.journal).read(t.name, time.Now())
	if len(known) == 0 {
		return nil
	}
	return t.root.recall(known)
}

func (b *branch) recall(known map[string]downRecalled) *legacy {
	l := &legacy{state: new(muxcore.State), inner: make(map[string]*legacy)}
	for i := range b.members {
		one := &b.members[i]
		if was, ok := known[b.dotted(one.Name)]; ok && was.Config == one.mark() {
			l.state.Backends = append(l.state.Backends, muxcore.BackendState{Name: one.Name, Reads: was.Reads.state(), Writes: was.Writes.state()})
		}
		if one.nested != nil {
			l.inner[one.Name] = one.nested.recall(known)
		}
	}
	return l
}

// healthFile is where a recollection is kept. It is never the first in its directory, which is made by the journal. One tree
// writes it: that of the running config.
type healthFile struct {
	dir string

	mu    sync.Mutex
	owner *tree
	wrote []byte // without the time
	at    time.Time
}

func (f *healthFile) path() string { return filepath.Join(f.dir, "health.json") }

// read gives what is to be believed of the file, by dotted name.
func (f *healthFile) read(tree string, now time.Time) map[string]downRecalled {
	file, err := os.Open(f.path())
	if err != nil {
		return nil
	}
	defer func() { _ = file.Close() }() // it was only read
	raw, err := io.ReadAll(io.LimitReader(file, maxRecallLen))
	if err != nil {
		return nil
	}
	var r recollection
	if err := json.Unmarshal(raw, &r); err != nil || r.Tree != tree || r.Saved.After(now.Add(time.Minute)) || now.Sub(r.Saved) > maxRecallAge {
		return nil
	}
	known := make(map[string]downRecalled)
	for _, one := range r.Down {
		known[one.Name] = one
	}
	return known
}

// save writes how t stands, if it may and if that is news.
func (f *healthFile) save(t *tree, now time.Time) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.belongsTo(t) {
		return nil
	}
	r := recollection{Tree: t.name, Down: down(t.store.State(), "")}
	if len(r.Down) == 0 {
		f.wrote = nil
		return ignoreAbsent(os.Remove(f.path()))
	}
	content, err := json.Marshal(r)
	if err != nil || bytes.Equal(content, f.wrote) && now.Sub(f.at) < maxRecallAge/10 {
		return err
	}
	r.Saved = now.UTC()
	if err := f.write(&r); err != nil {
		return ignoreAbsent(err)
	}
	f.wrote, f.at = content, now
	return nil
}

// belongsTo tells whether the file is t's to write: a tree that is on its way in or out is not, but the last one is when Caddy
// stops. It must be called with f.mu held.
func (f *healthFile) belongsTo(t *tree) bool {
	for _, running := range activeTrees() {
		if running.name == t.name {
			if running == t {
				f.owner = t
			}
			return running == t
		}
	}
	return f.owner == nil || f.owner == t
}

// write replaces the file.
func (f *healthFile) write(r *recollection) error {
	raw, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	next := f.path() + ".new"
	if err := os.WriteFile(next, append(raw, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(next, f.path())
}

// ignoreAbsent takes a directory or a file that is not there for none.
func ignoreAbsent(err error) error {
	if os.IsNotExist(err) {
		return nil
	}
	return err
}
