package muxcore_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/journal"
	"github.com/suaveplan/caddy-storage-mux/muxcore/storetest"
)

// repair gives the steps as "action key backend from state", sorted, and the errors.
func repair(tb testing.TB, m *muxcore.Mux, opts muxcore.RepairOptions) (steps []string, errs []error) {
	tb.Helper()
	for s, err := range m.Repair(tb.Context(), opts) {
		if err != nil {
			errs = append(errs, err)
			continue
		}
		steps = append(steps, strings.Join([]string{string(s.Action), s.Key, s.Backend, s.From, string(s.State)}, " "))
	}
	slices.Sort(steps)
	return steps, errs
}

// wantRepaired fails the test if Repair does anything else.
func wantRepaired(tb testing.TB, m *muxcore.Mux, opts muxcore.RepairOptions, want ...string) {
	tb.Helper()
	got, errs := repair(tb, m, opts)
	if diff := cmp.Diff(want, got); diff != "" || len(errs) > 0 {
		tb.Errorf("Repair(%+v): %v, steps (-want +got):\n%s", opts, errors.Join(errs...), diff)
	}
}

// holds gives everything that a store holds, by key.
func holds(tb testing.TB, s muxcore.Store) map[string]string {
	tb.Helper()
	all := make(map[string]string)
	for _, prefix := range []string{"", muxcore.InternalPrefix} {
		for e, err := range s.List(tb.Context(), muxcore.ListOptions{Prefix: prefix}) {
			if err != nil {
				tb.Fatal(err)
			}
			body, _, err := read(tb.Context(), s, e.Key, muxcore.GetOptions{})
			if err != nil {
				tb.Fatalf("Get(%q) = %v", e.Key, err)
			}
			all[e.Key] = body
		}
	}
	return all
}

func TestRepairCopiesWhatIsMissingOrDiffers(t *testing.T) {
	for _, mode := range []muxcore.Mode{muxcore.Mirror, muxcore.Failover, muxcore.RoundRobin} {
		stores := three(t)
		m := newMux(t, muxcore.Settings{Mode: mode}, named(stores...)...)
		for i, s := range stores {
			version(t, s, "same", 1)
			version(t, s, "of many versions", i)
		}
		version(t, stores[1], "only b", 1)
		version(t, stores[1], muxcore.InternalPrefix+"key", 1)
		version(t, stores[1], muxcore.LockPrefix+"x", 1)
		steps := []string{
			"copy .storage_mux/storage/key a b missing",
			"copy .storage_mux/storage/key c b missing",
			"copy of many versions a c size",
			"copy of many versions b c size",
			"copy only b a b missing",
			"copy only b c b missing",
		}
		wantRepaired(t, m, muxcore.RepairOptions{DryRun: true}, steps...)
		wantRepaired(t, m, muxcore.RepairOptions{Delete: true}, steps...)
		wantVerified(t, m, muxcore.VerifyOptions{Deep: true})
		wantRepaired(t, m, muxcore.RepairOptions{})
		if _, err := stores[0].Stat(t.Context(), muxcore.LockPrefix+"x", muxcore.Conditions{}); !errors.Is(err, muxcore.ErrKeyNotFound) {
			t.Errorf("%s: a lock was copied: %v", mode, err)
		}
		noLeaks(t, stores...)
	}
}

func TestRepairGoesByTheOriginOrWhoeverIsNamed(t *testing.T) {
	tests := []struct {
		name string
		mode muxcore.Mode
		opts muxcore.RepairOptions
		want []string
	}{
		{"the origin of a shield, extras stay", muxcore.Shield, muxcore.RepairOptions{}, []string{
			"copy k b a size", "copy k c a size", "keep extra b  extra", "keep extra c  extra",
		}},
		{"the origin of a shield, extras go", muxcore.Shield, muxcore.RepairOptions{Delete: true, Force: true}, []string{
			"copy k b a size", "copy k c a size", "delete extra b  extra", "delete extra c  extra",
		}},
		{"a named one", muxcore.Mirror, muxcore.RepairOptions{Truth: "b"}, []string{
			"copy extra a b missing", "copy k a b size", "copy k c b size",
		}},
		{"a named one in a shield", muxcore.Shield, muxcore.RepairOptions{Truth: "c"}, []string{
			"copy extra a c missing", "copy k a c size", "copy k b c size",
		}},
		{"a named one that lacks what others have", muxcore.Failover, muxcore.RepairOptions{Truth: "a", Delete: true, Force: true}, []string{
			"copy k b a size", "copy k c a size", "delete extra b  extra", "delete extra c  extra",
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			stores := three(t)
			m := newMux(t, muxcore.Settings{Mode: test.mode}, named(stores...)...)
			for i, s := range stores {
				version(t, s, "k", i)
				if i > 0 {
					version(t, s, "extra", 1)
				}
			}
			wantRepaired(t, m, test.opts, test.want...)
			if keeps := slices.ContainsFunc(test.want, func(s string) bool { return strings.HasPrefix(s, "keep") }); !keeps {
				wantVerified(t, m, muxcore.VerifyOptions{Truth: test.opts.Truth})
			}
		})
	}
}

