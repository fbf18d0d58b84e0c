package muxcore_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// told is an explanation in short: each backend's turn and share, nested ones in brackets.
func told(x *muxcore.Explanation) string {
	var out []string
	for _, one := range x.Backends {
		word := fmt.Sprintf("%s:%d/%.2g", one.Name, one.Turn, one.Share)
		if one.Mux != nil {
			word += "[" + told(one.Mux) + "]"
		}
		out = append(out, word)
	}
	return strings.Join(out, " ")
}

func TestExplainSaysWhoIsAskedInWhichOrder(t *testing.T) {
	const n = 4 // b0 to b3 of weights 1, 2, 0, 5; b3 is a backup
	cases := map[string]struct {
		set  muxcore.Settings
		opts muxcore.ExplainOptions
		want string
	}{
		"failover":            {muxcore.Settings{}, muxcore.ExplainOptions{}, "b0:1/1 b1:2/0 b2:0/0 b3:3/0"},
		"shield":              {muxcore.Settings{Mode: muxcore.Shield}, muxcore.ExplainOptions{}, "b0:1/1 b1:2/0 b2:0/0 b3:3/0"},
		"round robin":         {muxcore.Settings{Mode: muxcore.RoundRobin}, muxcore.ExplainOptions{}, "b0:1/0.5 b1:1/0.5 b2:0/0 b3:2/0"},
		"weighted":            {muxcore.Settings{Mode: muxcore.Weighted}, muxcore.ExplainOptions{}, "b0:1/0.33 b1:1/0.67 b2:0/0 b3:2/0"},
		"mirror":              {muxcore.Settings{Mode: muxcore.Mirror}, muxcore.ExplainOptions{}, "b0:1/1 b1:1/1 b2:0/0 b3:2/0"},
		"sticky, any key":     {muxcore.Settings{Mode: muxcore.StickyByKey}, muxcore.ExplainOptions{}, "b0:1/0.5 b1:1/0.5 b2:0/0 b3:2/0"},
		"rendezvous, any key": {muxcore.Settings{Mode: muxcore.StickyByKey, Rendezvous: true}, muxcore.ExplainOptions{}, "b0:1/0.33 b1:1/0.67 b2:0/0 b3:2/0"},
		"first down":          {muxcore.Settings{}, muxcore.ExplainOptions{Down: []string{"b0"}}, "b0:0/0 b1:1/1 b2:0/0 b3:2/0"},
		"only a backup":       {muxcore.Settings{}, muxcore.ExplainOptions{Down: []string{"b0", "b1"}}, "b0:0/0 b1:0/0 b2:0/0 b3:1/1"},
		"all down":            {muxcore.Settings{}, muxcore.ExplainOptions{Down: []string{"b0", "b1", "b3"}}, "b0:0/0 b1:0/0 b2:0/0 b3:0/0"},
		"put in failover":     {muxcore.Settings{}, muxcore.ExplainOptions{Op: muxcore.OpPut}, "b0:1/1 b1:2/0 b2:0/0 b3:3/0"},
		"put in mirror":       {muxcore.Settings{Mode: muxcore.Mirror}, muxcore.ExplainOptions{Op: muxcore.OpPut}, "b0:1/1 b1:1/1 b2:1/1 b3:1/1"},
		"delete in failover":  {muxcore.Settings{}, muxcore.ExplainOptions{Op: muxcore.OpDelete}, "b0:1/1 b1:1/1 b2:1/1 b3:1/1"},
		"put without origin": {
			muxcore.Settings{Mode: muxcore.Shield}, muxcore.ExplainOptions{Op: muxcore.OpPut, Down: []string{"b0"}}, "b0:0/0 b1:0/0 b2:0/0 b3:0/0",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			backends, _ := crowd(t, 1, 2, 0, 5)
			backends[n-1].Backup = true
			m := newMux(t, c.set, backends...)
			x, err := m.Explain(c.opts)
			if got := told(&x); got != c.want || err != nil {
				t.Errorf("Explain = %s, %v, want %s", got, err, c.want)
			}
			for _, one := range x.Backends {
				if one.Why == "" {
					t.Errorf("%s has no reason", one.Name)
				}
			}
		})
	}
}

