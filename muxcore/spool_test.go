package muxcore_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/filestore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/storetest"
)

const block = 128 << 10 // in which a spool counts

// spools are one for each place where bodies can wait.
func spools(t *testing.T) map[string]*muxcore.Spool {
	return map[string]*muxcore.Spool{
		"memory":          muxcore.NewSpool(muxcore.SpoolSettings{Memory: 64 << 20}),
		"disk":            muxcore.NewSpool(muxcore.SpoolSettings{Memory: -1, Dir: filepath.Join(t.TempDir(), "sub", "spool")}),
		"memory and disk": muxcore.NewSpool(muxcore.SpoolSettings{Memory: 8 * block, Dir: t.TempDir()}),
	}
}

// wantUnused fails the test if the spool still holds anything.
func wantUnused(t *testing.T, s *muxcore.Spool) {
	t.Helper()
	if memory, disk := s.Used(); memory != 0 || disk != 0 {
		t.Errorf("the spool still holds %d bytes in memory and %d on disk", memory, disk)
	}
}

// noise is a body in which no two places are alike.
func noise(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(b)
	return b
}

// gate is a store that takes n bytes of a body, and the rest once it is opened.
type gate struct {
	*hooked
	n    int64
	open chan struct{}
}

func (s gate) Put(ctx context.Context, key string, body io.Reader, size int64, opts muxcore.PutOptions) (muxcore.PutResult, error) {
	head := make([]byte, s.n)
	if _, err := io.ReadFull(body, head); err != nil {
		return muxcore.PutResult{}, err
	}
	<-s.open
	return s.hooked.Put(ctx, key, io.MultiReader(bytes.NewReader(head), body), size, opts)
}

// A backend that lags reads on from the spool: the others have the whole body, and have committed, while it waits.
func TestASlowBackendDoesNotHoldUpTheOthers(t *testing.T) {
	body := noise(16*block + 12345)
	all := spools(t)
	for i, name := range slices.Sorted(maps.Keys(all)) {
		for j, size := range []int64{int64(len(body)), -1} {
			if !storetest.Thorough && (i+j)%2 > 0 {
				continue
			}
			t.Run(fmt.Sprintf("%s, size %d", name, size), func(t *testing.T) {
				spool := all[name]
				backends, hooks := crowd(t, 1, 1, 1)
				open := make(chan struct{})
				backends[1].Store = gate{hooks[1], 300_000, open}
				committed := make(chan struct{}, 2)
				for _, i := range []int{0, 2} {
					backends[i].Store = teller2{hooks[i], committed}
				}
				m := newMux(t, muxcore.Settings{Mode: muxcore.Mirror, Spool: spool}, backends...)
				go func() {
					<-committed
					<-committed
					if memory, disk := spool.Used(); memory+disk < 9*block {
						t.Errorf("with one 300,000 bytes into the body and the others done, the spool holds %d bytes in memory, %d on disk", memory, disk)
					}
					close(open)
				}()
				r, err := m.Put(t.Context(), "new", bytes.NewReader(body), size, muxcore.PutOptions{})
				if err != nil || len(r.Missed) != 0 {
					t.Fatalf("Put = %v, %v", r.Missed, err)
				}
				for i, h := range hooks {
					if got, _, err := read(t.Context(), h.Store, "new", muxcore.GetOptions{}); err != nil || got != string(body) {
						t.Errorf("b%d holds %d bytes, %v", i, len(got), err)
					}
				}
				wantUnused(t, spool)
			})
		}
	}
}

// teller2 is a store that tells of each Put that it has done.
type teller2 struct {
	*hooked
	done chan<- struct{}
}

func (s teller2) Put(ctx context.Context, key string, body io.Reader, size int64, opts muxcore.PutOptions) (muxcore.PutResult, error) {
	r, err := s.hooked.Put(ctx, key, body, size, opts)
	s.done <- struct{}{}
	return r, err
}

