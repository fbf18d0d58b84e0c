package muxcore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// slowUpload is a body that gives its first bytes at once, and then one each ten seconds.
func slowUpload(first int) io.Reader {
	return io.MultiReader(strings.NewReader(long(first)), readerFunc(func(p []byte) (int, error) {
		time.Sleep(10 * time.Second)
		return copy(p, "x"), nil
	}))
}

// Once all have refused, nobody waits for what the uploader still has.
func TestARefusedFanOutDoesNotWaitForTheUploader(t *testing.T) {
	for _, mode := range []muxcore.Mode{muxcore.Mirror, muxcore.Shield} {
		synctest.Test(t, func(t *testing.T) {
			backends, hooks := crowd(t, 1, 1)
			hooks[0].set(fails)
			hooks[1].set(fails)
			m := newMux(t, muxcore.Settings{Mode: mode}, backends...)
			begin := time.Now()
			_, err := m.Put(t.Context(), "new", slowUpload(1000), 1_000_000, muxcore.PutOptions{})
			if took := time.Since(begin); took > 10*time.Second || muxcore.CodeOf(err) != muxcore.CodeAllBackendsDown {
				t.Errorf("%s: Put = %v after %v, want all down with the next byte at the latest", mode, err, took)
			}
		})
	}
}

// trickle is a store that takes its time over each 64 KiB, never long enough to make no progress.
type trickle struct {
	*hooked
	pause time.Duration
}

func (s trickle) Put(_ context.Context, _ string, body io.Reader, _ int64, _ muxcore.PutOptions) (muxcore.PutResult, error) {
	buf := make([]byte, 64<<10)
	for {
		if _, err := io.ReadFull(body, buf); err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				err = nil
			}
			return muxcore.PutResult{}, err
		}
		time.Sleep(s.pause)
	}
}

// A member that holds up the others is cut loose when it has done so for its timeout in all, however it spreads that.
func TestASlowMemberOfAFanOutIsCutLoose(t *testing.T) {
	body := long(1 << 20)
	for range 6 { // what lies ready for it when it is cut loose, it must not get by chance
		synctest.Test(t, func(t *testing.T) {
			backends, hooks := crowd(t, 1, 1)
			backends[1].Store = trickle{hooks[1], 25 * time.Second}
			m := newMux(t, muxcore.Settings{Mode: muxcore.Mirror}, backends...)
			begin := time.Now()
			r, err := m.Put(t.Context(), "new", strings.NewReader(body), int64(len(body)), muxcore.PutOptions{})
			if took := time.Since(begin); err != nil || fmt.Sprint(r.Missed) != "[b1]" || took > time.Minute {
				t.Errorf("Put = %v, %v after %v, want it done on b0 within a minute", r.Missed, err, took)
			}
			if s := m.Stats().Backends[1]; !s.WritesDown || s.Timeouts != 1 {
				t.Errorf("b1: writes down %t, %d timeouts", s.WritesDown, s.Timeouts)
			}
		})
	}
}

// Who is slow together holds up nobody.
func TestMembersThatAreAllSlowAreWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backends, hooks := crowd(t, 1, 1)
		for i := range backends {
			backends[i].Store = trickle{hooks[i], 5 * time.Second}
		}
		m := newMux(t, muxcore.Settings{Mode: muxcore.Mirror}, backends...)
		body := long(1 << 20)
		r, err := m.Put(t.Context(), "new", strings.NewReader(body), int64(len(body)), muxcore.PutOptions{})
		if err != nil || len(r.Missed) != 0 {
			t.Errorf("Put = %v, %v, want it done on both", r.Missed, err)
		}
	})
}

// An origin that hangs is the origin's fault alone: a mirror is not blamed, and commits nothing.
func TestAMirrorDoesNotAnswerForItsOrigin(t *testing.T) {
	for _, size := range []int{2000, 100_000} {
		synctest.Test(t, func(t *testing.T) {
			backends, hooks := crowd(t, 1, 1)
			backends[0].Store = stuckPut{hooks[0]}
			m := newMux(t, muxcore.Settings{Mode: muxcore.Shield, Timeout: time.Second}, backends...)
			if _, err := m.Put(t.Context(), "new", strings.NewReader(long(size)), int64(size), muxcore.PutOptions{}); muxcore.CodeOf(err) != muxcore.CodeBackendTimeout {
				t.Errorf("Put = %v, want the timeout of the origin", err)
			}
			if s := m.Stats().Backends; !s[0].WritesDown || s[1].WritesDown {
				t.Errorf("writes down: origin %t, mirror %t", s[0].WritesDown, s[1].WritesDown)
			}
			if _, err := hooks[1].Store.Stat(t.Context(), "new", muxcore.Conditions{}); err == nil {
				t.Error("the mirror has committed")
			}
		})
	}
}

