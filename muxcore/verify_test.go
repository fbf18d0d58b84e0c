package muxcore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/storetest"
)

// version puts one of several versions of an object, as a mux would: with an identity and a time that follow from it.
func version(tb testing.TB, s muxcore.Store, key string, n int) {
	tb.Helper()
	body := fmt.Sprintf("version %d of %s%s", n, key, strings.Repeat(".", n))
	opts := muxcore.PutOptions{ETag: fmt.Sprintf(`"%s-%d"`, key, n), ModTime: time.Unix(1_700_000_000+int64(n), 0)}
	if _, err := s.Put(tb.Context(), key, strings.NewReader(body), int64(len(body)), opts); err != nil {
		tb.Fatal(err)
	}
}

// named makes backends a, b, c... of stores.
func named[S muxcore.Store](stores ...S) (backends []muxcore.Backend) {
	for i, s := range stores {
		backends = append(backends, muxcore.Backend{Name: string(rune('a' + i)), Store: s})
	}
	return backends
}

// three are stores that fail on script.
func three(tb testing.TB) []*storetest.Faulty {
	tb.Helper()
	var all []*storetest.Faulty
	for range 3 {
		f := storetest.NewFaulty(memory(tb))
		f.SetWaits(muxcore.WaitsWithContext)
		all = append(all, f)
	}
	return all
}

// verify gives the differences as "key: state state state", and the backends that errors name.
func verify(tb testing.TB, m *muxcore.Mux, opts muxcore.VerifyOptions) (differences, blamed []string) {
	tb.Helper()
	for d, err := range m.Verify(tb.Context(), opts) {
		if err != nil {
			blamed = append(blamed, backendOf(err))
			continue
		}
		line := d.Key + ":"
		for _, c := range d.Copies {
			line += " " + string(c.State)
		}
		differences = append(differences, line)
	}
	return differences, blamed
}

// wantVerified fails the test if Verify says anything else.
func wantVerified(tb testing.TB, m *muxcore.Mux, opts muxcore.VerifyOptions, want ...string) {
	tb.Helper()
	got, blamed := verify(tb, m, opts)
	if diff := cmp.Diff(want, got); diff != "" || len(blamed) > 0 {
		tb.Errorf("Verify(%+v): blamed %v, differences (-want +got):\n%s", opts, blamed, diff)
	}
}

func TestVerifySaysWhatDiffers(t *testing.T) {
	stores := three(t)
	m := newMux(t, muxcore.Settings{Mode: muxcore.Mirror}, named(stores...)...)
	wantVerified(t, m, muxcore.VerifyOptions{})
	for _, s := range stores {
		version(t, s, "same", 1)
		version(t, s, muxcore.InternalPrefix+"certificates/x", 1)
	}
	wantVerified(t, m, muxcore.VerifyOptions{})
	wantVerified(t, m, muxcore.VerifyOptions{Deep: true})

	version(t, stores[0], "dir/missing", 1)
	version(t, stores[1], "dir/missing", 1)
	for i, s := range stores {
		version(t, s, "size", i)
		version(t, s, muxcore.LockPrefix+"x", i)
	}
	for i, body := range []string{"one", "two", "two"} {
		put(t, stores[i], "digest", body)
	}
	for i, tag := range []string{`"a"`, `"b"`, `"a"`} {
		if _, err := stores[i].Put(t.Context(), "etag", strings.NewReader("x"), 1, muxcore.PutOptions{ETag: tag, ModTime: time.Unix(1, 0)}); err != nil {
			t.Fatal(err)
		}
	}
	version(t, stores[2], muxcore.InternalPrefix+"certificates/x", 2)
	want := []string{
		"dir/missing: same same missing",
		"etag: same etag same",
		"size: size size same",
		muxcore.InternalPrefix + "certificates/x: size size same",
	}
	newest := "digest: digest same same" // b's is newer than a's, c's newer still
	wantVerified(t, m, muxcore.VerifyOptions{}, slices.Concat([]string{newest}, want)...)
	wantVerified(t, m, muxcore.VerifyOptions{Prefix: "dir/"}, want[0])
	wantVerified(t, m, muxcore.VerifyOptions{Truth: "c"}, newest, "dir/missing: extra extra absent", want[1], want[2], want[3])
}

func TestVerifyInShieldGoesByTheOrigin(t *testing.T) {
	stores := three(t)
	m := newMux(t, muxcore.Settings{Mode: muxcore.Shield}, named(stores...)...)
	version(t, stores[0], "k", 1)
	version(t, stores[1], "k", 1)
	version(t, stores[2], "k", 2)
	version(t, stores[2], "not at the origin", 1)
	wantVerified(t, m, muxcore.VerifyOptions{}, "k: same same size", "not at the origin: absent absent extra")
	stores[0].Break(&muxcore.Error{Code: muxcore.CodeUnavailable})
	got, blamed := verify(t, m, muxcore.VerifyOptions{})
	want := []string{"k: unknown size same", "not at the origin: unknown missing same"}
	if diff := cmp.Diff(want, got); diff != "" || !slices.Equal(blamed, []string{"a"}) {
		t.Errorf("with the origin down: blamed %v, differences (-want +got):\n%s", blamed, diff)
	}
}

