package caddymux

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// trees holds what must outlive a config: a tree that says the same in the next one keeps its health and its counters.
// It is keyed by what a tree says, not by its name alone, so that while an edited config comes up, the old tree and the
// new one live side by side.
var trees = caddy.NewUsagePool()

// treeKey is equal for configs that mean one tree.
type treeKey struct{ name, hash string }

// tree is a mux under the configs and requests that use it. All methods are safe for concurrent use.
type tree struct {
	name  string
	store *muxcore.Mux // set by open
	root  *branch      // what it is opened from

	spool *spool

	doors atomic.Int64 // writable ones

	secrets atomic.Int64 // certificate storages that keep private keys in it

	alone atomic.Bool // of a command: it goes on with nothing, and leaves nothing behind
	locks treeLocks

	born     uint64 // trees count up
	tookOver bool   // from the tree before; guarded by changing

	opened  sync.Once
	openErr error
	made    atomic.Bool // store is there

	coming atomic.Pointer[[]string] // roots of the last backend that was added at run time
	spare  []*member                // out of the mux, since they were removed at run time from the one before
	keeper keeper
	users  atomic.Int64 // configs together are one, each request is one; closed at 0

	mu     sync.Mutex
	views  []*observer    // of the configs that use the tree, in the order they came
	guards map[string]int // of backends that must not be removed

	current  atomic.Pointer[observer]
	counters counters
	done     chan struct{} // closed when everything is closed
	err      error         // of closing; set before done is closed
}

// errClosed is what an acquired tree cannot be.
var errClosed = errors.New("tree is closed")

// newTree makes the stores of a tree and checks that a mux can be made of them.
func newTree(root *branch) (*tree, error) {
	t := &tree{name: root.name, root: root, born: births.Add(1), keeper: newKeeper(), done: make(chan struct{})}
	if err := root.openStores(); err != nil {
		return nil, err
	}
	if err := root.checkLocks(); err != nil {
		return nil, errors.Join(err, root.closeStores())
	}
	t.spool = takeSpool()
	for _, dir := range root.journalDirs() {
		takeJournal(dir)
	}
	t.users.Store(1)
	return t, nil
}

// open makes the mux, and with it starts its health checks. That is not done while a config is provisioned, as that
// happens for `caddy validate` as well.
func (t *tree) open() error {
	t.opened.Do(func() {
		l := t.takeOver()
		if t.store, t.openErr = t.root.build(t, l); t.openErr != nil {
			t.openErr = errors.Join(t.openErr, l.abandon())
		}
		t.made.Store(t.openErr == nil)
		changing.count.Add(1)
	})
	return t.openErr
}

// acquire keeps the tree open until release, or the one that has taken its place. The error is errClosed when the config is gone and
// nothing has taken its place.
func (t *tree) acquire() (*tree, error) {
	if !t.enter() {
		if t = newest(t.name); t == nil {
			return nil, errClosed
		}
	}
	if err := t.open(); err != nil {
		t.release()
		return nil, fmt.Errorf("tree %q: %w", t.name, err)
	}
	return t, nil
}

// peek is acquire for those who only look at a tree that is at work already. It never falls back to another one.
func (t *tree) peek() *tree {
	if !t.enter() {
		return nil
	}
	if t.open() != nil {
		t.release()
		return nil
	}
	return t
}

