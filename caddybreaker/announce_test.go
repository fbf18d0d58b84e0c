package caddybreaker

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/suaveplan/caddy-storage-mux/muxcore/breaker"
)

func TestABusySubscriberHoldsUpNeitherRequestsNorProbesNorAReload(t *testing.T) {
	o := newOrigin(t)
	gate := make(chan struct{})
	busyGate.Store(&gate)
	t.Cleanup(func() { close(gate) })
	r := start(t, "events {\non relay-breaker.state.changed test_busy\n}", br(o, "probe_uri /health\nprobe_interval 10ms\nprobe_only"))
	trip(r, o, 3)
	o.status.Store(200)
	r.becomes(o, breaker.Closed)
	r.want("/x", 200)
	r.load("", "respond hello") // the subscriber is still busy when it has ended
	r.eventually("the old config to be gone", func() bool { return len(views()) == 0 })
}

func TestEventsWaitUntilEveryAppHasStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []any
		n := newAnnouncer(zap.NewNop(), func(data map[string]any) { told = append(told, data["n"]) })
		go n.serve()
		n.announce(map[string]any{"n": 1})
		synctest.Wait()
		if len(told) != 0 {
			t.Errorf("told %v before the events app may be used", told)
		}
		_ = n.Handle(context.Background(), caddy.Event{})
		synctest.Wait()
		n.announce(map[string]any{"n": 2})
		n.stop()
		if !slices.Equal(told, []any{1, 2}) {
			t.Errorf("told %v, want [1 2]: what happened before the end, too", told)
		}
	})
}

func TestAConfigThatNeverStartedTellsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newAnnouncer(zap.NewNop(), func(data map[string]any) { t.Errorf("told %v", data) })
		go n.serve()
		n.announce(map[string]any{})
		n.stop()
	})
}

func TestEventsForWhichThereIsNoRoomAreDroppedAndTheEndIsNotWaitedForWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		told := 0
		n := newAnnouncer(zap.NewNop(), func(map[string]any) { told++; <-gate })
		go n.serve()
		_ = n.Handle(context.Background(), caddy.Event{})
		n.announce(map[string]any{})
		synctest.Wait()
		for range queueLength + 3 {
			n.announce(map[string]any{})
		}
		if lost := n.lost.Load(); lost != 3 {
			t.Errorf("%d lost, want 3", lost)
		}
		begin := time.Now()
		n.stop()
		if took := time.Since(begin); took != stopPatience {
			t.Errorf("stopped after %s, want %s", took, stopPatience)
		}
		close(gate)
		<-n.done
		if told != 1 {
			t.Errorf("%d told, want 1: after that its config is gone", told)
		}
	})
}

// A reload that fails has attached its app before, and detaches it after.
func TestAFailedReloadSilencesNobody(t *testing.T) {
	app := func(started bool) *App {
		a := &App{announcer: newAnnouncer(zap.NewNop(), nil)}
		if started {
			_ = a.announcer.Handle(t.Context(), caddy.Event{})
		}
		return a
	}
	running, failing, next := app(true), app(false), app(false)
	e := new(entry)
	for i, step := range []struct {
		do   func()
		want *App
	}{
		{func() {}, nil},
		{func() { e.watchBy(failing) }, failing},
		{func() { e.unwatch(failing) }, nil},
		{func() { e.watchBy(running) }, running},
		{func() { e.watchBy(failing) }, running},
		{func() { e.unwatch(failing) }, running},
		{func() { e.watchBy(next) }, running},
		{func() { _ = next.announcer.Handle(t.Context(), caddy.Event{}) }, next},
		{func() { e.unwatch(running) }, next},
	} {
		step.do()
		if got := e.observer(); got != step.want {
			t.Errorf("step %s: the wrong config is told", fmt.Sprint(i))
		}
	}
}