func TestVerifyReadsTheBytesIfAsked(t *testing.T) {
	stores := three(t)
	m := newMux(t, muxcore.Settings{Mode: muxcore.Mirror}, named(stores...)...)
	for _, s := range stores {
		version(t, s, "rotten", 1)
		put(t, s, "foreign", "same length")
	}
	stores[0].OnKey(muxcore.OpGet, "rotten", storetest.Flip(3))
	// A foreign object of which no digest is known.
	forget := storetest.Describe(func(i *muxcore.Info) { i.Digests, i.ETag, i.ModTime = muxcore.Digests{}, "", time.Time{} })
	for _, op := range []muxcore.Op{muxcore.OpGet, muxcore.OpStat} {
		for _, s := range stores {
			s.OnKey(op, "foreign", forget)
		}
	}
	for _, s := range stores {
		s.From(muxcore.OpList, 1, storetest.Describe(func(i *muxcore.Info) {
			if i.Key == "foreign" {
				i.Digests, i.ETag, i.ModTime = muxcore.Digests{}, "", time.Time{}
			}
		}))
	}
	stores[2].OnKey(muxcore.OpGet, "foreign", storetest.Flip(1))
	wantVerified(t, m, muxcore.VerifyOptions{})
	wantVerified(t, m, muxcore.VerifyOptions{Deep: true}, "foreign: same same digest", "rotten: corrupt same same")
}

func TestVerifyGoesIntoNestedMuxes(t *testing.T) {
	stores := three(t)
	inner := newMuxUnclosed(t, muxcore.Settings{Mode: muxcore.Failover}, named(stores[1:]...)...)
	m := newMux(t, muxcore.Settings{Mode: muxcore.Mirror},
		muxcore.Backend{Name: "local", Store: stores[0], ReadOnly: true}, muxcore.Backend{Name: "eu", Store: inner})
	version(t, stores[0], "k", 1)
	version(t, stores[1], "k", 1)
	for d, err := range m.Verify(t.Context(), muxcore.VerifyOptions{Truth: "eu.a"}) {
		var got []string
		for _, c := range d.Copies {
			got = append(got, c.Backend+" "+string(c.State))
		}
		if diff := cmp.Diff([]string{"local same", "eu.a same", "eu.b missing"}, got); diff != "" || err != nil {
			t.Errorf("Verify: %v, (-want +got):\n%s", err, diff)
		}
	}
	for _, truth := range []string{"eu.", "eu.c", "loca", "local.x", "nobody", "eu.a.a"} {
		_, blamed := verify(t, m, muxcore.VerifyOptions{Truth: truth})
		if !slices.Equal(blamed, []string{truth}) {
			t.Errorf("Verify by the word of %q blames %q", truth, blamed)
		}
	}
}

func TestVerifyInStickyAsksEachKeyOfItsOwnBackend(t *testing.T) {
	for _, rendezvous := range []bool{false, true} {
		stores := three(t)
		m := newMux(t, muxcore.Settings{Mode: muxcore.StickyByKey, Rendezvous: rendezvous, OnMissNext: true}, named(stores...)...)
		for i := range 20 {
			put(t, m, fmt.Sprint("k", i), "body")
		}
		wantVerified(t, m, muxcore.VerifyOptions{})
		info, err := m.Stat(t.Context(), "k0", muxcore.Conditions{})
		if err != nil {
			t.Fatal(err)
		}
		own := slices.Index([]string{"a", "b", "c"}, info.Via.Backend)
		other := (own + 1) % 3
		version(t, stores[other], "k0", 1)
		if _, err := stores[own].Delete(t.Context(), "k0", muxcore.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		want := []string{"absent", "absent", "absent"}
		want[own], want[other] = "missing", "same"
		wantVerified(t, m, muxcore.VerifyOptions{}, "k0: "+strings.Join(want, " "))
	}
}

// A backend that cannot be listed is never left out in silence, and no key of it is taken to be missing.
func TestVerifyNamesWhoCannotBeListed(t *testing.T) {
	unordered := func(i *muxcore.Info) { i.Key = map[string]string{"1": "9", "2": "1", "3": "2"}[i.Key] }
	tests := []struct {
		name string
		ill  func(*storetest.Faulty)
		want []string
	}{
		{"it fails", func(f *storetest.Faulty) { f.Break(&muxcore.Error{Code: muxcore.CodeUnavailable}) }, []string{"2: same missing unknown", "3: same missing unknown"}},
		{"it hangs", func(f *storetest.Faulty) { f.From(muxcore.OpList, 1, storetest.Stall()) }, []string{"2: same missing unknown", "3: same missing unknown"}},
		{"it breaks off", func(f *storetest.Faulty) { f.From(muxcore.OpList, 1, storetest.Cut(1, errBroken)) }, []string{"2: same missing unknown", "3: same missing unknown"}},
		{"it stalls", func(f *storetest.Faulty) { f.From(muxcore.OpList, 1, storetest.StallBody(1)) }, []string{"2: same missing unknown", "3: same missing unknown"}},
		{"it panics", func(f *storetest.Faulty) { f.From(muxcore.OpList, 1, storetest.Panic("oh")) }, []string{"2: same missing unknown", "3: same missing unknown"}},
		{"it is in no order", func(f *storetest.Faulty) { f.From(muxcore.OpList, 1, storetest.Describe(unordered)) }, []string{"2: same missing same", "3: same missing same"}},
		{"it will not let us", func(f *storetest.Faulty) { f.From(muxcore.OpList, 1, storetest.FailCode(muxcore.CodeDenied)) }, []string{"2: same missing unknown", "3: same missing unknown"}},
		{"it has no lists, and is asked for each key", func(f *storetest.Faulty) {
			f.SetCapabilities(muxcore.Capabilities{Write: true})
		}, []string{"2: same missing same", "3: same missing same"}},
		{"it has no lists, and then fails", func(f *storetest.Faulty) {
			f.SetCapabilities(muxcore.Capabilities{Write: true})
			f.From(muxcore.OpStat, 2, storetest.Fail(errBroken))
		}, []string{"2: same missing unknown", "3: same missing unknown"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				stores := three(t)
				for i, s := range stores {
					for _, key := range []string{"1", "2", "3"} {
						if key == "1" || i != 1 {
							version(t, s, key, 1)
						}
					}
				}
				m := newMux(t, muxcore.Settings{Mode: muxcore.Mirror}, named(stores...)...)
				test.ill(stores[2])
				got, blamed := verify(t, m, muxcore.VerifyOptions{})
				if len(blamed) == 0 || slices.ContainsFunc(blamed, func(name string) bool { return name != "c" }) || len(blamed) > 2 {
					t.Errorf("Verify blames %q", blamed)
				}
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Errorf("differences (-want +got):\n%s", diff)
				}
				synctest.Wait()
				noLeaks(t, stores...)
			})
		})
	}
}

