package muxcore_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/journal"
	"github.com/suaveplan/caddy-storage-mux/muxcore/storetest"
)

// tardy is a store that, when told to, takes a write in, says nothing, and commits it long after nobody waits any more.
type tardy struct {
	muxcore.Store
	caps muxcore.Capabilities

	mu    sync.Mutex
	after time.Duration // of the writes that come; 0: they are committed at once
}

func newTardy(tb testing.TB, metadata bool) *tardy {
	tb.Helper()
	s := &tardy{Store: memory(tb)}
	s.caps = muxcore.CapabilitiesOf(s.Store)
	s.caps.Metadata = metadata
	return s
}

func (s *tardy) Capabilities() muxcore.Capabilities { return s.caps }
func (s *tardy) Waits() muxcore.Waits               { return muxcore.WaitsWithContext }

func (s *tardy) delay(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.after = d
}

func (s *tardy) late() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.after
}

// plain takes away what a store without metadata could not keep.
func (s *tardy) plain(opts muxcore.PutOptions) muxcore.PutOptions {
	if s.caps.Metadata {
		return opts
	}
	return muxcore.PutOptions{Conditions: opts.Conditions}
}

func (s *tardy) Put(ctx context.Context, key string, body io.Reader, size int64, opts muxcore.PutOptions) (muxcore.PutResult, error) {
	opts = s.plain(opts)
	d := s.late()
	if d == 0 {
		return s.Store.Put(ctx, key, body, size, opts)
	}
	all, err := io.ReadAll(muxcore.CheckBody(body, size, opts.Digests))
	if err != nil {
		return muxcore.PutResult{}, err
	}
	time.AfterFunc(d, func() { _, _ = s.Store.Put(context.Background(), key, bytes.NewReader(all), int64(len(all)), opts) })
	<-ctx.Done()
	return muxcore.PutResult{}, ctx.Err()
}

func (s *tardy) Delete(ctx context.Context, key string, opts muxcore.DeleteOptions) (muxcore.DeleteResult, error) {
	d := s.late()
	if d == 0 {
		return s.Store.Delete(ctx, key, opts)
	}
	time.AfterFunc(d, func() { _, _ = s.Store.Delete(context.Background(), key, opts) })
	<-ctx.Done()
	return muxcore.DeleteResult{}, ctx.Err()
}

// A backend that commits a write when we have long given it up, over what it was brought meanwhile, is brought the newest state
// again. It may keep identities or not.
func TestAWriteThatIsCommittedLateIsRepaired(t *testing.T) {
	remove := func(tb testing.TB, m *muxcore.Mux) {
		tb.Helper()
		if _, err := m.Delete(tb.Context(), "k", muxcore.DeleteOptions{}); err != nil {
			tb.Fatal(err)
		}
	}
	store := func(body string) func(testing.TB, *muxcore.Mux) {
		return func(tb testing.TB, m *muxcore.Mux) { tb.Helper(); put(tb, m, "k", body) }
	}
	for i, test := range []struct {
		name        string
		late, newer func(testing.TB, *muxcore.Mux)
		want        string
	}{
		{"an upload over another", store("one"), store("newer"), "newer"},
		{"an upload over one as long", store("one"), store("two"), "two"},
		{"a large upload over another", store(long(300_000)), store("newer"), "newer"},
		{"an upload over a delete", store("one"), remove, ""},
		{"a delete over an upload", remove, store("newer"), "newer"},
		{"an upload over itself", store("one"), func(testing.TB, *muxcore.Mux) {}, "one"},
	} {
		for _, mode := range []muxcore.Mode{muxcore.Mirror, muxcore.Shield, muxcore.Failover} {
			for j, metadata := range []bool{true, false} {
				for k, after := range []time.Duration{20 * time.Second, 6 * time.Minute} {
					if !storetest.Thorough && (i+j+k)%2 > 0 {
						continue
					}
					t.Run(fmt.Sprint(test.name, " in ", mode, ", metadata ", metadata, ", after ", after), func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) {
							ill, well := newTardy(t, metadata), newTardy(t, true)
							backends := named(well, ill)
							if mode == muxcore.Failover { // the first one is preferred
								backends = named(ill, well)
							}
							set := muxcore.Settings{Mode: mode, Timeout: 10 * time.Second, Journal: newJournal(t).Scope("")}
							m := newMux(t, set, backends...)
							put(t, m, "k", "old")
							ill.delay(after)
							test.late(t, m)
							ill.delay(0)
							if mode != muxcore.Failover { // there, one that is well would be the only one that has what is newer
								time.Sleep(15 * time.Second) // the cooldown is over
							}
							test.newer(t, m)
							time.Sleep(20 * time.Minute)
							for name, s := range map[string]muxcore.Store{"ill": ill.Store, "well": well.Store} {
								if got := holds(t, s)["k"]; got != test.want {
									t.Errorf("the one that is %s holds %.20q, want %.20q", name, got, test.want)
								}
							}
							if diff := cmp.Diff([]int{0, 0}, pendingOf(m)); diff != "" {
								t.Errorf("pending (-want +got):\n%s", diff)
							}
							if set.Journal.Pending() {
								t.Errorf("the journal still remembers %q", set.Journal.Keys("", "", 10))
							}
						})
					})
				}
			}
		}
	}
}