// A no that all of them say is the answer, of the first who said it; one that only some say is what they have missed.
func TestANoOfAllIsTheAnswer(t *testing.T) {
	for _, mode := range []muxcore.Mode{muxcore.Failover, muxcore.Mirror} {
		backends, hooks := crowd(t, 1, 1)
		hooks[0].set(answers(muxcore.CodeTooLarge))
		hooks[1].set(answers(muxcore.CodeTooLarge))
		m := newMux(t, muxcore.Settings{Mode: mode}, backends...)
		if _, err := m.Put(t.Context(), "new", strings.NewReader("x"), 1, muxcore.PutOptions{}); muxcore.CodeOf(err) != muxcore.CodeTooLarge || backendOf(err) != "b0" {
			t.Errorf("%s: Put = %v, want the answer of b0", mode, err)
		}
		if _, err := m.Delete(t.Context(), "k", muxcore.DeleteOptions{}); muxcore.CodeOf(err) != muxcore.CodeTooLarge || backendOf(err) != "b0" {
			t.Errorf("%s: Delete = %v, want the answer of b0", mode, err)
		}
		hooks[1].set(nil)
		if r, err := m.Delete(t.Context(), "k", muxcore.DeleteOptions{}); err != nil || fmt.Sprint(r.Missed) != "[b0]" || r.Via.Backend != "b1" {
			t.Errorf("%s: Delete = %+v, %v, want it done on b1", mode, r, err)
		}
	}
}

// "Not found" is no answer to a Put: that backend has missed it (its bucket is gone), and whoever asked is told.
func TestNotFoundIsNoAnswerToAPut(t *testing.T) {
	for _, mode := range []muxcore.Mode{muxcore.Mirror, muxcore.Shield} {
		backends, hooks := crowd(t, 1, 1)
		hooks[1].set(answers(muxcore.CodeKeyNotFound))
		m := newMux(t, muxcore.Settings{Mode: mode}, backends...)
		if r := put(t, m, "new", "x"); fmt.Sprint(r.Missed) != "[b1]" {
			t.Errorf("%s: missed by %v, want b1", mode, r.Missed)
		}
		strict := newMux(t, muxcore.Settings{Mode: mode, FailPartialWrites: true}, backends...)
		if _, err := strict.Put(t.Context(), "new", strings.NewReader("x"), 1, muxcore.PutOptions{}); muxcore.CodeOf(err) != muxcore.CodeWriteFanoutPartial {
			t.Errorf("%s: Put = %v, want partial", mode, err)
		}
	}
}

// With all down, the last resort is tried for every kind of write.
func TestTheLastResortHoldsForWrites(t *testing.T) {
	for _, mode := range muxcore.Modes() {
		for _, cond := range []muxcore.Conditions{{}, {IfMatch: "*"}} {
			backends, hooks := crowd(t, 1, 1)
			both := func(before func(context.Context, muxcore.Op) error) {
				hooks[0].set(before)
				hooks[1].set(before)
			}
			m := newMux(t, muxcore.Settings{Mode: mode, LastResort: true, Cooldown: time.Hour, MaxCooldown: time.Hour}, backends...)
			for what, write := range map[string]func() error{
				"Put": func() error {
					_, err := m.Put(t.Context(), "k", strings.NewReader("x"), 1, muxcore.PutOptions{Conditions: cond})
					return err
				},
				"Delete": func() error {
					_, err := m.Delete(t.Context(), "k", muxcore.DeleteOptions{Conditions: cond})
					put(t, hooks[0].Store, "k", "again")
					put(t, hooks[1].Store, "k", "again")
					return err
				},
			} {
				both(fails)
				for range 2 {
					if err := write(); err == nil {
						t.Fatalf("%s: %s succeeds with all failing", mode, what)
					}
				}
				both(nil)
				if err := write(); err != nil {
					t.Errorf("%s: %s under %+v = %v, want the last resort tried", mode, what, cond, err)
				}
			}
		}
	}
}

