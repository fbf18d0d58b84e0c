package muxcore_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// member is a mux as a backend of others, which count how often they give it back.
func member(m *muxcore.Mux, released *int) muxcore.Backend {
	return muxcore.Backend{Name: "shared", Store: m, Release: func() error { *released++; return nil }}
}

func TestAMuxCanBePartOfSeveralAndOutliveThem(t *testing.T) {
	released := 0
	store := &closeCounter{Store: memory(t)}
	shared, err := muxcore.New(muxcore.Settings{Name: "shared"}, muxcore.Backend{Name: "m", Store: store})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		m, err := muxcore.New(muxcore.Settings{Name: fmt.Sprint("outer", i)}, member(shared, &released), muxcore.Backend{Name: "other", Store: memory(t)})
		if err != nil {
			t.Fatal(err)
		}
		put(t, m, fmt.Sprint(i), "body")
		if i == 0 {
			if err := m.Remove("shared"); err != nil {
				t.Fatal(err)
			}
		}
		if err := m.Close(); err != nil || released != i+1 || store.closed != 0 {
			t.Errorf("Close() = %v; given back %d times, closed %d times", err, released, store.closed)
		}
	}
	for i := range 3 {
		if body, _, err := read(t.Context(), shared, fmt.Sprint(i), muxcore.GetOptions{}); body != "body" || err != nil {
			t.Errorf("the shared mux has %q, %v", body, err)
		}
	}
	if err := shared.Close(); err != nil || store.closed != 1 {
		t.Errorf("Close() = %v, closed %d times", err, store.closed)
	}
}

// closeCounter counts how often a store is closed.
type closeCounter struct {
	muxcore.Store
	closed int
}

func (c *closeCounter) Close() error {
	c.closed++
	return nil
}

func TestWhatIsAboveASharedMuxCountsOnlyWhileItIsThere(t *testing.T) {
	released := 0
	inner := newMux(t, muxcore.Settings{Name: "inner"}, muxcore.Backend{Name: "m", Store: memory(t)})
	top := inner
	var above []*muxcore.Mux
	for i := range muxcore.MaxDepth - 1 {
		m, err := muxcore.New(muxcore.Settings{Name: fmt.Sprint("m", i)}, member(top, &released))
		if err != nil {
			t.Fatal(err)
		}
		top, above = m, append(above, m)
	}
	extra := muxcore.Backend{Name: "extra", Store: newMux(t, muxcore.Settings{}, muxcore.Backend{Name: "m", Store: memory(t)}), Release: func() error { return nil }}
	if err := inner.Add("", extra); muxcore.CodeOf(err) != muxcore.CodeRecursionDepthExceeded {
		t.Errorf("a ninth in the chain: %v", err)
	}
	for _, m := range slices.Backward(above) {
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := inner.Add("", extra); err != nil {
		t.Errorf("with nothing above it any more: %v", err)
	}
}

func TestACycleNamesItsMuxes(t *testing.T) {
	released := 0
	a := newMux(t, muxcore.Settings{Name: "a"}, muxcore.Backend{Name: "m", Store: memory(t)})
	b := newMux(t, muxcore.Settings{Name: "b"}, member(a, &released))
	c := newMux(t, muxcore.Settings{Name: "c"}, member(b, &released))
	for _, test := range []struct {
		to, of *muxcore.Mux
		want   string
	}{{a, a, "a -> a"}, {a, b, "a -> b -> a"}, {a, c, "a -> c -> b -> a"}} {
		err := test.to.Add("", muxcore.Backend{Name: "x", Store: test.of})
		if muxcore.CodeOf(err) != muxcore.CodeRecursionDepthExceeded || !strings.Contains(fmt.Sprint(errors.Unwrap(err)), "a cycle: "+test.want) {
			t.Errorf("Add = %v, want a cycle: %s", err, test.want)
		}
	}
}
