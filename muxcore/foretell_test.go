package muxcore_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/filestore"
)

// foretelling is a mux and who in it is down.
type foretelling struct {
	set    muxcore.Settings
	down   []string // of b0, b1 and b2
	readOn []string // only
}

func (f foretelling) build(t *testing.T) *muxcore.Mux {
	backends, _ := crowd(t, 1, 1, 1)
	state := new(muxcore.State)
	set := f.set
	for i := range backends {
		b := &backends[i]
		b.ReadOnly = slices.Contains(f.readOn, b.Name)
		one := muxcore.BackendState{Name: b.Name}
		if slices.Contains(f.down, b.Name) {
			bad := muxcore.HealthState{Down: true, Failures: 1, Until: time.Now().Add(time.Hour - time.Duration(i)*time.Minute), Err: errUnavailable}
			one.Reads, one.Writes = bad, bad
		}
		state.Backends = append(state.Backends, one)
	}
	set.State, set.Cooldown, set.MaxCooldown = state, time.Hour, time.Hour
	return newMux(t, set, backends...)
}

// What is foretold of an operation is what it comes to: the code that it fails with, or none.
func TestExplainForetellsWhatFails(t *testing.T) {
	ops := map[muxcore.Op]func(m *muxcore.Mux) error{
		muxcore.OpGet: func(m *muxcore.Mux) error {
			o, err := m.Get(t.Context(), "k", muxcore.GetOptions{})
			if err == nil {
				_ = o.Body.Close()
			}
			return err
		},
		muxcore.OpPut: func(m *muxcore.Mux) error {
			_, err := m.Put(t.Context(), "k", strings.NewReader("x"), 1, muxcore.PutOptions{})
			return err
		},
		muxcore.OpDelete: func(m *muxcore.Mux) error {
			_, err := m.Delete(t.Context(), "k", muxcore.DeleteOptions{})
			return err
		},
	}
	codes := make(map[muxcore.Code]int)
	for _, mode := range muxcore.Modes() {
		for _, down := range []string{"", "b0", "b1", "b0 b1", "b0 b1 b2"} {
			for _, only := range []string{"", "b0", "b0 b1 b2"} {
				for _, set := range []muxcore.Settings{{}, {LastResort: true}, {WriteQuorum: 2}, {WriteQuorum: muxcore.QuorumAll, LastResort: true}, {FailPartialWrites: true}} {
					if set.Mode = mode; set.WriteQuorum > 1 && (mode != muxcore.Mirror || only == "b0 b1 b2") {
						continue
					}
					for op, do := range ops {
						f := foretelling{set, strings.Fields(down), strings.Fields(only)}
						m := f.build(t)
						x, err := m.Explain(muxcore.ExplainOptions{Op: op, Key: "k"})
						if err != nil {
							t.Fatal(err)
						}
						if err := do(m); muxcore.CodeOf(err) != x.Code || (x.Code == "") != (x.Failure == "") {
							t.Errorf("%s of %+v = %v, and foretold is %s %q: %s", op, f, err, x.Code, x.Failure, told(&x))
						}
						codes[x.Code]++
						if x.Code == muxcore.CodeReadOnly && told(&x) != "b0:0/0 b1:0/0 b2:0/0" {
							t.Errorf("%s of %+v asks somebody: %s", op, f, told(&x))
						}
					}
				}
			}
		}
	}
	if len(codes) != 4 {
		t.Errorf("codes foretold: %v, want none and three", codes)
	}
}

// Who is taken for down has just failed: the one that is down in fact is due back before it.
func TestExplainForetellsTheLastResort(t *testing.T) {
	for down, want := range map[string]string{
		"b0 b1 b2": "b0:0/0 b1:0/0 b2:1/1", // the shortest of the cooldowns
		"b0 b1":    "b0:0/0 b1:1/1 b2:0/0",
		"b0":       "b0:1/1 b1:0/0 b2:0/0",
		"":         "b0:1/1 b1:0/0 b2:0/0", // all alike: the first
	} {
		m := foretelling{set: muxcore.Settings{LastResort: true}, down: strings.Fields(down)}.build(t)
		for _, op := range []muxcore.Op{muxcore.OpGet, muxcore.OpPut, muxcore.OpDelete} {
			x, err := m.Explain(muxcore.ExplainOptions{Op: op, Down: []string{"b0", "b1", "b2"}})
			if got := told(&x); got != want || err != nil || x.Code != "" {
				t.Errorf("%s with %q down: %s %s, %v, want %s", op, down, got, x.Code, err, want)
			}
		}
	}
}

