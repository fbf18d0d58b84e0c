package muxcore_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/filestore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/storetest"
)

// folder is a store of files that others write to as well.
type folder struct {
	*storetest.Faulty
	root string
}

// folders are stores of files.
func folders(tb testing.TB, n int) (all []*folder) {
	tb.Helper()
	for range n {
		root := tb.TempDir()
		s, err := filestore.New(filestore.Settings{Root: root})
		if err != nil {
			tb.Fatal(err)
		}
		f := storetest.NewFaulty(s)
		f.SetWaits(muxcore.WaitsNever)
		all = append(all, &folder{f, root})
	}
	return all
}

// edit writes other bytes into the file at k, in place, as an editor or cp does.
func (f *folder) edit(tb testing.TB, body string) {
	tb.Helper()
	if err := os.WriteFile(filepath.Join(f.root, "k"), []byte(body), 0o600); err != nil {
		tb.Fatal(err)
	}
	f.touch(tb)
}

// touch makes the file at k look newer than all others.
func (f *folder) touch(tb testing.TB) {
	tb.Helper()
	later := time.Now().Add(100 * 365 * 24 * time.Hour)
	if err := os.Chtimes(filepath.Join(f.root, "k"), later, later); err != nil {
		tb.Fatal(err)
	}
}

// stored puts version n of k as a mux would, with its digest.
func stored(tb testing.TB, s muxcore.Store, n int) {
	tb.Helper()
	body := numbered(n)
	sum := sha256.Sum256([]byte(body))
	opts := muxcore.PutOptions{
		ETag: fmt.Sprintf(`"k-%d"`, n), ModTime: time.Unix(1_700_000_000+int64(n), 0),
		Digests: muxcore.Digests{SHA256: sum[:]}, Attributes: muxcore.Attributes{ContentType: "x/y"},
	}
	if _, err := s.Put(tb.Context(), "k", strings.NewReader(body), int64(len(body)), opts); err != nil {
		tb.Fatal(err)
	}
}

func numbered(n int) string { return fmt.Sprintf("version %d", n) }

// wantHeld compares what the folders hold at k; "" is nothing.
func wantHeld(tb testing.TB, all []*folder, want ...string) {
	tb.Helper()
	for i, f := range all {
		if got := holds(tb, f)["k"]; got != want[i] {
			tb.Errorf("%c holds %q, want %q", 'a'+i, got, want[i])
		}
	}
}

const (
	longer = "this is longer than what was there"
	alike  = "VERSION 1" // as long
)

var good = numbered(1)

// A copy that somebody has altered behind our back, while our record of it is still there, does not spread by itself, however new
// it looks. The origin of a shield, and whoever is named as the truth, may be altered.
func TestAnAlteredCopyDoesNotWinByItself(t *testing.T) {
	edit := func(at int, body string) func(testing.TB, []*folder) {
		return func(tb testing.TB, all []*folder) { tb.Helper(); all[at].edit(tb, body) }
	}
	touch := func(tb testing.TB, all []*folder) { tb.Helper(); all[0].touch(tb) }
	replace := func(tb testing.TB, all []*folder) {
		tb.Helper()
		if err := os.Remove(filepath.Join(all[0].root, "k")); err != nil {
			tb.Fatal(err)
		}
		all[0].edit(tb, longer)
	}
	truth := muxcore.RepairOptions{Truth: "a"}
	for _, test := range []struct {
		name   string
		mode   muxcore.Mode
		do     func(testing.TB, []*folder)
		opts   muxcore.RepairOptions
		states string
		steps  []string
		want   string
	}{
		{"longer", muxcore.Mirror, edit(0, longer), muxcore.RepairOptions{}, "k: altered same same", []string{"copy k a b altered"}, good},
		{"as long", muxcore.Mirror, edit(0, alike), muxcore.RepairOptions{}, "k: altered same same", []string{"copy k a b altered"}, good},
		{"emptied", muxcore.Mirror, edit(0, ""), muxcore.RepairOptions{}, "k: altered same same", []string{"copy k a b altered"}, good},
		{"longer, all read", muxcore.Mirror, edit(0, longer), muxcore.RepairOptions{Deep: true}, "k: altered same same", []string{"copy k a b altered"}, good},
		{"as long, all read", muxcore.Mirror, edit(0, alike), muxcore.RepairOptions{Deep: true}, "k: altered same same", []string{"copy k a b altered"}, good},
		{"in failover", muxcore.Failover, edit(0, alike), muxcore.RepairOptions{}, "k: altered same same", []string{"copy k a b altered"}, good},
		{"touched only", muxcore.Mirror, touch, muxcore.RepairOptions{}, "k: etag same same", []string{"copy k a b etag"}, good},
		{"touched only, all read", muxcore.Mirror, touch, muxcore.RepairOptions{Deep: true}, "k: etag same same", []string{"copy k a b etag"}, good},
		{"named as the truth", muxcore.Mirror, edit(0, longer), truth, "k: same size size", []string{"copy k a a altered", "copy k b a size", "copy k c a size"}, longer},
		{"named as the truth, as long", muxcore.Mirror, edit(0, alike), truth, "k: same etag etag", []string{"copy k a a altered", "copy k b a etag", "copy k c a etag"}, alike},
		{"a mirror of a shield", muxcore.Shield, edit(1, longer), muxcore.RepairOptions{}, "k: same altered same", []string{"copy k b a altered"}, good},
		{"the origin of a shield", muxcore.Shield, edit(0, longer), muxcore.RepairOptions{}, "k: same size size", []string{"copy k b a size", "copy k c a size"}, longer},
		{"the origin of a shield, as long", muxcore.Shield, edit(0, alike), muxcore.RepairOptions{Deep: true}, "k: same digest digest", []string{"copy k b a digest", "copy k c a digest"}, alike},
		{"replaced by a file of its own", muxcore.Mirror, replace, muxcore.RepairOptions{}, "k: same size size", []string{"copy k b a size", "copy k c a size"}, longer},
	} {
		t.Run(test.name, func(t *testing.T) {
			all := folders(t, 3)
			m := newMux(t, muxcore.Settings{Mode: test.mode}, named(all...)...)
			for _, f := range all {
				stored(t, f, 1)
			}
			test.do(t, all)
			wantVerified(t, m, muxcore.VerifyOptions{Truth: test.opts.Truth, Deep: test.opts.Deep}, test.states)
			wantRepaired(t, m, test.opts, test.steps...)
			wantHeld(t, all, test.want, test.want, test.want)
			wantVerified(t, m, muxcore.VerifyOptions{Deep: true})
		})
	}
}