func TestRepairWritesToNoReadOnlyBackend(t *testing.T) {
	stores := three(t)
	backends := named(stores...)
	backends[1].ReadOnly = true
	m := newMux(t, muxcore.Settings{Mode: muxcore.Mirror}, backends...)
	version(t, stores[1], "from b", 2)
	version(t, stores[0], "not at b", 1)
	wantRepaired(t, m, muxcore.RepairOptions{},
		"copy from b a b missing", "copy from b c b missing", "copy not at b c a missing", "keep not at b b  missing")
	wantRepaired(t, m, muxcore.RepairOptions{Truth: "c", Delete: true, Force: true}, "keep not at b b  missing")
	if n := stores[1].Calls(muxcore.OpPut) + stores[1].Calls(muxcore.OpDelete); n != 1 {
		t.Errorf("%d writes at the read-only backend, want the one of the test", n)
	}
}

func TestRepairGoesIntoNestedMuxes(t *testing.T) {
	stores := three(t)
	inner := newMuxUnclosed(t, muxcore.Settings{Mode: muxcore.Failover}, named(stores[1:]...)...)
	m := newMux(t, muxcore.Settings{Mode: muxcore.Shield},
		muxcore.Backend{Name: "origin", Store: stores[0]}, muxcore.Backend{Name: "eu", Store: inner})
	version(t, stores[0], "k", 1)
	version(t, stores[1], "k", 2)
	version(t, stores[2], "k", 3)
	version(t, stores[2], "extra", 3)
	wantRepaired(t, m, muxcore.RepairOptions{Delete: true, Force: true},
		"copy k eu.a origin size", "copy k eu.b origin size", "delete extra eu.b  extra")
	wantVerified(t, m, muxcore.VerifyOptions{})
	version(t, stores[1], "k", 5)
	wantRepaired(t, m, muxcore.RepairOptions{Truth: "eu"}, "copy k eu.b eu.a size", "copy k origin eu.a size")
	if n := inner.Stats().Backends[0].InFlightCount + m.Stats().Backends[1].InFlightCount; n != 0 {
		t.Errorf("%d calls are left in flight", n)
	}
}

func TestRepairInStickyBringsKeysHome(t *testing.T) {
	stores := three(t)
	m := newMux(t, muxcore.Settings{Mode: muxcore.StickyByKey}, named(stores...)...)
	for i := range 30 {
		version(t, stores[i%3], fmt.Sprint("k", i), 1)
	}
	if _, errs := repair(t, m, muxcore.RepairOptions{}); errs != nil {
		t.Fatal(errs)
	}
	wantVerified(t, m, muxcore.VerifyOptions{})
	copies := 0
	for _, s := range stores {
		copies += len(holds(t, s))
	}
	if copies >= 60 {
		t.Errorf("%d copies of 30 keys, want one where the key belongs and the one that was there", copies)
	}
	for i := range 30 {
		if _, err := m.Stat(t.Context(), fmt.Sprint("k", i), muxcore.Conditions{}); err != nil {
			t.Error(err)
		}
	}
}

