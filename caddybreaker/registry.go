package caddybreaker

import (
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/suaveplan/caddy-storage-mux/muxcore/breaker"
)

// maxDynamic bounds the paths first seen in traffic: a client may choose them,
// where an upstream has a placeholder of the request. What does not fit passes
// unguarded.
const maxDynamic = 4096

// maxUpstream bounds their names, which are as long as a client likes. A host name has at most 253 bytes, and the path of a
// socket 108: no longer one can be called.
const maxUpstream = 512

// registry maps the paths of one name to their guards, for one config. Readers
// load a snapshot; writers build a new one.
type registry struct {
	app      *App
	name     string
	defaults Options

	snapshot atomic.Pointer[map[string]*guard] // by upstream

	mu sync.Mutex

	local    string // "" until it is needed or set
	users    []user
	named    map[string]bool // upstreams that the config names
	dynamic  int
	counted  map[string]*ledger // by label
	closed   bool
	disputed map[string]bool // upstreams whose conflict was logged
	fullSaid bool
}

// user is something that guards paths of a registry first seen in traffic.
type user interface{ definition() *definition }

// watcher is a user that wants to know of guards that it was the first to define.
type watcher interface{ watch(*guard) (unwatch func()) }

// guard is a path of one config: a breaker, and the options it was defined with.
type guard struct {
	entry    *entry
	def      *definition
	upstream string
	label    string // what metrics call it
	static   bool
	boxedID  any // the path, ready for a placeholder
	lastUsed atomic.Int64
	definer  user
	stalls   watchdog

	watchMu sync.Mutex

	ended func() // set while watched
}

func newRegistry(a *App, name string, defaults Options) *registry {
	r := &registry{app: a, name: name, defaults: defaults, disputed: make(map[string]bool), named: make(map[string]bool), counted: make(map[string]*ledger)}
	r.snapshot.Store(&map[string]*guard{})
	return r
}

// setLocalID names this end of the paths. It comes too late once there are any.
func (r *registry) setLocalID(id string) error {
	id = caddy.NewReplacer().ReplaceAll(id, "")
	if id == "" {
		return fmt.Errorf("local_id: evaluates to nothing (registry '%s')", r.name)
	}
	if !utf8.ValidString(id) {
		return fmt.Errorf("local_id: must be UTF-8, got %q (registry '%s')", id, r.name)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.local != "" && r.local != id {
		return fmt.Errorf("local_id: registry '%s' is already '%s' and cannot be '%s', too; set it once, in the global option relay_breaker",
			r.name, r.local, id)
	}
	r.local = id
	return nil
}

// join notes who may come to define paths while requests are served.
func (r *registry) join(u user) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.users = append(r.users, u)
}

// lookup returns the guard of an upstream, or nil.
func (r *registry) lookup(upstream string) *guard { return (*r.snapshot.Load())[upstream] }

func (r *registry) guards() []*guard {
	all := make([]*guard, 0, len(*r.snapshot.Load()))
	for _, g := range *r.snapshot.Load() {
		all = append(all, g)
	}
	return all
}

// define makes the guard of an upstream that the config names. Two definitions
// with different options are an error.
func (r *registry) define(upstream string, u user) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if g := r.lookup(upstream); g != nil {
		if g.def.digest != u.definition().digest {
			return fmt.Errorf("path '%s' of registry '%s' is defined twice with different options (%s); make them equal, or give one of them a registry of its own with 'registry <name>'",
				g.entry.key.path, r.name, g.def.difference(u.definition()))
		}
		return nil
	}
	r.named[upstream] = true
	_, err := r.add(upstream, u)
	return err
}

// meet returns the guard of an upstream that a request goes to, a new one at
// first; nil where there is no room for more.
func (r *registry) meet(upstream string, u user) *guard {
	g := r.lookup(upstream)
	if g == nil {
		if g = r.meetNew(upstream, u); g == nil {
			return nil
		}
	}
	if g.def.digest != u.definition().digest {
		r.dispute(g, u)
	}
	return g
}

// meetNew makes a guard. What may call subscribers, or write to a log, waits
// until the locks are free.
func (r *registry) meetNew(upstream string, u user) *guard {
	if len(upstream) > maxUpstream {
		return nil // nor is there anything to guard
	}
	g, made, err := r.addMet(upstream, u)
	switch {
	case errors.Is(err, errFull):
		r.app.logger.Error("too many paths: requests to new ones pass unguarded",
			zap.String("registry", r.name), zap.Int("paths", maxDynamic))
	case err != nil:
		r.app.logger.Error("path passes unguarded", zap.String("upstream", upstream), zap.Error(err))
	case made:
		r.app.attach(r, g)
	}
	return g
}

// errFull is that there is no room for more paths. It is said once.
var errFull = errors.New("too many paths")

// addMet returns the guard of an upstream that was not there a moment ago, nil
// where it cannot be, and whether the caller must attach it.
func (r *registry) addMet(upstream string, u user) (g *guard, attach bool, err error) {
	r.app.mu.Lock()
	defer r.app.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	if g := r.lookup(upstream); g != nil || r.closed {
		return g, false, nil
	}
	if r.dynamic >= maxDynamic && !r.named[upstream] {
		if r.fullSaid {
			return nil, false, nil
		}
		r.fullSaid = true
		return nil, false, errFull
	}
	if g, err = r.add(upstream, u); err != nil {
		return nil, false, err
	}
	return g, r.app.running, nil
}