// What may come late is not forgotten by a restart, nor while the backend is down.
func TestAWriteThatIsCommittedLateIsRepairedAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		a, b := newTardy(t, true), newTardy(t, true)
		open := func() (*muxcore.Mux, *journal.Journal) {
			j := journal.New(dir, journal.Settings{})
			return newMuxUnclosed(t, muxcore.Settings{Mode: muxcore.Mirror, Timeout: 10 * time.Second, Journal: j.Scope("")}, named(a, b)...), j
		}
		end := func(m *muxcore.Mux, j *journal.Journal) {
			if err := m.Close(); err != nil {
				t.Error(err)
			}
			if err := j.Close(); err != nil {
				t.Error(err)
			}
		}
		m, j := open()
		b.delay(3 * time.Minute)
		put(t, m, "k", "one")
		b.delay(0)
		time.Sleep(15 * time.Second)
		put(t, m, "k", "newer")
		time.Sleep(15 * time.Second)
		if diff := cmp.Diff([]int{0, 0}, pendingOf(m)); diff != "" {
			t.Errorf("pending once it was brought (-want +got):\n%s", diff)
		}
		end(m, j)
		m, j = open()
		time.Sleep(20 * time.Minute)
		end(m, j)
		for i, s := range []*tardy{a, b} {
			if got := holds(t, s.Store)["k"]; got != "newer" {
				t.Errorf("backend %d holds %q", i, got)
			}
		}
	})
}

// An upload that failed everywhere, and is committed by one backend after all, is then the newest for all.
func TestAFailedUploadThatIsCommittedLateComesToAll(t *testing.T) {
	for _, mode := range []muxcore.Mode{muxcore.Mirror, muxcore.Shield} {
		for _, metadata := range []bool{true, false} {
			t.Run(fmt.Sprint(mode, ", metadata ", metadata), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					a, b := newTardy(t, metadata), newTardy(t, true)
					m := newMux(t, muxcore.Settings{Mode: mode, Timeout: 10 * time.Second, Journal: newJournal(t).Scope("")}, named(a, b)...)
					put(t, m, "k", "old")
					a.delay(2 * time.Minute)
					b.delay(24 * time.Hour)
					if _, err := m.Put(t.Context(), "k", strings.NewReader("newer"), 5, muxcore.PutOptions{}); err == nil {
						t.Fatal("Put succeeds though nobody says so")
					}
					a.delay(0)
					b.delay(0)
					time.Sleep(90 * time.Second)
					wantBody(t, a.Store, "k", "old", "")
					time.Sleep(20 * time.Minute)
					wantBody(t, a.Store, "k", "newer", "")
					wantBody(t, b.Store, "k", "newer", "")
				})
			})
		}
	}
}

// Others may write to a backend that keeps identities: what is not ours is not what came late.
func TestWhatOthersWriteIsNotTakenForALateCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newTardy(t, true), newTardy(t, true)
		m := newMux(t, muxcore.Settings{Mode: muxcore.Mirror, Timeout: 10 * time.Second, Journal: newJournal(t).Scope("")}, named(a, b)...)
		b.delay(24 * time.Hour)
		put(t, m, "k", "one")
		b.delay(0)
		time.Sleep(15 * time.Second)
		put(t, m, "k", "newer")
		time.Sleep(15 * time.Second)
		put(t, b.Store, "k", "somebody else's")
		time.Sleep(20 * time.Minute)
		wantBody(t, b.Store, "k", "somebody else's", "")
	})
}