// A copy whose bytes no longer match its recorded digest never wins, not even as the origin or as the newest.
func TestRepairLetsNoRottenCopyWin(t *testing.T) {
	for _, test := range []struct {
		name string
		set  muxcore.Settings
		opts muxcore.RepairOptions
		want []string
	}{
		{"found by reading all", muxcore.Settings{Mode: muxcore.Mirror}, muxcore.RepairOptions{Deep: true}, []string{"copy k a b corrupt", "copy k c b missing"}},
		{"found while copying", muxcore.Settings{Mode: muxcore.Mirror}, muxcore.RepairOptions{}, []string{"copy k a b corrupt", "copy k c b missing"}},
		{"the origin", muxcore.Settings{Mode: muxcore.Shield}, muxcore.RepairOptions{Deep: true}, []string{"copy k a b corrupt", "copy k c b missing"}},
		{"a named one", muxcore.Settings{Mode: muxcore.Failover}, muxcore.RepairOptions{Truth: "a"}, []string{"copy k a b corrupt", "copy k c b missing"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			stores := three(t)
			m := newMux(t, test.set, named(stores...)...)
			version(t, stores[0], "k", 1)
			version(t, stores[1], "k", 1)
			stores[0].OnKey(muxcore.OpGet, "k", storetest.Flip(0))
			stores[0].OnKey(muxcore.OpPut, "k") // counts
			rot := stores[0]
			done := make(chan struct{})
			go func() { // once it is overwritten it is well again
				defer close(done)
				_ = rot.AwaitCalls(t.Context(), muxcore.OpPut, 2)
				rot.Mend()
			}()
			wantRepaired(t, m, test.opts, test.want...)
			<-done
			for _, s := range stores {
				if got := holds(t, s)["k"]; got != "version 1 of k." {
					t.Errorf("a backend holds %q", got)
				}
			}
		})
	}
	t.Run("one of the same version stands in for it", func(t *testing.T) {
		stores := three(t)
		m := newMux(t, muxcore.Settings{Mode: muxcore.Shield}, named(stores...)...)
		for i, n := range []int{1, 3, 1} {
			version(t, stores[i], "k", n)
		}
		stores[0].OnKey(muxcore.OpGet, "k", storetest.Flip(0))
		wantRepaired(t, m, muxcore.RepairOptions{Deep: true, DryRun: true}, "copy k a c corrupt", "copy k b c size")
	})
	t.Run("the only one stays and is told of", func(t *testing.T) {
		stores := three(t)
		m := newMux(t, muxcore.Settings{Mode: muxcore.Mirror}, named(stores...)...)
		version(t, stores[0], "k", 1)
		stores[0].OnKey(muxcore.OpGet, "k", storetest.Flip(0))
		for _, deep := range []bool{true, false} {
			steps, errs := repair(t, m, muxcore.RepairOptions{Deep: deep})
			if len(steps) > 0 || len(errs) != 1 || !errors.Is(errs[0], muxcore.ErrCorrupt) {
				t.Errorf("Repair(Deep: %t) = %q, %v", deep, steps, errs)
			}
		}
	})
}

func TestRepairRefusesToDeleteMuch(t *testing.T) {
	tests := []struct {
		name         string
		truth, extra int
		opts         muxcore.RepairOptions
		refused      bool
		deleted      int
	}{
		{"an empty truth", 0, 5, muxcore.RepairOptions{Delete: true}, true, 0},
		{"an empty truth, and force", 0, 5, muxcore.RepairOptions{Delete: true, Force: true}, false, 5},
		{"more than a tenth", 89, 11, muxcore.RepairOptions{Delete: true}, true, 0},
		{"more than a tenth, in a dry run", 89, 11, muxcore.RepairOptions{Delete: true, DryRun: true}, true, 0},
		{"more than a tenth, and force", 89, 11, muxcore.RepairOptions{Delete: true, Force: true}, false, 11},
		{"a tenth", 90, 10, muxcore.RepairOptions{Delete: true}, false, 10},
		{"much, but not asked to", 1, 50, muxcore.RepairOptions{}, false, 0},
		{"nothing at all", 0, 0, muxcore.RepairOptions{Delete: true}, false, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			stores := three(t)[:2]
			m := newMux(t, muxcore.Settings{Mode: muxcore.Shield}, named(stores...)...)
			for i := range test.truth {
				version(t, stores[0], fmt.Sprint("k", i), 1)
			}
			for i := range test.extra {
				version(t, stores[1], fmt.Sprint("extra", i), 1)
			}
			_, errs := repair(t, m, test.opts)
			switch {
			case test.refused && (len(errs) != 1 || !errors.Is(errs[0], muxcore.ErrRepairRefused)):
				t.Errorf("Repair = %v, want it refused", errs)
			case !test.refused && len(errs) > 0:
				t.Errorf("Repair = %v", errs)
			}
			want := test.truth + test.extra - test.deleted
			if test.refused {
				want = test.extra // nothing was done at all
			}
			if got := len(holds(t, stores[1])); got != want {
				t.Errorf("%d keys, want %d", got, want)
			}
		})
	}
}

