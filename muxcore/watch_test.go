package muxcore

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// The timer of a watch may fire at the very moment at which it is stopped; it must not wind itself up for ever then.
func TestAStoppedWatchLeavesNoTimer(t *testing.T) {
	for _, paused := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWatch(context.Background(), time.Second)
			if paused {
				w.pause()
			}
			w.stop()
			w.look() // as if the timer had fired when stop came
			time.Sleep(time.Hour)
			if w.timer.Stop() || w.stalled() {
				t.Error("the timer of a stopped watch is armed an hour later, or has ended it")
			}
		})
	}
}

// Only time spent waiting for the backend counts, each wait by itself.
func TestAWatchCountsOnlyTheBackendsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatch(context.Background(), time.Second)
		defer w.stop()
		for range 10 {
			time.Sleep(900 * time.Millisecond)
			w.pause()
			time.Sleep(time.Hour)
			w.wait()
		}
		if w.ctx.Err() != nil {
			t.Fatal("ended although no wait took its timeout")
		}
		w.answered(time.Minute)
		w.wait()
		time.Sleep(59 * time.Second)
		if w.ctx.Err() != nil {
			t.Fatal("ended before the timeout that holds after the answer")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if !w.stalled() {
			t.Error("a wait of the whole timeout has not ended it")
		}
	})
}

// What was removed stays removed, whoever was about to put it back.
func TestARemovedBackendIsNotPutBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d drainState
		if !d.enter() {
			t.Fatal("no entry while in service")
		}
		d.stage.Store(draining)
		done := make(chan error, 1)
		go func() { done <- d.wait(context.Background()) }()
		synctest.Wait()
		d.stage.Store(removed)
		if d.move(draining, inService) || d.move(drained, inService) || d.move(draining, drained) || d.enter() {
			t.Error("it was put back, or entered")
		}
		d.leave()
		if err := <-done; err != nil || d.inFlight.Load() != 0 {
			t.Errorf("wait = %v with %d in flight", err, d.inFlight.Load())
		}
	})
}