// Where no good copy is to be had, all stays as it is, is told of, and waits for somebody to name the truth.
func TestAnAlteredCopyStaysWhereNoneIsGood(t *testing.T) {
	for _, test := range []struct {
		name   string
		do     func(testing.TB, []*folder)
		errs   int
		states string
		want   []string
	}{
		{"the only one", func(testing.TB, []*folder) {}, 1, "k: altered unknown unknown", []string{longer, "", ""}},
		{"two of them", func(tb testing.TB, all []*folder) {
			tb.Helper()
			stored(tb, all[1], 1)
			all[1].edit(tb, alike)
		}, 2, "k: altered altered unknown", []string{longer, alike, ""}},
		{"what others have cannot be known", func(tb testing.TB, all []*folder) {
			tb.Helper()
			stored(tb, all[1], 1)
			all[1].Break(&muxcore.Error{Code: muxcore.CodeUnavailable})
		}, 2, "k: altered unknown unknown", []string{longer, good, ""}},
	} {
		t.Run(test.name, func(t *testing.T) {
			all := folders(t, 3)
			m := newMux(t, muxcore.Settings{Mode: muxcore.Mirror}, named(all...)...)
			stored(t, all[0], 1)
			all[0].edit(t, longer)
			test.do(t, all)
			if got, _ := verify(t, m, muxcore.VerifyOptions{}); len(got) != 1 || got[0] != test.states {
				t.Errorf("Verify = %q, want %q", got, test.states)
			}
			steps, errs := repair(t, m, muxcore.RepairOptions{Delete: true, Force: true})
			if len(steps) > 0 || len(errs) != test.errs || !errors.Is(errors.Join(errs...), muxcore.ErrAltered) {
				t.Errorf("Repair = %q, %v", steps, errs)
			}
			all[1].Mend()
			wantHeld(t, all, test.want...)
			if _, errs := repair(t, m, muxcore.RepairOptions{Truth: "a"}); len(errs) > 0 {
				t.Errorf("Repair by the word of a = %v", errs)
			}
			wantHeld(t, all, longer, longer, longer)
		})
	}
}

// A nested mux that was named may have altered copies, but a good one in it is the better word.
func TestAnAlteredCopyInANamedMux(t *testing.T) {
	for _, both := range []bool{false, true} {
		all := folders(t, 3)
		inner := newMuxUnclosed(t, muxcore.Settings{Mode: muxcore.Mirror}, named(all[1:]...)...)
		m := newMux(t, muxcore.Settings{Mode: muxcore.Mirror},
			muxcore.Backend{Name: "own", Store: all[0]}, muxcore.Backend{Name: "eu", Store: inner})
		for i, f := range all {
			stored(t, f, 1-min(i, 1))
		}
		all[1].edit(t, longer)
		want := numbered(0)
		if both {
			all[2].edit(t, longer)
			want = longer
		}
		if _, errs := repair(t, m, muxcore.RepairOptions{Truth: "eu"}); len(errs) > 0 {
			t.Errorf("both altered %t: Repair = %v", both, errs)
		}
		wantHeld(t, all, want, want, want)
	}
}