func TestRepairDeletesNothingByTheWordOfATruthThatCannotBeListed(t *testing.T) {
	for name, fault := range map[string]storetest.Fault{
		"it fails": storetest.Fail(errBroken), "it breaks off": storetest.Cut(10, errBroken), "it will not let us": storetest.FailCode(muxcore.CodeDenied),
	} {
		for _, force := range []bool{false, true} {
			stores := three(t)[:2]
			m := newMux(t, muxcore.Settings{Mode: muxcore.Shield}, named(stores...)...)
			for i := range 20 {
				version(t, stores[0], fmt.Sprintf("k%02d", i), 1)
				version(t, stores[1], fmt.Sprintf("k%02d", i), 1)
			}
			version(t, stores[1], "z", 1)
			stores[0].From(muxcore.OpList, 1, fault)
			steps, errs := repair(t, m, muxcore.RepairOptions{Delete: true, Force: force})
			if len(steps) > 0 || len(errs) == 0 || backendOf(errs[0]) != "a" {
				t.Errorf("%s, force %t: Repair = %q, %v", name, force, steps, errs)
			}
			if n := stores[1].Calls(muxcore.OpDelete); n > 0 {
				t.Errorf("%s: %d deletes", name, n)
			}
		}
	}
}

// What a repair has seen may be out of date when it comes to act.
func TestRepairRespectsWhatIsWrittenMeanwhile(t *testing.T) {
	tests := []struct {
		name  string
		do    func(t *testing.T, m *muxcore.Mux, stores []*storetest.Faulty)
		op    muxcore.Op
		at    int
		wantK string
	}{
		{"a newer version while the copy is read", func(t *testing.T, m *muxcore.Mux, _ []*storetest.Faulty) { version(t, m, "k", 5) }, muxcore.OpGet, 0, "version 5 of k....."},
		{"a delete while the copy is read", func(t *testing.T, m *muxcore.Mux, _ []*storetest.Faulty) {
			if _, err := m.Delete(t.Context(), "k", muxcore.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		}, muxcore.OpGet, 0, ""},
		{"a newer version at the target alone", func(t *testing.T, _ *muxcore.Mux, stores []*storetest.Faulty) { version(t, stores[1], "k", 5) }, muxcore.OpGet, 0, "version 5 of k....."},
		{"an older version at the target alone", func(t *testing.T, _ *muxcore.Mux, stores []*storetest.Faulty) { version(t, stores[1], "k", 0) }, muxcore.OpGet, 0, "version 1 of k."},
	}
	for _, test := range tests {
		for _, conditional := range []bool{true, false} {
			t.Run(fmt.Sprint(test.name, ", conditional writes ", conditional), func(t *testing.T) {
				stores := three(t)[:2]
				m := newMux(t, muxcore.Settings{Mode: muxcore.Mirror}, named(stores...)...)
				version(t, stores[0], "k", 1)
				var once sync.Once
				caps := muxcore.CapabilitiesOf(stores[1])
				caps.ConditionalWrite = conditional
				stores[1].SetCapabilities(caps)
				m2 := newMux(t, muxcore.Settings{Mode: muxcore.Mirror}, named(
					interfering{Store: stores[0], do: func() { once.Do(func() { test.do(t, m, stores) }) }},
					interfering{Store: stores[1]},
				)...)
				for _, err := range m2.Repair(t.Context(), muxcore.RepairOptions{}) {
					if err != nil {
						t.Error(err)
					}
				}
				for i, s := range stores {
					if got := holds(t, s)["k"]; got != test.wantK {
						t.Errorf("backend %d holds %q, want %q", i, got, test.wantK)
					}
				}
			})
		}
	}
}

// interfering does something after each Get, or each Stat.
type interfering struct {
	muxcore.Store
	do     func()
	onStat func()
	onList func() // before it
}

func (s interfering) List(ctx context.Context, opts muxcore.ListOptions) iter.Seq2[muxcore.Entry, error] {
	if s.onList != nil {
		s.onList()
	}
	return s.Store.List(ctx, opts)
}

func (s interfering) Get(ctx context.Context, key string, opts muxcore.GetOptions) (*muxcore.Object, error) {
	obj, err := s.Store.Get(ctx, key, opts)
	if s.do != nil {
		s.do()
	}
	return obj, err
}

func (s interfering) Stat(ctx context.Context, key string, cond muxcore.Conditions) (muxcore.Info, error) {
	info, err := s.Store.Stat(ctx, key, cond)
	if s.onStat != nil {
		s.onStat()
	}
	return info, err
}

func (s interfering) Capabilities() muxcore.Capabilities { return muxcore.CapabilitiesOf(s.Store) }

// after makes a function that does something the nth time that it is called.
func after(n int, do func()) func() {
	var calls atomic.Int64
	return func() {
		if calls.Add(1) == int64(n) {
			do()
		}
	}
}

// Others write to backends without asking us. Where a backend can write conditionally, not even that is overwritten.
func TestRepairOverwritesNothingThatOthersWroteLast(t *testing.T) {
	for _, there := range []bool{false, true} {
		a, b := memory(t), memory(t)
		version(t, a, "k", 1)
		if there {
			version(t, b, "k", 0)
		}
		changed := after(2, func() { version(t, b, "k", 7) }) // the second Stat is the last look before the commit
		m := newMux(t, muxcore.Settings{Mode: muxcore.Mirror}, named(interfering{Store: a}, interfering{Store: b, onStat: changed})...)
		wantRepaired(t, m, muxcore.RepairOptions{}, "copy k a b size")
		if got := holds(t, b)["k"]; got != "version 7 of k......." {
			t.Errorf("b holds %q", got)
		}
	}
}

func TestRepairDeletesNothingThatTheTruthGotLast(t *testing.T) {
	a, b := memory(t), memory(t)
	version(t, b, "k", 1)
	m := newMux(t, muxcore.Settings{Mode: muxcore.Shield}, named(
		interfering{Store: a, onStat: after(1, func() { version(t, a, "k", 1) })}, interfering{Store: b},
	)...)
	wantRepaired(t, m, muxcore.RepairOptions{Delete: true, Force: true})
	if got := holds(t, b)["k"]; got == "" {
		t.Error("b lost what the truth has")
	}
}

func TestRepairDeletesNoMoreThanWasCounted(t *testing.T) {
	a, b := memory(t), memory(t)
	for i := range 100 {
		version(t, a, fmt.Sprintf("k%03d", i), 1)
		version(t, b, fmt.Sprintf("k%03d", i), 1)
	}
	come := after(3, func() { // it is counted by two lists, of ordinary keys and of Caddy's own
		for i := range 30 {
			version(t, b, fmt.Sprint("z", i), 1)
		}
	})
	m := newMux(t, muxcore.Settings{Mode: muxcore.Shield}, named(interfering{Store: a}, interfering{Store: b, onList: come})...)
	steps, errs := repair(t, m, muxcore.RepairOptions{Delete: true})
	if len(steps) != 10 || len(errs) != 20 || !errors.Is(errs[0], muxcore.ErrRepairRefused) {
		t.Errorf("Repair = %q, %v, want ten steps", steps, errs)
	}
}

func TestRepairInANestedMuxTakesTurnsWithWritesFromAbove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := three(t)
		inner := newMuxUnclosed(t, muxcore.Settings{Mode: muxcore.Mirror}, named(stores[1:]...)...)
		m := newMux(t, muxcore.Settings{Mode: muxcore.Shield}, muxcore.Backend{Name: "a", Store: stores[0]}, muxcore.Backend{Name: "eu", Store: inner})
		version(t, stores[0], "k", 1)
		version(t, stores[1], "extra", 1)
		var unlock []func()
		for _, turn := range []*muxcore.Mux{m, inner} {
			for _, key := range []string{"k", "extra"} {
				free, err := turn.LockKey(t.Context(), key)
				if err != nil {
					t.Fatal(err)
				}
				unlock = append(unlock, free)
			}
		}
		for round := range 2 { // first those of the mux above are given back
			time.AfterFunc(time.Duration(1+round)*time.Second, func() {
				if len(holds(t, stores[1])) != 1 || len(holds(t, stores[2])) != 0 {
					t.Error("repaired out of turn")
				}
				unlock[2*round]()
				unlock[2*round+1]()
			})
		}
		wantRepaired(t, m, muxcore.RepairOptions{Delete: true, Force: true},
			"copy k eu.a a missing", "copy k eu.b a missing", "delete extra eu.a  extra")
	})
}