// What is foretold is what happens: each backend in turn fails, and the next to answer is the next of the explanation.
func TestExplainForetellsReads(t *testing.T) {
	for name, set := range map[string]muxcore.Settings{
		"failover": {}, "sticky": {Mode: muxcore.StickyByKey}, "rendezvous": {Mode: muxcore.StickyByKey, Rendezvous: true}, "shield": {Mode: muxcore.Shield},
	} {
		t.Run(name, func(t *testing.T) {
			set.Cooldown, set.MaxCooldown = time.Hour, time.Hour
			for i := range 20 {
				backends, hooks := crowd(t, 1, 3, 1, 2)
				m := newMux(t, set, backends...)
				key := fmt.Sprint("key/", i)
				for range hooks {
					x, err := m.Explain(muxcore.ExplainOptions{Key: key})
					if err != nil {
						t.Fatal(err)
					}
					_, err = m.Stat(t.Context(), key, muxcore.Conditions{})
					at := -1
					for n, one := range x.Backends {
						if one.Turn == 1 {
							at = n
						}
					}
					if got := backendOf(err); at < 0 || got != x.Backends[at].Name {
						t.Fatalf("%q was asked of %s, but the explanation is %s", key, got, told(&x))
					}
					hooks[at].set(fails)
					for m.Stats().Backends[at].Status == muxcore.StatusUp {
						_, _ = m.Stat(t.Context(), key, muxcore.Conditions{})
					}
				}
				x, _ := m.Explain(muxcore.ExplainOptions{Key: key})
				for _, one := range x.Backends {
					if one.Turn != 0 || !strings.Contains(one.Why, "next trial at") {
						t.Errorf("with all down, %s has turn %d: %s", one.Name, one.Turn, one.Why)
					}
				}
			}
		})
	}
}

func TestExplainOfNestedMuxes(t *testing.T) {
	backends, _ := crowd(t, 1, 1, 1)
	inner := newMuxUnclosed(t, muxcore.Settings{Mode: muxcore.Mirror}, backends[1:]...)
	m := newMux(t, muxcore.Settings{}, muxcore.Backend{Name: "eu", Store: inner}, backends[0])
	for down, want := range map[string]string{
		"":            "eu:1/1[b1:1/1 b2:1/1] b0:2/0",
		"eu.b1":       "eu:1/1[b1:0/0 b2:1/1] b0:2/0",
		"eu.b1,eu.b2": "eu:0/0[b1:0/0 b2:0/0] b0:1/1",
		"eu":          "eu:0/0[b1:0/0 b2:0/0] b0:1/1",
	} {
		opts := muxcore.ExplainOptions{Key: "k"}
		if down != "" {
			opts.Down = strings.Split(down, ",")
		}
		x, err := m.Explain(opts)
		if got := told(&x); got != want || err != nil {
			t.Errorf("with %q down: %s, %v, want %s", down, got, err, want)
		}
	}
}

func TestExplainRefusesWhatIsNotThere(t *testing.T) {
	backends, _ := crowd(t, 1)
	m := newMux(t, muxcore.Settings{}, backends...)
	for want, opts := range map[muxcore.Code]muxcore.ExplainOptions{
		muxcore.CodeBackendNotFound: {Down: []string{"b7"}},
		muxcore.CodeInvalidKey:      {Key: "a//b"},
	} {
		if _, err := m.Explain(opts); muxcore.CodeOf(err) != want {
			t.Errorf("Explain(%+v) = %v, want %s", opts, err, want)
		}
	}
	if err := m.Drain(t.Context(), "b0"); err != nil {
		t.Fatal(err)
	}
	x, err := m.Explain(muxcore.ExplainOptions{})
	if err != nil || x.Backends[0].Why != "drained" || x.Backends[0].Turn != 0 {
		t.Errorf("Explain of a drained one = %+v, %v", x, errors.Join(err))
	}
}