// A mux that is taken for down asks nobody inside, not even as a last resort; one whose backends are all down has its own.
func TestExplainOfANestedMuxAndTheLastResort(t *testing.T) {
	backends, _ := crowd(t, 1, 1, 1)
	inner := newMuxUnclosed(t, muxcore.Settings{LastResort: true}, backends[1:]...)
	m := newMux(t, muxcore.Settings{}, muxcore.Backend{Name: "eu", Store: inner}, backends[0])
	for down, want := range map[string]string{
		"eu":          "eu:0/0[b1:0/0 b2:0/0] b0:1/1",
		"eu.b1,eu.b2": "eu:1/1[b1:1/1 b2:0/0] b0:2/0",
	} {
		x, err := m.Explain(muxcore.ExplainOptions{Down: strings.Split(down, ",")})
		if got := told(&x); got != want || err != nil {
			t.Errorf("with %s down: %s, %v, want %s", down, got, err, want)
		}
		if down == "eu" && (x.Backends[0].Why != "taken for down" || x.Backends[0].Mux.Backends[0].Why != "taken for down") {
			t.Errorf("with eu down: %+v", x)
		}
	}
}

// A nested mux that would fail is passed over, with its own word for why.
func TestExplainSaysWhyANestedMuxWouldFail(t *testing.T) {
	backends, _ := crowd(t, 1, 1, 1)
	inner := newMuxUnclosed(t, muxcore.Settings{Mode: muxcore.Mirror, WriteQuorum: 2}, backends[1:]...)
	m := newMux(t, muxcore.Settings{}, muxcore.Backend{Name: "eu", Store: inner}, backends[0])
	x, err := m.Explain(muxcore.ExplainOptions{Op: muxcore.OpPut, Down: []string{"eu.b1"}})
	if got := told(&x); got != "eu:0/0[b1:0/0 b2:0/0] b0:1/1" || err != nil || x.Backends[0].Why != "it would fail: write_quorum: 2 backends are needed, 1 are up" {
		t.Errorf("%s, %v: %+v", got, err, x)
	}
}

// A key that one of the backends can never hold cannot be put at all, and yet is read elsewhere.
func TestExplainOfAKeyThatABackendCanNeverHold(t *testing.T) {
	for readOnly, want := range map[bool]map[muxcore.Op]string{
		false: {muxcore.OpPut: "STORAGE.INVALID_KEY file:0/0 b0:0/0", muxcore.OpGet: " file:1/1 b0:2/0"},
		true:  {muxcore.OpPut: " file:0/0 b0:1/1", muxcore.OpGet: " file:1/1 b0:2/0"},
	} {
		files, err := filestore.New(filestore.Settings{Root: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		backends, hooks := crowd(t, 1)
		m := newMux(t, muxcore.Settings{}, muxcore.Backend{Name: "file", Store: files, ReadOnly: readOnly}, backends[0])
		for op, want := range want {
			x, err := m.Explain(muxcore.ExplainOptions{Op: op, Key: "CON/x"})
			if got := fmt.Sprint(x.Code, " ", told(&x)); got != want || err != nil {
				t.Errorf("%s, read_only %t: %s, %v, want %s", op, readOnly, got, err, want)
			}
			if op == muxcore.OpGet && !strings.Contains(x.Backends[0].Why, "can never hold this key") {
				t.Errorf("file is asked because %s", x.Backends[0].Why)
			}
		}
		for _, down := range [][]string{{"b0"}, nil} {
			if down == nil {
				m = newMux(t, muxcore.Settings{}, muxcore.Backend{Name: "file", Store: files})
			}
			hooks[0].set(fails)
			x, err := m.Explain(muxcore.ExplainOptions{Key: "CON/x", Down: down})
			_, real := m.Stat(t.Context(), "CON/x", muxcore.Conditions{})
			if err != nil || x.Code != muxcore.CodeOf(real) || x.Code == "" {
				t.Errorf("with %v down it fails with %s, %v, and in fact with %v", down, x.Code, err, real)
			}
		}
	}
}