// enter counts a user, unless the tree is closed or about to be.
func (t *tree) enter() bool {
	for {
		n := t.users.Load()
		if n == 0 {
			return false
		}
		if t.users.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// newest finds the tree that a newer config has under a name, and counts a user of it: that of the running config, if it has one. Of the
// others, one may be of a config that is only being loaded, and another of one that is gone, while a tree that stays uses it.
func newest(name string) *tree {
	for _, t := range slices.Concat(activeTrees(), namesakes(name)) {
		if t.name == name && t.enter() {
			return t
		}
	}
	return nil
}

// release gives back what acquire took. The last one closes the tree.
func (t *tree) release() {
	if t.users.Add(-1) > 0 {
		return
	}
	t.opened.Do(func() { t.openErr = errClosed })
	if t.store != nil {
		t.stopKeeping()
		t.err = t.store.Close()
	} else {
		t.err = errors.Join(t.root.closeStores(), t.root.leaveUsed())
	}
	for _, one := range t.spare {
		t.err = errors.Join(t.err, one.close())
	}
	t.spool.giveBack()
	for _, dir := range t.root.journalDirs() {
		t.err = errors.Join(t.err, giveJournal(dir))
	}
	close(t.done)
}

// lateness is how long a tree without a successor stays for requests of the config that has ended. Caddy ends a config while such requests are
// still on their way through its handlers.
var lateness = 2 * time.Second

// Destruct implements caddy.Destructor: no config uses the tree any more. Requests may, and then they close it.
func (t *tree) Destruct() error {
	if lateness > 0 && t.made.Load() && !caddy.Exiting() && !t.alone.Load() && !t.hasSuccessor() {
		time.AfterFunc(lateness, func() {
			if err := t.close(); err != nil {
				caddy.Log().Named("storage_mux").Error("closing a tree", zap.String("tree", t.name), zap.Error(err))
			}
		})
		return nil
	}
	return t.close()
}

// close is release by the configs.
func (t *tree) close() error {
	t.release()
	select {
	case <-t.done:
		return t.err
	default:
		return nil
	}
}

// hasSuccessor tells whether late requests find a tree of the same name instead.
func (t *tree) hasSuccessor() bool {
	next := newest(t.name)
	if next == nil {
		return false
	}
	next.release()
	return true
}

// watchBy makes an observer the one that is told of events; when it leaves, the one before it is again.
func (t *tree) watchBy(o *observer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.views = append(t.views, o)
	t.current.Store(o)
}

func (t *tree) unwatch(o *observer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := slices.Index(t.views, o); i >= 0 {
		t.views = slices.Delete(t.views, i, i+1)
	}
	var last *observer
	if n := len(t.views); n > 0 {
		last = t.views[n-1]
	}
	t.current.Store(last)
}

// listener is who is told of events: the newest config, or while that is still coming up, the one before it.
func (t *tree) listener() *observer {
	o := t.current.Load()
	if o == nil || o.running.Load() {
		return o
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, older := range slices.Backward(t.views) {
		if older.running.Load() {
			return older
		}
	}
	return o
}

// observe counts an attempt, and hands other events to the newest config.
func (t *tree) observe(e muxcore.Event) {
	switch e.Kind {
	case muxcore.EventAttempt:
		t.counters.attempt(&e)
		if e.Class.Counts() {
			t.keeper.nudge()
		}
		return
	case muxcore.EventRepaired:
		t.counters.repaired(&e)
	case muxcore.EventBackendDown, muxcore.EventBackendRecovered:
		t.keeper.nudge()
	default:
	}
	if o := t.listener(); o != nil {
		o.observe(&e)
	}
}

// openStores makes the stores of all backends. If one cannot be made, none is left open.
func (b *branch) openStores() error {
	for i := range b.members {
		one := &b.members[i]
		var err error
		switch {
		case one.nested != nil:
			err = one.nested.openStores()
		case one.used == nil:
			if one.store, err = one.module.OpenStore(); err != nil {
				one.store = nil // it may be a nil pointer, which is not a nil Store
			}
		}
		if err != nil {
			_ = b.closeStores()
			return fmt.Errorf("backend %q: %w", one.Name, err)
		}
	}
	return b.checkCore(b.listed(nil))
}

// checkCore lets the core look at a mux before it is made. A nested mux has been looked at by itself.
func (b *branch) checkCore(members []*member) error {
	backends := make([]muxcore.Backend, len(members))
	for i, one := range members {
		backends[i] = one.core(unmade{})
	}
	return muxcore.Check(b.set, backends...)
}

// unmade stands for a nested mux while nobody calls it.
type unmade struct{ muxcore.Store }

// core is the member as the core takes it. mux is what stands in for one that is a mux, nested or used.
func (one *member) core(mux muxcore.Store) muxcore.Backend {
	b := muxcore.Backend{
		Name: one.Name, Store: one.store, Weight: one.Weight, ReadOnly: one.ReadOnly, Backup: one.Backup,
		Timeout: one.timeout(), HealthKey: one.HealthKey, Spec: one,
	}
	if one.inner() != nil {
		b.Store = mux
	}
	if one.used != nil {
		b.Release = one.used.leave
	}
	return b
}

// build makes the mux, as a part of t, to go on with l.
func (b *branch) build(t *tree, l *legacy) (*muxcore.Mux, error) {
	set := b.set
	set.State = l.core()
	if l != nil {
		t.spare = append(t.spare, l.removed...)
	}
	set.Observe, set.Spool = t.observe, t.spool.core
	if b.byDoors {
		set.ReadRepairIf = func() bool { return t.doors.Load() > 0 }
	}
	if b.journal != "" {
		set.Journal = journalOf(b.journal).Scope(b.scope)
	}
	var backends []muxcore.Backend
	list := b.listed(l)
	for i, one := range list {
		made, err := one.build(t, l.of(one.Name))
		if err != nil {
			return nil, errors.Join(err, unbuild(list[:i], backends, l))
		}
		backends = append(backends, made)
	}
	mux, err := muxcore.New(set, backends...)
	if err != nil {
		return nil, errors.Join(err, unbuild(list, backends, l))
	}
	return mux, nil
}

// unbuild closes the muxes that were made of members for one that could not be made. Stores that no mux has are left to the tree.
func unbuild(members []*member, made []muxcore.Backend, l *legacy) error {
	var errs []error
	for i, one := range members {
		if one.nested != nil {
			errs = append(errs, muxcore.Close(made[i].Store))
			one.nested.forget(l.of(one.Name))
		}
	}
	return errors.Join(errs...)
}

// forget has the members of a mux that is closed know that their stores are.
func (b *branch) forget(l *legacy) {
	for _, one := range b.listed(l) {
		one.store = nil
		if one.nested != nil {
			one.nested.forget(l.of(one.Name))
		}
	}
}

// build makes the member, as a part of t.
func (one *member) build(t *tree, l *legacy) (b muxcore.Backend, err error) {
	var mux *muxcore.Mux
	switch {
	case one.nested != nil:
		mux, err = one.nested.build(t, l)
	case one.used != nil:
		mux, err = one.used.open()
	}
	return one.core(mux), err
}

// closeStores closes the stores of a tree that never became a mux.
func (b *branch) closeStores() error {
	var errs []error
	for i := range b.members {
		errs = append(errs, b.members[i].closeStore())
	}
	return errors.Join(errs...)
}

// closeStore closes the store of a member that no mux has; not what it uses, which takes the pool's lock.
func (one *member) closeStore() (err error) {
	switch {
	case one.nested != nil:
		return one.nested.closeStores()
	case one.store != nil:
		err = muxcore.Close(one.store)
		one.store = nil
	}
	return err
}

// close closes the store of a member that no mux has, and gives back what it uses.
func (one *member) close() error { return errors.Join(one.closeStore(), one.leaveUsed()) }