func TestVerifyNamesWhoIsOutOfService(t *testing.T) {
	stores := three(t)
	m := newMux(t, muxcore.Settings{Mode: muxcore.Mirror}, named(stores...)...)
	if err := m.Drain(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	version(t, stores[0], "k", 1)
	got, blamed := verify(t, m, muxcore.VerifyOptions{})
	if !slices.Equal(blamed, []string{"b"}) || !slices.Equal(got, []string{"k: same unknown missing"}) {
		t.Errorf("Verify says %q and blames %q", got, blamed)
	}
}

// A backend that is in its cooldown is asked nevertheless: whoever asks for a comparison wants to know now.
func TestVerifyAsksABackendThatIsThoughtDown(t *testing.T) {
	stores := three(t)
	m := newMux(t, muxcore.Settings{Mode: muxcore.Failover, Cooldown: time.Hour, MaxCooldown: time.Hour}, named(stores...)...)
	stores[0].On(muxcore.OpStat, 1, storetest.Fail(errBroken))
	_, _ = m.Stat(t.Context(), "k", muxcore.Conditions{})
	if s := m.Stats().Backends[0].Status; s != muxcore.StatusDown {
		t.Fatalf("a is %s", s)
	}
	wantVerified(t, m, muxcore.VerifyOptions{})
	if s := m.Stats().Backends[0].Status; s != muxcore.StatusUp {
		t.Errorf("after it has answered, a is %s", s)
	}
}

func TestVerifyDoesNotTakeWritesUnderWayForDifferences(t *testing.T) {
	stores := three(t)
	m := newMux(t, muxcore.Settings{Mode: muxcore.Mirror}, named(stores...)...)
	for i := range 100 {
		version(t, m, fmt.Sprintf("k%03d", i), 1)
	}
	opts := muxcore.VerifyOptions{OnKey: func(key string) {
		var n int
		_, _ = fmt.Sscanf(key, "k%03d", &n)
		version(t, m, fmt.Sprintf("k%03d", n+10), n) // some cursors have read it already
	}}
	wantVerified(t, m, opts)
}

func TestVerifyEndsWithItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := three(t)
		m := newMux(t, muxcore.Settings{Mode: muxcore.Mirror}, named(stores...)...)
		for i := range 100 {
			version(t, stores[0], fmt.Sprint("k", i), 1)
		}
		for range m.Verify(t.Context(), muxcore.VerifyOptions{}) {
			break
		}
		stores[1].From(muxcore.OpList, 1, storetest.Stall())
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			synctest.Wait()
			cancel()
		}()
		var last error
		for _, err := range m.Verify(ctx, muxcore.VerifyOptions{}) {
			last = err
		}
		if !errors.Is(last, context.Canceled) {
			t.Errorf("Verify ends with %v", last)
		}
		synctest.Wait()
		noLeaks(t, stores...)
		if s := m.Stats().Backends[1]; s.Status != muxcore.StatusUp {
			t.Errorf("the one that was asked is %s for %s", s.Status, s.Reason)
		}
	})
}