// Once enough have committed, a slow one has its own timeout to come to its end, and is counted as having missed it after.
// Where the write is no success without it, it is waited for as long as it makes progress.
func TestAStragglerIsWaitedForForItsTimeout(t *testing.T) {
	for name, row := range map[string]struct {
		set    muxcore.Settings
		missed string
		atMost time.Duration
	}{
		"quorum of one":    {muxcore.Settings{Mode: muxcore.Mirror}, "[b2]", time.Minute},
		"quorum of two":    {muxcore.Settings{Mode: muxcore.Mirror, WriteQuorum: muxcore.QuorumMajority}, "[b2]", time.Minute},
		"quorum of all":    {muxcore.Settings{Mode: muxcore.Mirror, WriteQuorum: muxcore.QuorumAll}, "[]", time.Hour},
		"no partial ones":  {muxcore.Settings{Mode: muxcore.Mirror, FailPartialWrites: true}, "[]", time.Hour},
		"shield, a mirror": {muxcore.Settings{Mode: muxcore.Shield}, "[b2]", time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				backends, hooks := crowd(t, 1, 1, 1)
				backends[2].Store = trickle{hooks[2], 25 * time.Second}
				m := newMux(t, row.set, backends...)
				begin := time.Now()
				r, err := m.Put(t.Context(), "new", bytes.NewReader(noise(1<<20)), 1<<20, muxcore.PutOptions{})
				if took := time.Since(begin); err != nil || fmt.Sprint(r.Missed) != row.missed || took > row.atMost {
					t.Errorf("Put = %v, %v after %v, want it missed by %s within %v", r.Missed, err, took, row.missed, row.atMost)
				}
			})
		})
	}
}

// An origin that is slow is what the mirrors wait for, however long that takes: without it they have nothing to commit.
func TestASlowOriginIsNotCutLoose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backends, hooks := crowd(t, 1, 1)
		backends[0].Store = trickle{hooks[0], 25 * time.Second}
		m := newMux(t, muxcore.Settings{Mode: muxcore.Shield, Spool: muxcore.NewSpool(muxcore.SpoolSettings{Memory: -1})}, backends...)
		r, err := m.Put(t.Context(), "new", bytes.NewReader(noise(1<<20)), 1<<20, muxcore.PutOptions{})
		if err != nil || len(r.Missed) != 0 {
			t.Errorf("Put = %v, %v, want it done on both", r.Missed, err)
		}
	})
}

// With the budgets spent, or a folder that cannot be made, a write goes on at the pace of its slowest backend. It does not fail.
func TestAFullSpoolIsNoError(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	body := noise(3 << 20)
	for name, spool := range map[string]*muxcore.Spool{
		"none":       muxcore.NewSpool(muxcore.SpoolSettings{Memory: -1}),
		"too little": muxcore.NewSpool(muxcore.SpoolSettings{Memory: 4 * block, Disk: 3 * block, Dir: t.TempDir()}),
		"no folder":  muxcore.NewSpool(muxcore.SpoolSettings{Memory: -1, Dir: filepath.Join(file, "spool")}),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				backends, hooks := crowd(t, 1, 1)
				open := make(chan struct{})
				backends[1].Store = gate{hooks[1], 10, open}
				src := &counting{r: bytes.NewReader(body)}
				m := newMux(t, muxcore.Settings{Mode: muxcore.Mirror, Spool: spool}, backends...)
				done := make(chan struct{})
				go func() {
					defer close(done)
					r, err := m.Put(t.Context(), "new", src, int64(len(body)), muxcore.PutOptions{})
					if err != nil || len(r.Missed) != 0 {
						t.Errorf("Put = %v, %v", r.Missed, err)
					}
				}()
				synctest.Wait()
				if src.n > 20*block {
					t.Errorf("%d bytes were read while one backend had taken 10", src.n)
				}
				close(open)
				<-done
				for i, h := range hooks {
					if got, _, err := read(t.Context(), h.Store, "new", muxcore.GetOptions{}); err != nil || got != string(body) {
						t.Errorf("b%d holds %d bytes, %v", i, len(got), err)
					}
				}
				wantUnused(t, spool)
			})
		})
	}
}

// counting counts what is read.
type counting struct {
	r io.Reader
	n int64
}