// Of copies of one time, that with our identity is the one to go by: the other may be a restored file.
func TestRepairPrefersCopiesWithAnIdentity(t *testing.T) {
	stores := three(t)[:2]
	m := newMux(t, muxcore.Settings{Mode: muxcore.Mirror}, named(stores...)...)
	version(t, stores[1], "k", 1)
	body := holds(t, stores[1])["k"]
	if _, err := stores[0].Put(t.Context(), "k", strings.NewReader(body), int64(len(body)), muxcore.PutOptions{ModTime: time.Unix(1_700_000_001, 0)}); err != nil {
		t.Fatal(err)
	}
	wantVerified(t, m, muxcore.VerifyOptions{}, "k: etag same")
	wantRepaired(t, m, muxcore.RepairOptions{}, "copy k a b etag")
}

// An origin that cannot keep what we give it tells nothing of its mirrors apart from the length. They are still made alike.
func TestRepairMakesTheMirrorsOfAPlainOriginAlike(t *testing.T) {
	stores := three(t)
	plain := muxcore.CapabilitiesOf(stores[0])
	plain.Metadata = false
	stores[0].SetCapabilities(plain)
	m := newMux(t, muxcore.Settings{Mode: muxcore.Shield}, named(stores...)...)
	bare := func(i *muxcore.Info) {
		i.Digests, i.ETag, i.ETagStored, i.ModTime = muxcore.Digests{}, `"own"`, false, i.ModTime.Add(time.Hour)
	}
	for _, op := range []muxcore.Op{muxcore.OpGet, muxcore.OpStat, muxcore.OpList} {
		stores[0].From(op, 1, storetest.Describe(bare))
	}
	for i, n := range []int{2, 1, 2} { // of one length
		body := fmt.Sprint("version ", n)
		opts := muxcore.PutOptions{ETag: fmt.Sprintf(`"%d"`, n), ModTime: time.Unix(int64(n), 0)}
		if _, err := stores[i].Put(t.Context(), "k", strings.NewReader(body), int64(len(body)), opts); err != nil {
			t.Fatal(err)
		}
	}
	wantVerified(t, m, muxcore.VerifyOptions{}, "k: same digest same")
	wantRepaired(t, m, muxcore.RepairOptions{}, "copy k b c digest")
}

