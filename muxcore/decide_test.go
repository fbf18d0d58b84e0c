package muxcore_test

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/storetest"
)

// In failover, a conditional write went to the first backend that can decide conditions, although the one that is read first, and
// cannot, had the key: If-None-Match: * was a success, and later overwrote what that one held.
func TestNobodyDecidesAboutWhatAnotherHolds(t *testing.T) {
	large := strings.Repeat("0123456789", 10_000)
	put := func(body string) func(*testing.T, *muxcore.Mux, muxcore.Conditions) error {
		return func(t *testing.T, m *muxcore.Mux, cond muxcore.Conditions) error {
			t.Helper()
			_, err := m.Put(t.Context(), "k", io.MultiReader(strings.NewReader(body)), -1, muxcore.PutOptions{Conditions: cond})
			return err
		}
	}
	ops := map[string]func(*testing.T, *muxcore.Mux, muxcore.Conditions) error{
		"Put": put("new"), "Put of much": put(large),
		"CheckPut": func(t *testing.T, m *muxcore.Mux, cond muxcore.Conditions) error {
			t.Helper()
			return m.CheckPut(t.Context(), "k", muxcore.PutOptions{Conditions: cond})
		},
		"Delete": func(t *testing.T, m *muxcore.Mux, cond muxcore.Conditions) error {
			t.Helper()
			_, err := m.Delete(t.Context(), "k", muxcore.DeleteOptions{Conditions: cond})
			return err
		},
	}
	holds := func(at ...int) func(*testing.T, *muxcore.Mux, []*storetest.Faulty) {
		return func(t *testing.T, _ *muxcore.Mux, stores []*storetest.Faulty) {
			t.Helper()
			for _, i := range at {
				version(t, stores[i], "k", 1)
			}
		}
	}
	is, other, none := muxcore.Conditions{IfMatch: `"k-1"`}, muxcore.Conditions{IfMatch: `"k-2"`}, muxcore.Conditions{IfNoneMatch: "*"}
	for _, test := range []struct {
		name   string
		set    func(*testing.T, *muxcore.Mux, []*storetest.Faulty)
		cond   muxcore.Conditions
		want   muxcore.Code // of writes
		blamed string
	}{
		{"it has one, and should have none", holds(0), none, muxcore.CodePreconditionFailed, "a"},
		{"it has another", holds(0), other, muxcore.CodePreconditionFailed, "a"},
		{"it has the very one", holds(0), is, muxcore.CodeUnsupported, "a"},
		{"both have the very one", holds(0, 1), is, muxcore.CodeUnsupported, "a"},
		{"it has none", holds(1), is, "", ""},
		{"it has none, and the other one has another", holds(1), other, muxcore.CodePreconditionFailed, "b"},
		{"it cannot be asked", func(t *testing.T, m *muxcore.Mux, stores []*storetest.Faulty) {
			t.Helper()
			holds(0, 1)(t, m, stores)
			stores[0].Break(errBroken)
		}, is, "", ""},
		{"it is drained", func(t *testing.T, m *muxcore.Mux, stores []*storetest.Faulty) {
			t.Helper()
			holds(0, 1)(t, m, stores)
			if err := m.Drain(t.Context(), "a"); err != nil {
				t.Fatal(err)
			}
		}, is, "", ""},
	} {
		for name, do := range ops {
			t.Run(fmt.Sprint(test.name, "/", name), func(t *testing.T) {
				stores := three(t)[:2]
				plain := muxcore.CapabilitiesOf(stores[0])
				plain.ConditionalWrite = false
				stores[0].SetCapabilities(plain)
				m := newMux(t, muxcore.Settings{}, named(stores...)...)
				test.set(t, m, stores)
				before := stores[1].Calls(muxcore.OpPut) + stores[1].Calls(muxcore.OpDelete)
				err := do(t, m, test.cond)
				if muxcore.CodeOf(err) != test.want || err != nil && name != "CheckPut" && backendOf(err) != test.blamed {
					t.Errorf("%s = %v, want %q of %q", name, err, test.want, test.blamed)
				}
				if n := stores[1].Calls(muxcore.OpPut) + stores[1].Calls(muxcore.OpDelete) - before; test.blamed == "a" && name != "Put of much" && n > 0 {
					t.Errorf("the other one was asked %d times to write", n)
				}
				for i, s := range stores {
					body, _, err := read(t.Context(), s, "k", muxcore.GetOptions{})
					if test.want != "" && err == nil && body != "version 1 of k." {
						t.Errorf("backend %d holds %.20q after a write that was refused", i, body)
					}
				}
			})
		}
	}
}

// The key's own backend in sticky_by_key likewise.
func TestNobodyDecidesInPlaceOfTheKeysOwnBackend(t *testing.T) {
	stores := three(t)
	plain := muxcore.CapabilitiesOf(stores[0])
	plain.ConditionalWrite = false
	stores[0].SetCapabilities(plain)
	m := newMux(t, muxcore.Settings{Mode: muxcore.StickyByKey}, named(stores...)...)
	own := 0
	for i := range 30 {
		key := fmt.Sprint("k", i)
		put(t, m, key, "body")
		if _, err := stores[0].Stat(t.Context(), key, muxcore.Conditions{}); err == nil {
			own++
		}
		if _, err := putNew(t.Context(), m, key, "second"); muxcore.CodeOf(err) != muxcore.CodePreconditionFailed {
			t.Errorf("Put over %q = %v", key, err)
		}
	}
	if own == 0 {
		t.Error("no key is on the one that cannot decide")
	}
}