func (c *counting) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// Writes end in many ways; nothing stays in the spool after any of them.
func TestTheSpoolIsGivenBackOnEveryExit(t *testing.T) {
	const size = 9 * block // more than the memory of the spool
	body := noise(size)
	rows := map[string]struct {
		src  func(cancel func()) io.Reader
		hook func(*hooked)
		ok   bool
		both bool // it may be too late to fail
	}{
		"success": {ok: true},
		"an uploader that breaks": {src: func(func()) io.Reader {
			return io.MultiReader(bytes.NewReader(body[:size-1]), iotest.ErrReader(errBroken))
		}},
		"a short body": {src: func(func()) io.Reader { return bytes.NewReader(body[:size-1]) }},
		"a long body":  {src: func(func()) io.Reader { return bytes.NewReader(append(body[:size:size], 1)) }},
		"a caller who leaves": {src: func(cancel func()) io.Reader {
			return io.MultiReader(bytes.NewReader(body[:size-1]), doing(cancel), bytes.NewReader(body[size-1:]))
		}, both: true},
		"a body that panics": {src: func(func()) io.Reader {
			return io.MultiReader(bytes.NewReader(body[:size-1]), doing(func() { panic("upload") }))
		}},
		"a backend that panics":      {hook: func(h *hooked) { h.set(func(context.Context, muxcore.Op) error { panic("store") }) }, ok: true},
		"a backend that refuses":     {hook: func(h *hooked) { h.set(fails) }, ok: true},
		"a no that is not moved on":  {hook: func(h *hooked) { h.set(answers(muxcore.CodeTooLarge)) }, ok: true},
		"a caller who left long ago": {src: func(cancel func()) io.Reader { cancel(); return bytes.NewReader(body) }},
	}
	spool := spools(t)["memory and disk"]
	for i, name := range slices.Sorted(maps.Keys(rows)) {
		for j, mode := range muxcore.Modes() {
			if !storetest.Thorough && (i+j)%2 > 0 {
				continue
			}
			t.Run(fmt.Sprintf("%s, %s", name, mode), func(t *testing.T) {
				row := rows[name]
				backends, hooks := crowd(t, 1, 1)
				if row.hook != nil {
					row.hook(hooks[1])
				}
				m := newMux(t, muxcore.Settings{Mode: mode, Spool: spool}, backends...)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				src := io.Reader(bytes.NewReader(body))
				if row.src != nil {
					src = row.src(cancel)
				}
				func() {
					defer func() { _ = recover() }()
					_, err := m.Put(ctx, "new", src, size, muxcore.PutOptions{})
					if row.both {
						return
					}
					if row.ok && err != nil && row.hook == nil || !row.ok && err == nil {
						t.Errorf("Put = %v", err)
					}
				}()
				wantUnused(t, spool)
			})
		}
	}
}

// doing is a body that does something when it is read, and has no bytes.
func doing(f func()) io.Reader {
	return readerFunc(func([]byte) (int, error) { f(); return 0, io.EOF })
}

// A large body is sent again, from its first byte, as long as the spool has it: through every backend that fails in the
// middle of it, wherever.
func TestALargeBodyIsSentAgainFromTheSpool(t *testing.T) {
	body := noise(12*block + 777)
	all := spools(t)
	for i, name := range slices.Sorted(maps.Keys(all)) {
		for j, taken := range [][2]int64{{1000, 9 * block}, {9 * block, 1000}, {12*block + 777, 12*block + 777}, {2*block + 64<<10, 2*block + 64<<10}} {
			for k, size := range []int64{int64(len(body)), -1} {
				if !storetest.Thorough && (i+j+k)%2 > 0 {
					continue // each two of them are tried together
				}
				spool := all[name]
				backends, hooks := crowd(t, 1, 1, 1)
				backends[0].Store = partTaker{hooks[0], taken[0]}
				backends[1].Store = partTaker{hooks[1], taken[1]}
				m := newMux(t, muxcore.Settings{Spool: spool}, backends...)
				r, err := m.Put(t.Context(), "new", bytes.NewReader(body), size, muxcore.PutOptions{})
				if err != nil || r.Via.Backend != "b2" || r.Via.Attempts != 3 {
					t.Errorf("%s, %v of %d: Put = %+v, %v", name, taken, size, r.Via, err)
				}
				if got, _, err := read(t.Context(), hooks[2].Store, "new", muxcore.GetOptions{}); err != nil || got != string(body) {
					t.Errorf("%s, %v of %d: b2 holds %d bytes, %v", name, taken, size, len(got), err)
				}
				wantUnused(t, spool)
			}
		}
	}
}

