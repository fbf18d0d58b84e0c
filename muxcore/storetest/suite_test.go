package storetest

import (
	"context"
	"fmt"
	"io"
	"iter"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/memstore"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // a good part of what the suites cost is collecting short-lived bodies
	goleak.VerifyTestMain(m)
}

func newMem(tb testing.TB) muxcore.Store {
	tb.Helper()
	s, err := memstore.New(memstore.Settings{})
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// twisted is a store with some methods replaced.
type twisted struct {
	muxcore.Store
	get  func(ctx context.Context, key string, opts muxcore.GetOptions) (*muxcore.Object, error)
	stat func(ctx context.Context, key string, cond muxcore.Conditions) (muxcore.Info, error)
	put  func(ctx context.Context, key string, body io.Reader, size int64, opts muxcore.PutOptions) (muxcore.PutResult, error)
	del  func(ctx context.Context, key string, opts muxcore.DeleteOptions) (muxcore.DeleteResult, error)
	list func(ctx context.Context, opts muxcore.ListOptions) iter.Seq2[muxcore.Entry, error]
	caps *muxcore.Capabilities
	rule func(key string) error
}

func (s *twisted) Capabilities() muxcore.Capabilities {
	if s.caps != nil {
		return *s.caps
	}
	return muxcore.CapabilitiesOf(s.Store)
}

func (s *twisted) CheckKey(key string) error {
	if s.rule != nil {
		return s.rule(key)
	}
	return muxcore.CheckKeyOf(s.Store, key)
}

func (s *twisted) Get(ctx context.Context, key string, opts muxcore.GetOptions) (*muxcore.Object, error) {
	if s.get != nil {
		return s.get(ctx, key, opts)
	}
	return s.Store.Get(ctx, key, opts)
}

func (s *twisted) Stat(ctx context.Context, key string, cond muxcore.Conditions) (muxcore.Info, error) {
	if s.stat != nil {
		return s.stat(ctx, key, cond)
	}
	return s.Store.Stat(ctx, key, cond)
}

func (s *twisted) Put(ctx context.Context, key string, body io.Reader, size int64, opts muxcore.PutOptions) (muxcore.PutResult, error) {
	if s.put != nil {
		return s.put(ctx, key, body, size, opts)
	}
	return s.Store.Put(ctx, key, body, size, opts)
}

func (s *twisted) Delete(ctx context.Context, key string, opts muxcore.DeleteOptions) (muxcore.DeleteResult, error) {
	if s.del != nil {
		return s.del(ctx, key, opts)
	}
	return s.Store.Delete(ctx, key, opts)
}

func (s *twisted) List(ctx context.Context, opts muxcore.ListOptions) iter.Seq2[muxcore.Entry, error] {
	if s.list != nil {
		return s.list(ctx, opts)
	}
	return s.Store.List(ctx, opts)
}

// broken is a store with one fault, and the checks that must find it.
type broken struct {
	name  string
	found []string
	twist func(inner muxcore.Store) muxcore.Store
}

func byScript(op muxcore.Op, faults ...Fault) func(muxcore.Store) muxcore.Store {
	return func(inner muxcore.Store) muxcore.Store {
		f := NewFaulty(inner)
		f.On(op, Every, faults...)
		return f
	}
}

func TestTheSuiteFindsEveryBrokenStore(t *testing.T) {
	byName := map[string]check{}
	for _, c := range checks() {
		byName[c.name] = c
	}
	for _, b := range brokenStores() {
		t.Run(b.name, func(t *testing.T) {
			for _, name := range b.found {
				c, ok := byName[name]
				if !ok {
					t.Fatalf("no check is named %q", name)
				}
				h := &Harness{LongList: 300, New: func(tb testing.TB) muxcore.Store { return b.twist(newMem(tb)) }}
				problems, skipped := examine(t, h, c)
				for try := 0; len(problems) == 0 && try < 20; try++ { // what races is not lost each time
					problems, skipped = examine(t, h, c)
				}
				if len(problems) == 0 {
					t.Errorf("%q finds nothing (skipped: %q)", name, skipped)
				}
			}
		})
	}
}

// A check that no broken store fails may be one that cannot fail.
func TestEveryCheckFindsSomething(t *testing.T) {
	var found []string
	for _, b := range brokenStores() {
		found = append(found, b.found...)
	}
	for _, name := range Checks() {
		if !slices.Contains(found, name) {
			t.Errorf("no broken store is known that fails %q", name)
		}
	}
}

func TestCheckNamesAreUnique(t *testing.T) {
	names := Checks()
	slices.Sort(names)
	if n := len(slices.Compact(slices.Clone(names))); n != len(names) {
		t.Errorf("%d names, %d different", len(names), n)
	}
}

func TestASoundStorePassesEveryCheck(t *testing.T) {
	for _, c := range checks() {
		problems, skipped := examine(t, &Harness{New: newMem}, c)
		if len(problems) > 0 || skipped != "" && c.name != "a store that cannot write conditionally refuses" {
			t.Errorf("%q: problems %q, skipped %q", c.name, problems, skipped)
		}
	}
}

func TestAStoreWithoutAbilitiesIsSkippedAndNotFailed(t *testing.T) {
	Run(t, Harness{
		New: func(tb testing.TB) muxcore.Store {
			return &twisted{
				Store: newMem(tb),
				caps:  &muxcore.Capabilities{},
				put: func(context.Context, string, io.Reader, int64, muxcore.PutOptions) (muxcore.PutResult, error) {
					tb.Error("Put is called")
					return muxcore.PutResult{}, nil
				},
				list: func(context.Context, muxcore.ListOptions) iter.Seq2[muxcore.Entry, error] {
					tb.Error("List is called")
					return nil
				},
			}
		},
	})
}

func TestAReadOnlyStoreIsReadThroughSeed(t *testing.T) {
	seeded := 0
	Run(t, Harness{
		New: func(tb testing.TB) muxcore.Store {
			return &twisted{Store: newMem(tb), caps: &muxcore.Capabilities{List: true}}
		},
		Seed: func(tb testing.TB, s muxcore.Store, key, body string) {
			seeded++
			mem := s.(*twisted).Store
			if _, err := mem.Put(tb.Context(), key, strings.NewReader(body), int64(len(body)), muxcore.PutOptions{}); err != nil {
				tb.Error(err)
			}
		},
	})
	if seeded == 0 {
		t.Error("Seed is never called")
	}
}

// What nobody can write is listed all the same: a suite that left lists out where it cannot put passed any list.
func TestAReadOnlyStoreThatListsWronglyIsFoundOut(t *testing.T) {
	h := &Harness{
		New: func(tb testing.TB) muxcore.Store {
			mem := newMem(tb)
			return &twisted{Store: mem, caps: &muxcore.Capabilities{List: true}, list: func(ctx context.Context, o muxcore.ListOptions) iter.Seq2[muxcore.Entry, error] {
				return mem.List(ctx, muxcore.ListOptions{Prefix: o.Prefix})
			}}
		},
		Seed: func(tb testing.TB, s muxcore.Store, key, body string) {
			if _, err := s.(*twisted).Store.Put(tb.Context(), key, strings.NewReader(body), int64(len(body)), muxcore.PutOptions{}); err != nil {
				tb.Error(err)
			}
		},
	}
	for _, c := range listChecks {
		problems, skipped := examine(t, h, c)
		needs := []string{"every list is what an oracle says", "pages give each entry once", "a long list is complete"}
		if skipped != "" || len(problems) == 0 && slices.Contains(needs, c.name) {
			t.Errorf("%q finds %q in a store that knows prefixes only (skipped: %q)", c.name, problems, skipped)
		}
	}
}

// Fifty problems of one kind must not hide the one that explains a hang.
func TestACallThatDoesNotReturnIsSaidWhateverElseIsWrong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		problems, _ := examine(t, &Harness{New: newMem}, check{"hangs", 0, func(p *probe) {
			for i := range 100 {
				p.errorf("problem %d", i)
			}
			<-release
		}})
		close(release)
		if n := len(problems); n == 0 || !strings.Contains(problems[n-1], "did not return within 2m") {
			t.Errorf("examine finds %d problems, and the last is no hang: %q", n, problems)
		}
	})
}