// A backend of weight 0 takes writes as long as it is well, whether the others are or not.
func TestAWriterOfWeight0IsEnough(t *testing.T) {
	backends, hooks := crowd(t, 1, 0)
	hooks[0].set(fails)
	m := newMux(t, muxcore.Settings{Mode: muxcore.Mirror, Cooldown: time.Hour, MaxCooldown: time.Hour}, backends...)
	for i := range 2 {
		r, err := m.Put(t.Context(), "new", strings.NewReader("x"), 1, muxcore.PutOptions{})
		if err != nil || fmt.Sprint(r.Missed) != "[b0]" || r.Via.Backend != "b1" {
			t.Errorf("Put %d = %+v, %v, want it on b1", i, r, err)
		}
	}
}

// A quorum that nobody can reach is an error of the config.
func TestAQuorumBeyondTheWritableIsRefused(t *testing.T) {
	backends, _ := crowd(t, 1, 1)
	backends[1].ReadOnly = true
	_, err := muxcore.New(muxcore.Settings{Mode: muxcore.Mirror, WriteQuorum: 2}, backends...)
	if err == nil || !strings.Contains(err.Error(), "write_quorum") {
		t.Errorf("New with a quorum of 2 of 1 = %v, want it refused by name", err)
	}
	newMux(t, muxcore.Settings{Mode: muxcore.Mirror, WriteQuorum: muxcore.QuorumAll}, backends...)
}

// What cannot succeed is refused before a byte of the body is asked for, and nobody commits.
func TestAHopelessWriteIsRefusedBeforeItsBody(t *testing.T) {
	drain := func(name string) func(*testing.T, *muxcore.Mux, []*hooked) {
		return func(t *testing.T, m *muxcore.Mux, _ []*hooked) {
			if err := m.Drain(t.Context(), name); err != nil {
				t.Fatal(err)
			}
		}
	}
	breakDown := func(who ...int) func(*testing.T, *muxcore.Mux, []*hooked) {
		return func(t *testing.T, m *muxcore.Mux, hooks []*hooked) {
			for _, i := range who {
				hooks[i].set(fails)
			}
			_, _ = m.Put(t.Context(), "other", strings.NewReader("x"), 1, muxcore.PutOptions{})
		}
	}
	nothing := func(*testing.T, *muxcore.Mux, []*hooked) {}
	for name, row := range map[string]struct {
		set      muxcore.Settings
		readOnly int // backend, -1 none
		happens  func(*testing.T, *muxcore.Mux, []*hooked)
		want     muxcore.Code
	}{
		"a shield whose origin is drained":      {muxcore.Settings{Mode: muxcore.Shield}, -1, drain("b0"), muxcore.CodeAllBackendsDown},
		"a shield whose origin is read-only":    {muxcore.Settings{Mode: muxcore.Shield}, 0, nothing, muxcore.CodeReadOnly},
		"a shield whose origin is down":         {muxcore.Settings{Mode: muxcore.Shield}, -1, breakDown(0), muxcore.CodeAllBackendsDown},
		"a mirror that is all down":             {muxcore.Settings{Mode: muxcore.Mirror}, -1, breakDown(0, 1, 2), muxcore.CodeAllBackendsDown},
		"a quorum of which one is drained":      {muxcore.Settings{Mode: muxcore.Mirror, WriteQuorum: 3}, -1, drain("b1"), muxcore.CodeWriteFanoutPartial},
		"a quorum of which one is down":         {muxcore.Settings{Mode: muxcore.Mirror, WriteQuorum: muxcore.QuorumAll}, -1, breakDown(1), muxcore.CodeWriteFanoutPartial},
		"a majority of which too many are down": {muxcore.Settings{Mode: muxcore.Mirror, WriteQuorum: muxcore.QuorumMajority}, -1, breakDown(1, 2), muxcore.CodeWriteFanoutPartial},
		"failover that is all down":             {muxcore.Settings{}, -1, breakDown(0, 1, 2), muxcore.CodeAllBackendsDown},
	} {
		t.Run(name, func(t *testing.T) {
			backends, hooks := crowd(t, 1, 1, 1)
			if row.readOnly >= 0 {
				backends[row.readOnly].ReadOnly = true
			}
			row.set.Cooldown, row.set.MaxCooldown = time.Hour, time.Hour
			m := newMux(t, row.set, backends...)
			row.happens(t, m, hooks)
			body := strings.NewReader("body")
			if _, err := m.Put(t.Context(), "new", body, 4, muxcore.PutOptions{}); muxcore.CodeOf(err) != row.want || body.Len() != 4 {
				t.Errorf("Put = %v with %d of 4 bytes left, want %s and all of them", err, body.Len(), row.want)
			}
			for i, h := range hooks {
				if _, err := h.Store.Stat(t.Context(), "new", muxcore.Conditions{}); err == nil {
					t.Errorf("backend %d has committed", i)
				}
			}
		})
	}
}
