package muxcore_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/storetest"
)

// model is what a mux over backends that fail at random must look like from outside: a map. It takes every mode in which
// all copies agree, or in which there is one copy, so that there is one truth.
type model struct {
	m      *muxcore.Mux
	hooks  []*hooked
	random *rand.Rand
	truth  map[string]string
	maybe  map[string][]string // what a key may hold after a write that failed, or was partial
}

var modelKeys = []string{"a", "b", "dir/a", "dir/b", "dir/sub/c", "e f", "ü"}

// TestAgainstAModel runs random operations with faults injected, against a map. One backend (b0) is well the whole time:
// no read fails, and none answers what was never there.
func TestAgainstAModel(t *testing.T) {
	for _, mode := range []muxcore.Mode{muxcore.Failover, muxcore.Shield, muxcore.Mirror} {
		for seed := range uint64(storetest.Times(2, 4)) {
			t.Run(fmt.Sprint(mode, "/", seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					backends, hooks := crowd(t, 1, 1, 1)
					if mode == muxcore.Failover {
						backends = backends[:1] // a second one would have a history of its own
						hooks = hooks[:1]
					}
					set := muxcore.Settings{Mode: mode, WriteQuorum: 1, Timeout: time.Second, Cooldown: time.Second, MaxCooldown: 8 * time.Second}
					d := &model{
						m: newMux(t, set, backends...), hooks: hooks, random: rand.New(rand.NewPCG(seed, 7)),
						truth: map[string]string{"k": "body"}, maybe: make(map[string][]string),
					}
					for step := range storetest.Times(150, 400) {
						d.step(t, step)
					}
					d.list(t)
				})
			})
		}
	}
}

func (d *model) step(t *testing.T, step int) {
	t.Helper()
	if len(d.hooks) > 1 && d.random.IntN(4) == 0 { // another backend falls ill, or gets well
		faults := []func(context.Context, muxcore.Op) error{nil, nil, fails, hangs, slow(500 * time.Millisecond)}
		d.hooks[1+d.random.IntN(len(d.hooks)-1)].set(faults[d.random.IntN(len(faults))])
	}
	if d.random.IntN(10) == 0 {
		time.Sleep(time.Duration(d.random.IntN(5000)) * time.Millisecond)
	}
	key := modelKeys[d.random.IntN(len(modelKeys))]
	switch d.random.IntN(5) {
	case 0, 1:
		d.put(t, key, fmt.Sprint("version ", step, strings.Repeat(".", d.random.IntN(100_000))))
	case 2:
		d.remove(t, key)
	default:
		d.get(t, key)
	}
}

func (d *model) put(t *testing.T, key, body string) {
	t.Helper()
	r, err := d.m.Put(t.Context(), key, strings.NewReader(body), int64(len(body)), muxcore.PutOptions{})
	if err != nil {
		t.Fatalf("Put(%q) = %v while b0 is well", key, err)
	}
	d.wrote(key, body, true, len(r.Missed) > 0)
}

func (d *model) remove(t *testing.T, key string) {
	t.Helper()
	r, err := d.m.Delete(t.Context(), key, muxcore.DeleteOptions{})
	_, held := d.truth[key]
	if err != nil && (held || !errors.Is(err, muxcore.ErrKeyNotFound)) {
		t.Fatalf("Delete(%q) = %v, held %v", key, err, held)
	}
	d.wrote(key, "", false, len(r.Missed) > 0)
}

// wrote moves the truth on. A backend that missed the write may still show what was there.
func (d *model) wrote(key, body string, held, missed bool) {
	if missed {
		if old, ok := d.truth[key]; ok {
			d.maybe[key] = append(d.maybe[key], old)
		} else {
			d.maybe[key] = append(d.maybe[key], "(absent)")
		}
	} else {
		delete(d.maybe, key)
	}
	delete(d.truth, key)
	if held {
		d.truth[key] = body
	}
}

func (d *model) get(t *testing.T, key string) {
	t.Helper()
	got, _, err := read(t.Context(), d.m, key, muxcore.GetOptions{})
	want, held := d.truth[key]
	switch {
	case err == nil && held && got == want:
	case err == nil && slices.Contains(d.maybe[key], got): // a copy that a backend kept; repair is not the mux's yet
	case errors.Is(err, muxcore.ErrKeyNotFound) && !held:
	case muxcore.CodeOf(err) == muxcore.CodeAllBackendsDown && !held && len(d.hooks) > 1: // one could not be asked
	default:
		t.Fatalf("Get(%q) = %.30q (%d bytes), %v; want %.30q, held %v", key, got, len(got), err, want, held)
	}
}

// list compares the whole list once everybody is well and was written to.
func (d *model) list(t *testing.T) {
	t.Helper()
	for _, h := range d.hooks {
		h.set(nil)
	}
	time.Sleep(time.Minute)
	for i := range 2 * len(d.hooks) { // trials bring everybody back
		d.get(t, modelKeys[i%len(modelKeys)])
		time.Sleep(time.Second)
	}
	for _, key := range modelKeys {
		d.put(t, key, "last")
	}
	for e, err := range d.m.List(t.Context(), muxcore.ListOptions{}) {
		if err != nil {
			t.Fatalf("List = %v", err)
		}
		if _, ok := d.truth[e.Key]; !ok {
			t.Errorf("List shows %q, which is not there", e.Key)
		}
		delete(d.truth, e.Key)
	}
	if len(d.truth) > 0 {
		t.Errorf("List lacks %v", slices.Sorted(maps.Keys(d.truth)))
	}
}