func TestRepairGivesUpOnAKeyThatKeepsChanging(t *testing.T) {
	stores := three(t)[:2]
	version(t, stores[0], "k", 1)
	n := 1
	m := newMux(t, muxcore.Settings{Mode: muxcore.Mirror}, named(
		interfering{Store: stores[0], do: func() { n++; version(t, stores[0], "k", n) }}, interfering{Store: stores[1]},
	)...)
	steps, errs := repair(t, m, muxcore.RepairOptions{})
	if len(steps) > 0 || len(errs) != 1 || !errors.Is(errs[0], muxcore.ErrChanged) {
		t.Errorf("Repair = %q, %v, want it to say that the key keeps changing", steps, errs)
	}
}

func TestRepairTellsWhatItCouldNotDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := three(t)
		m := newMux(t, muxcore.Settings{Mode: muxcore.Mirror, Timeout: time.Second}, named(stores...)...)
		for i := range 5 {
			version(t, stores[0], fmt.Sprint("k", i), 1)
		}
		stores[1].OnKey(muxcore.OpPut, "k1", storetest.FailCode(muxcore.CodeTooLarge))
		stores[2].OnKey(muxcore.OpPut, "k3", storetest.Fail(errBroken))
		for s, err := range m.Repair(t.Context(), muxcore.RepairOptions{}) {
			switch fault := s.Key + s.Backend; {
			case fault == "k1b" && muxcore.CodeOf(err) == muxcore.CodeTooLarge && backendOf(err) == "b":
			case fault == "k3c" && errors.Is(err, errBroken) && backendOf(err) == "c":
			case s.Backend == "c" && m.Stats().Backends[2].WritesDown: // was asked again, as a trial
			case err != nil:
				t.Errorf("%+v: %v", s, err)
			}
		}
		if n := len(holds(t, stores[1])); n != 4 {
			t.Errorf("b holds %d keys, want all but one", n)
		}
		stores[2].Mend()
		stores[1].Mend()
		if _, errs := repair(t, m, muxcore.RepairOptions{}); errs != nil {
			t.Error(errs)
		}
		wantVerified(t, m, muxcore.VerifyOptions{})
		noLeaks(t, stores...)
	})
}

