package caddymux

import (
	"sync"
	"time"
)

// saveDelay is from a change of health to the file.
const saveDelay = time.Second

// keeper writes the health of a tree to disk, a while after it changed.
type keeper struct {
	wake    chan struct{}
	started sync.Once
	quit    chan struct{}
	done    chan struct{} // nil while not started
	warned  bool
}

func newKeeper() keeper { return keeper{wake: make(chan struct{}, 1), quit: make(chan struct{})} }

// nudge tells the keeper of a change.
func (k *keeper) nudge() {
	select {
	case k.wake <- struct{}{}:
	default: // it is awake
	}
}

// keepHealth starts to remember the health of an open tree. That is not done for commands, which start no app.
func (t *tree) keepHealth() {
	if t.root.journal == "" {
		return
	}
	t.keeper.started.Do(func() {
		t.keeper.done = make(chan struct{})
		t.keeper.nudge() // what t has taken over
		go t.keepLoop()
	})
}

func (t *tree) keepLoop() {
	k := &t.keeper
	defer close(k.done)
	for {
		select {
		case <-k.quit:
			return
		case <-k.wake:
		}
		select {
		case <-k.quit:
			return
		case <-time.After(saveDelay):
		}
		t.saveHealth()
	}
}

// stopKeeping ends it, with how the tree stands at last.
func (t *tree) stopKeeping() {
	k := &t.keeper
	k.started.Do(func() {}) // from here on nobody starts it
	if k.done != nil {
		close(k.quit)
		<-k.done
		t.saveHealth()
	}
}

// saveHealth must not be called by two at a time.
func (t *tree) saveHealth() {
	err := healthOf(t.root.journal).save(t, time.Now())
	if err != nil && !t.keeper.warned {
		t.warn("health cannot be remembered over a restart", t.root, "", err)
	}
	t.keeper.warned = err != nil
}