// What a backend missed is not brought to it from a copy that was altered since, unless that is the origin's: then nobody would
// know any more what was put.
func TestAnAlteredCopyIsNotReplayed(t *testing.T) {
	for mode, brought := range map[muxcore.Mode]bool{muxcore.Mirror: false, muxcore.Shield: true} {
		synctest.Test(t, func(t *testing.T) {
			all := folders(t, 2)
			m := newMux(t, muxcore.Settings{Mode: mode, Journal: newJournal(t).Scope("")}, named(all...)...)
			put(t, m, "k", "old")
			all[1].Break(errBroken)
			put(t, m, "k", "newer")
			all[0].edit(t, longer)
			all[1].Mend()
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			if brought {
				wantHeld(t, all, longer, longer)
				return
			}
			wantHeld(t, all, longer, "old")
			if _, errs := repair(t, m, muxcore.RepairOptions{}); !errors.Is(errors.Join(errs...), muxcore.ErrAltered) {
				t.Errorf("Repair with a copy that was altered and one that is out of date = %v", errs)
			}
			wantHeld(t, all, longer, "old")
			if _, errs := repair(t, m, muxcore.RepairOptions{Truth: "a"}); len(errs) > 0 {
				t.Errorf("Repair by the word of a = %v", errs)
			}
			wantHeld(t, all, longer, longer)
			if diff := cmp.Diff([]int{0, 0}, pendingOf(m)); diff != "" {
				t.Errorf("pending (-want +got):\n%s", diff)
			}
		})
	}
}

// Nor is it copied to who lacks the key because somebody reads it.
func TestAnAlteredCopyIsNotSpreadByReads(t *testing.T) {
	for _, test := range []struct {
		name string
		do   func(testing.TB, *folder)
		want string
	}{
		{"longer", func(tb testing.TB, f *folder) { tb.Helper(); f.edit(tb, longer) }, ""},
		{"as long", func(tb testing.TB, f *folder) { tb.Helper(); f.edit(tb, alike) }, ""},
		{"touched only", func(tb testing.TB, f *folder) { tb.Helper(); f.touch(tb) }, good},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := folders(t, 2)
				set := muxcore.Settings{Mode: muxcore.Failover, OnMissNext: true, ReadRepair: true}
				m := newMux(t, set, named(all...)...)
				stored(t, all[1], 1)
				test.do(t, all[1])
				for range 3 {
					if _, _, err := read(t.Context(), m, "k", muxcore.GetOptions{}); err != nil {
						t.Error(err)
					}
					settle()
				}
				if got := holds(t, all[0])["k"]; got != test.want {
					t.Errorf("a got %q, want %q", got, test.want)
				}
			})
		})
	}
}

// A store that has yet to find out whether the bytes are what it has on record says nothing of who they are. A comparison reads them.
func TestACopyIsJudgedByItsRecordWhereItsBytesAreThose(t *testing.T) {
	for _, rotten := range []bool{false, true} {
		stores := three(t)
		m := newMux(t, muxcore.Settings{Mode: muxcore.Shield}, named(stores...)...)
		for _, s := range stores[:2] {
			stored(t, s, 1)
		}
		plain := muxcore.CapabilitiesOf(stores[0])
		plain.ConditionalWrite = false // what it says of itself here is not what it goes by
		stores[0].SetCapabilities(plain)
		asks := storetest.Describe(func(i *muxcore.Info) {
			i.Record = &muxcore.Record{Info: *i}
			i.ETag, i.ETagStored, i.Digests = `"own"`, false, muxcore.Digests{}
		})
		for _, op := range []muxcore.Op{muxcore.OpGet, muxcore.OpStat, muxcore.OpList} {
			stores[0].From(op, 1, asks)
		}
		want, step := "k: same same missing", "copy k c a missing"
		if rotten {
			stores[0].OnKey(muxcore.OpGet, "k", storetest.Flip(0))
			want, step = "k: corrupt same missing", "copy k c b missing"
		}
		wantVerified(t, m, muxcore.VerifyOptions{}, want)
		if steps, errs := repair(t, m, muxcore.RepairOptions{}); !slices.Contains(steps, step) || len(errs) > 0 && !rotten {
			t.Errorf("rotten %t: Repair = %q, %v, want %q", rotten, steps, errs, step)
		}
		info, err := stores[2].Stat(t.Context(), "k", muxcore.Conditions{})
		if err != nil || info.ETag != `"k-1"` || !info.ETagStored || info.ContentType != "x/y" || holds(t, stores[2])["k"] != good {
			t.Errorf("rotten %t: the copy is %+v, %v", rotten, info, err)
		}
	}
}

// What a repair copies has a digest on record, whatever the source knew of it: so it shows when the copy is altered.
func TestACopyHasADigestOnRecord(t *testing.T) {
	all := folders(t, 2)
	m := newMux(t, muxcore.Settings{Mode: muxcore.Mirror}, named(all...)...)
	all[0].edit(t, good)
	wantRepaired(t, m, muxcore.RepairOptions{}, "copy k b a missing")
	info, err := all[1].Stat(t.Context(), "k", muxcore.Conditions{})
	if err != nil || info.Digests.SHA256 == nil {
		t.Errorf("Stat of the copy = %+v, %v, want a digest", info, err)
	}
	all[1].edit(t, alike)
	wantVerified(t, m, muxcore.VerifyOptions{}, fmt.Sprint("k: same ", muxcore.CopyAltered))
}