func TestRepairEndsWithItsCallerAndLeavesAllWhole(t *testing.T) {
	for _, how := range []string{"break", "cancel"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				stores := three(t)
				m := newMux(t, muxcore.Settings{Mode: muxcore.Mirror}, named(stores...)...)
				for i := range 50 {
					version(t, stores[0], fmt.Sprint("k", i), 1)
				}
				stores[0].From(muxcore.OpGet, 10, storetest.Drip(5, time.Second))
				ctx, cancel := context.WithCancel(t.Context())
				var last error
				steps := 0
				for _, err := range m.Repair(ctx, muxcore.RepairOptions{}) {
					last = err
					if steps++; steps == 20 {
						if how == "break" {
							break
						}
						cancel()
					}
				}
				cancel()
				if how == "cancel" && !errors.Is(last, context.Canceled) {
					t.Errorf("Repair ends with %v", last)
				}
				synctest.Wait()
				noLeaks(t, stores...)
				want := holds(t, stores[0])
				for _, s := range stores[1:] {
					got := holds(t, s)
					if len(got) == 0 || len(got) >= len(want) {
						t.Errorf("%d copies, want some", len(got))
					}
					maps.DeleteFunc(got, func(key, body string) bool { return want[key] == body })
					if len(got) > 0 {
						t.Errorf("not whole: %q", got)
					}
				}
				for _, s := range m.Stats().Backends {
					if s.Status != muxcore.StatusUp || s.WritesDown || s.InFlightCount > 0 {
						t.Errorf("%s is %s for %q, %d in flight", s.Name, s.Status, s.Reason, s.InFlightCount)
					}
				}
			})
		})
	}
}

func TestRepairWorksOnAFewKeysAtATime(t *testing.T) {
	stores := three(t)[:2]
	m := newMux(t, muxcore.Settings{Mode: muxcore.Mirror}, named(stores...)...)
	for i := range 200 {
		version(t, stores[0], fmt.Sprint("k", i), 1)
	}
	keys := 0
	if _, errs := repair(t, m, muxcore.RepairOptions{OnKey: func(string) { keys++ }}); errs != nil || keys != 200 {
		t.Errorf("Repair of %d keys = %v", keys, errs)
	}
	if n := stores[1].MostInFlight(); n > 6 {
		t.Errorf("%d calls at a time", n)
	}
}

func TestRepairIsTold(t *testing.T) {
	var mu sync.Mutex
	var told []string
	set := muxcore.Settings{Name: "media", Mode: muxcore.Shield, Observe: func(e muxcore.Event) {
		if e.Kind == muxcore.EventRepaired {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, fmt.Sprint(e.Tree, " ", e.Op, " ", e.Key, " ", e.From, "→", e.Name, " ", e.Cause))
		}
	}}
	stores := three(t)[:2]
	m := newMux(t, set, named(stores...)...)
	version(t, stores[0], "k", 1)
	version(t, stores[1], "extra", 1)
	if _, errs := repair(t, m, muxcore.RepairOptions{Delete: true, Force: true}); errs != nil {
		t.Fatal(errs)
	}
	slices.Sort(told)
	if diff := cmp.Diff([]string{"media delete extra →b repair", "media put k a→b repair"}, told); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
}