func TestASkippedCheckIsNotRun(t *testing.T) {
	skip := map[string]string{}
	for _, name := range Checks() {
		skip[name] = "by test"
	}
	Run(t, Harness{Skip: skip, New: func(testing.TB) muxcore.Store { panic("a store is made") }})
}

func TestAQuickRunIsOfTheChecksThatItNames(t *testing.T) {
	made := 0
	Run(t, Harness{Quick: Beneath()[:2], New: func(tb testing.TB) muxcore.Store { made++; return newMem(tb) }})
	if want := Times(2, len(Checks())); made != want {
		t.Errorf("%d checks are run, want %d", made, want)
	}
}

func TestTheQuickListsTryEachTwoOptionsTogether(t *testing.T) {
	pairs := func(every bool) map[[2]string]bool {
		seen := map[[2]string]bool{}
		for _, o := range listOptions(every) {
			words := []string{"prefix " + o.Prefix, "delimiter " + o.Delimiter, "after " + o.After, fmt.Sprint("limit ", o.Limit)}
			for i, a := range words {
				for _, b := range words[i+1:] {
					seen[[2]string{a, b}] = true
				}
			}
		}
		return seen
	}
	quick := pairs(false)
	for pair := range pairs(true) {
		if !quick[pair] {
			t.Errorf("%q are not tried together", pair)
		}
	}
}