// What there is nobody else to send it to is not recorded.
func TestABodyThatNobodyElseCouldGetIsNotSpooled(t *testing.T) {
	backends, hooks := crowd(t, 1, 1)
	spool := muxcore.NewSpool(muxcore.SpoolSettings{Memory: 64 << 20})
	watched := readerFunc(func([]byte) (int, error) {
		if memory, _ := spool.Used(); memory != 0 {
			t.Errorf("the spool holds %d bytes", memory)
		}
		return 0, io.EOF
	})
	body := noise(1 << 20)
	hooks[0].set(fails)
	m := newMux(t, muxcore.Settings{Spool: spool, Cooldown: time.Hour, MaxCooldown: time.Hour}, backends...)
	for range 2 { // found out by this very write, and known before
		if _, err := m.Put(t.Context(), "new", io.MultiReader(bytes.NewReader(body), watched), 1<<20, muxcore.PutOptions{}); err != nil {
			t.Error(err)
		}
	}
}

// The files of a spool are for the owner alone, and what a process that died left is removed.
func TestTheFilesOfASpool(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spool")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"body-left", "other"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	spool := muxcore.NewSpool(muxcore.SpoolSettings{Memory: -1, Dir: dir})
	backends, hooks := crowd(t, 1, 1)
	backends[0].Store = partTaker{hooks[0], 1 << 20}
	m := newMux(t, muxcore.Settings{Spool: spool}, backends...)
	if fi, err := os.Stat(filepath.Join(dir, "body-left")); err != nil || fi.Size() != 1 {
		t.Errorf("a spool that is not used has touched its folder: %v", err)
	}
	if _, err := m.Put(t.Context(), "new", bytes.NewReader(noise(2<<20)), 2<<20, muxcore.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	fi, err := os.Stat(dir)
	if err != nil || fi.Mode().Perm()&0o077 != 0 && os.PathSeparator == '/' {
		t.Errorf("the folder has the mode %v, %v", fi.Mode(), err)
	}
	var names []string
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if err != nil || fmt.Sprint(names) != "[other]" {
		t.Errorf("the folder holds %v, %v, want what is not the spool's alone", names, err)
	}
	if err := os.RemoveAll(dir); err != nil { // by somebody who thinks that it is not needed
		t.Fatal(err)
	}
	backends, hooks = crowd(t, 1, 1)
	backends[0].Store = partTaker{hooks[0], 1 << 20}
	m = newMux(t, muxcore.Settings{Spool: spool}, backends...)
	if _, err := m.Put(t.Context(), "new", bytes.NewReader(noise(2<<20)), 2<<20, muxcore.PutOptions{}); err != nil {
		t.Errorf("Put with the folder gone = %v", err)
	}
}

// The SHA-256 of what is streamed is found out once, by the outermost mux, and recorded by whoever records digests.
func TestTheDigestOfAStreamedBodyIsRecorded(t *testing.T) {
	one := 1
	for i, n := range []int{0, 10, 64 << 10, 64<<10 + 1, 1 << 20} {
		body := noise(n)
		want := sha256.Sum256(body)
		for j, mode := range muxcore.Modes() {
			for k, size := range []int64{int64(n), -1} {
				if !storetest.Thorough && (i+j+k)%2 > 0 {
					continue // each two of them are tried together
				}
				files, err := filestore.New(filestore.Settings{Root: t.TempDir()})
				if err != nil {
					t.Fatal(err)
				}
				inner := newMux(t, muxcore.Settings{Mode: muxcore.Mirror}, muxcore.Backend{Name: "files", Store: files}, muxcore.Backend{Name: "memory", Store: memory(t)})
				m := newMux(t, muxcore.Settings{Mode: mode}, muxcore.Backend{Name: "inner", Store: inner, Weight: &one})
				r, err := m.Put(t.Context(), "new", bytes.NewReader(body), size, muxcore.PutOptions{})
				if err != nil || !bytes.Equal(r.Digests.SHA256, want[:]) {
					t.Fatalf("%s, %d of %d bytes: Put = %x, %v", mode, size, n, r.Digests.SHA256, err)
				}
				for range 2 {
					info, err := files.Stat(t.Context(), "new", muxcore.Conditions{})
					if err != nil || !bytes.Equal(info.Digests.SHA256, want[:]) || info.ETag != r.ETag {
						t.Errorf("%s, %d of %d bytes: the file has %x and %s, want %x and %s (%v)", mode, size, n, info.Digests.SHA256, info.ETag, want, r.ETag, err)
					}
				}
			}
		}
	}
}

// What was declared is not computed again, and what a store asks for too early it does not get.
func TestDigestsOfABodyAreKnownAtItsEnd(t *testing.T) {
	body := noise(1 << 20)
	s := &asking{hooked: &hooked{Store: memory(t)}}
	m := newMux(t, muxcore.Settings{}, muxcore.Backend{Name: "b0", Store: s})
	if _, err := m.Put(t.Context(), "new", bytes.NewReader(body), 1<<20, muxcore.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(body)
	if !s.before.Empty() || !bytes.Equal(s.after.SHA256, sum[:]) {
		t.Errorf("before the end %x, after it %x", s.before.SHA256, s.after.SHA256)
	}
	if d := muxcore.DigestsOf(strings.NewReader("x")); !d.Empty() {
		t.Errorf("a plain reader has digests: %+v", d)
	}
}

type asking struct {
	*hooked
	before, after muxcore.Digests
}

func (s *asking) Put(_ context.Context, _ string, body io.Reader, _ int64, _ muxcore.PutOptions) (muxcore.PutResult, error) {
	_, _ = io.CopyN(io.Discard, body, 100)
	s.before = muxcore.DigestsOf(body)
	_, err := io.Copy(io.Discard, body)
	s.after = muxcore.DigestsOf(body)
	return muxcore.PutResult{}, err
}

// Many writes at a time share the budgets; every copy of every one is right, whoever reads in whatever steps.
func TestManyWritesShareASpool(t *testing.T) {
	spool := muxcore.NewSpool(muxcore.SpoolSettings{Memory: 8 * block, Disk: 40 * block, Dir: t.TempDir()})
	backends, hooks := crowd(t, 1, 1, 1)
	for i := range backends {
		backends[i].Store = uneven{hooks[i], uint64(i)}
	}
	m := newMux(t, muxcore.Settings{Mode: muxcore.Mirror, Spool: spool}, backends...)
	var wg sync.WaitGroup
	for i := range storetest.Times(8, 12) {
		wg.Go(func() {
			body := noise(i*200_000 + i)
			key := fmt.Sprintf("key%d", i)
			if r, err := m.Put(t.Context(), key, bytes.NewReader(body), int64(len(body)), muxcore.PutOptions{}); err != nil || len(r.Missed) > 0 {
				t.Errorf("Put(%s) = %v, %v", key, r.Missed, err)
			}
			for j, h := range hooks {
				if got, _, err := read(t.Context(), h.Store, key, muxcore.GetOptions{}); err != nil || got != string(body) {
					t.Errorf("b%d holds %d bytes of %s, %v", j, len(got), key, err)
				}
			}
		})
	}
	wg.Wait()
	wantUnused(t, spool)
}

// uneven reads bodies in steps of any size, and rests now and then.
type uneven struct {
	*hooked
	seed uint64
}

func (s uneven) Put(ctx context.Context, key string, body io.Reader, size int64, opts muxcore.PutOptions) (muxcore.PutResult, error) {
	r := rand.New(rand.NewPCG(s.seed, uint64(size)))
	steps := readerFunc(func(p []byte) (int, error) {
		if r.IntN(20) == 0 {
			<-time.After(time.Duration(r.IntN(1_000_000)))
		}
		return body.Read(p[:min(len(p), 1+r.IntN(2*block))])
	})
	return s.hooked.Put(ctx, key, steps, size, opts)
}

func ExampleNewSpool() {
	spool := muxcore.NewSpool(muxcore.SpoolSettings{Memory: 16 << 20})
	memory, disk := spool.Used()
	fmt.Println(memory, disk)
	// Output: 0 0
}