// A repair does not bring back what the journal holds as deleted, nor does a copy win that it knows to be out of date,
// whatever its time says.
func TestRepairGoesByTheJournal(t *testing.T) {
	for _, deep := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			stores := three(t)[:2]
			m := newMux(t, muxcore.Settings{Mode: muxcore.Mirror, Journal: newJournal(t).Scope("")}, named(stores...)...)
			later := muxcore.PutOptions{ETag: `"old"`, ModTime: time.Now().Add(time.Hour)}
			for _, s := range stores {
				for _, key := range []string{"gone", "k"} {
					if _, err := s.Put(t.Context(), key, strings.NewReader("old"), 3, later); err != nil {
						t.Fatal(err)
					}
				}
			}
			stores[1].Break(errBroken)
			put(t, m, "k", "newer")
			if _, err := m.Delete(t.Context(), "gone", muxcore.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]int{0, 2}, pendingOf(m)); diff != "" {
				t.Fatalf("pending (-want +got):\n%s", diff)
			}
			stores[1].Mend() // and nobody has noticed
			if _, errs := repair(t, m, muxcore.RepairOptions{Deep: deep}); errs != nil {
				t.Error(errors.Join(errs...))
			}
			synctest.Wait() // b is back, and gets what it missed from two sides
			if diff := cmp.Diff([]int{0, 0}, pendingOf(m)); diff != "" {
				t.Errorf("pending after the repair (-want +got):\n%s", diff)
			}
			for _, s := range stores {
				if diff := cmp.Diff(map[string]string{"k": "newer"}, holds(t, s)); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			}
		})
	}
}

// A read does not bring back what the journal holds as deleted.
func TestReadRepairBringsNothingBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := three(t)
		set := muxcore.Settings{Mode: muxcore.Failover, OnMissNext: true, ReadRepair: true, LastResort: true, Journal: newJournal(t).Scope("")}
		m := newMux(t, set, named(stores...)...)
		version(t, stores[2], "k", 1)
		stores[2].Break(errBroken)
		put(t, m, "k", "newer") // at a
		if _, err := m.Delete(t.Context(), "k", muxcore.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		stores[2].Mend()
		if _, err := m.Stat(t.Context(), "k", muxcore.Conditions{}); !errors.Is(err, muxcore.ErrKeyNotFound) {
			t.Errorf("Stat = %v", err)
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		for i, s := range stores {
			if got := holds(t, s); len(got) > 0 {
				t.Errorf("backend %d holds %q", i, got)
			}
		}
	})
}

// A backend of which the journal could not remember all that it misses is well again once it was compared in full.
func TestRepairEndsADoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := three(t)[:2]
		j := journal.New(filepath.Join(t.TempDir(), "journal"), journal.Settings{MaxMarks: 3})
		t.Cleanup(func() { _ = j.Close() })
		m := newMux(t, muxcore.Settings{Mode: muxcore.Mirror, Journal: j.Scope("")}, named(stores...)...)
		doubtful := func() bool { return m.Stats().Backends[1].FullRepairNeeded }
		stores[1].Break(errBroken)
		for i := range 10 {
			put(t, m, fmt.Sprint("k", i), "body")
		}
		if !doubtful() {
			t.Fatal("the journal is not full")
		}
		stores[1].Mend()
		stores[1].OnKey(muxcore.OpPut, "k3", storetest.FailCode(muxcore.CodeTooLarge))
		if _, errs := repair(t, m, muxcore.RepairOptions{}); len(errs) != 1 || !doubtful() {
			t.Errorf("Repair = %v, doubtful: %t, want one failure, and that b stays in doubt", errs, doubtful())
		}
		stores[1].Mend()
		for _, opts := range []muxcore.RepairOptions{{DryRun: true}, {Prefix: "k"}} {
			if _, errs := repair(t, m, opts); errs != nil || !doubtful() {
				t.Errorf("Repair(%+v) = %v, and ends the doubt", opts, errs)
			}
		}
		if _, errs := repair(t, m, muxcore.RepairOptions{}); errs != nil || doubtful() {
			t.Errorf("Repair = %v, doubtful: %t", errs, doubtful())
		}
		wantVerified(t, m, muxcore.VerifyOptions{})
	})
}