// add must be called with r.mu held.
func (r *registry) add(upstream string, u user) (*guard, error) {
	if r.local == "" {
		r.local = hostName()
	}
	def, static := u.definition(), r.named[upstream]
	path := r.local + "→" + upstream
	e, err := acquire(entryKey{registry: r.name, path: path, digest: def.digest}, def)
	if err != nil {
		return nil, err
	}
	g := &guard{
		entry: e, def: def, definer: u, upstream: upstream,
		label: validUTF8(path), static: static, boxedID: path,
	}
	e.dynamic.Store(!static)
	if !static {
		g.label = r.dynamicLabel()
		g.touch()
		r.dynamic++
	}
	e.countIn(r.ledger(g.label))
	next := maps.Clone(*r.snapshot.Load())
	next[upstream] = g
	r.snapshot.Store(&next)
	return g, nil
}

// dynamicLabel is what metrics call all dynamic paths: no client may make up
// labels. It must be called with r.mu held.
func (r *registry) dynamicLabel() string { return validUTF8(r.local) + "→dynamic" }

// ledger must be called with r.mu held.
func (r *registry) ledger(label string) *ledger {
	l := r.counted[label]
	if l == nil {
		l = ledgerOf(ledgerKey{r.name, label})
		r.counted[label] = l
	}
	return l
}

// ledgers returns those of all labels that this config counted under.
func (r *registry) ledgers() map[string]*ledger {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.counted)
}

func (r *registry) dispute(g *guard, u user) {
	r.mu.Lock()
	known := r.disputed[g.upstream]
	if len(r.disputed) < maxDynamic {
		r.disputed[g.upstream] = true
	}
	r.mu.Unlock()
	if !known {
		r.app.logger.Warn("path is defined twice with different options; the first definition holds",
			zap.String("registry", r.name),
			zap.String("path", g.entry.key.path),
			zap.String("difference", g.def.difference(u.definition())))
	}
}

// adopt takes over the dynamic paths of the config before this one, so that a
// reload forgets nothing. It must be called with app.mu held.
func (r *registry) adopt() {
	byDigest := make(map[string]user)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, u := range r.users {
		if d := u.definition().digest; byDigest[d] == nil {
			byDigest[d] = u
		}
	}
	if r.local == "" {
		r.local = hostName()
	}
	if label := r.dynamicLabel(); len(r.users) > 0 {
		if _, before := ledgers.References(ledgerKey{r.name, label}); before {
			r.ledger(label) // its counters stay to be seen, with no such path left
		}
	}
	prefix := r.local + "→"
	for _, e := range entries() {
		u := byDigest[e.key.digest]
		if e.key.registry != r.name || u == nil || !e.dynamic.Load() || len(e.key.path) <= len(prefix) || e.key.path[:len(prefix)] != prefix {
			continue
		}
		upstream := e.key.path[len(prefix):]
		if r.lookup(upstream) == nil && r.dynamic < maxDynamic {
			if _, err := r.add(upstream, u); err != nil {
				r.app.logger.Error("path not taken over", zap.String("upstream", upstream), zap.Error(err))
			}
		}
	}
}

// forgetIdle drops the dynamic paths that were last used before t. One that is
// open has no calls because it refuses them, and one that an operator forced is
// theirs to take back.
func (r *registry) forgetIdle(t time.Time) {
	for _, g := range r.guards() {
		b := g.entry.breaker
		if !g.static && time.Unix(g.lastUsed.Load(), 0).Before(t) && b.State() != breaker.Open && !b.Forced() {
			r.remove(g)
		}
	}
}

// remove forgets a path; the next request to it makes a new one.
func (r *registry) remove(g *guard) {
	r.mu.Lock()
	if r.closed || r.lookup(g.upstream) != g {
		r.mu.Unlock()
		return
	}
	next := maps.Clone(*r.snapshot.Load())
	delete(next, g.upstream)
	r.snapshot.Store(&next)
	if !g.static {
		r.dynamic--
	}
	r.mu.Unlock()
	g.unwatch()
	_, _ = pool.Delete(g.entry.key)
}

// close gives back every reference. The guards stay where they are: requests
// that the old config is still serving go on asking them, and where the path is
// in the new config, too, that is one breaker.
func (r *registry) close() error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	var errs []error
	for _, g := range r.guards() {
		g.unwatch()
		_, err := pool.Delete(g.entry.key)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// touch notes that the path is in use. Static paths do not care.
func (g *guard) touch() {
	if !g.static {
		if now := time.Now().Unix(); g.lastUsed.Load() != now {
			g.lastUsed.Store(now)
		}
	}
}

func (g *guard) watch(a *App) {
	g.watchMu.Lock()
	defer g.watchMu.Unlock()
	if g.ended != nil {
		return
	}
	g.entry.watchBy(a)
	end := func() {}
	if w, ok := g.definer.(watcher); ok {
		end = w.watch(g)
	}
	g.ended = func() {
		end()
		g.entry.unwatch(a)
	}
}

func (g *guard) unwatch() {
	g.watchMu.Lock()
	defer g.watchMu.Unlock()
	if g.ended != nil {
		g.ended()
		g.ended = nil
	}
}
