package filestore

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/storetest"
)

// caching makes a store that keeps what was read twice, for which every file has been left alone long enough.
func caching(tb testing.TB, size int64) *Store {
	tb.Helper()
	later := time.Now().Add(time.Hour) // and stays there: what is kept counts only for a moment after a look at the root
	s := newStore(tb, Settings{Cache: NewCache(size), Now: func() time.Time { return later }})
	s.quirks.local = true
	return s
}

// peek is what the cache has.
func peek(tb testing.TB, s *Store, key string, opts muxcore.GetOptions) (o *muxcore.Object, body string, ok bool, err error) {
	tb.Helper()
	if o, ok, err = s.Peek(key, opts); o == nil {
		return nil, "", ok, err
	}
	defer o.Body.Close()
	data, err := io.ReadAll(o.Body)
	return o, string(data), ok, err
}

// warm reads a key until it is kept.
func warm(tb testing.TB, s *Store, key, want string) {
	tb.Helper()
	for range 2 {
		o, err := s.Get(tb.Context(), key, muxcore.GetOptions{})
		if err != nil {
			tb.Fatal(err)
		}
		var text strings.Builder
		_, err = o.Body.(io.WriterTo).WriteTo(&text)
		o.Body.Close()
		if text.String() != want || err != nil {
			tb.Fatalf("Get(%q) = %q, %v, want %q", key, text.String(), err, want)
		}
	}
	if _, got, ok, err := peek(tb, s, key, muxcore.GetOptions{}); got != want || !ok || err != nil {
		tb.Fatalf("Peek(%q) = %q, %t, %v, want %q", key, got, ok, err, want)
	}
}

func TestPeekSaysWhatGetSays(t *testing.T) {
	s := caching(t, 1<<20)
	put(t, s, "d/k", "0123456789", muxcore.PutOptions{ETag: `"id"`, Attributes: muxcore.Attributes{Metadata: map[string]string{"a": "b"}}})
	put(t, s, "empty", "", muxcore.PutOptions{})
	write(t, s.path, "theirs.html", "abc")
	warm(t, s, "d/k", "0123456789")
	warm(t, s, "theirs.html", "abc")
	for _, key := range []string{"d/k", "theirs.html"} {
		etag := stat(t, s, key).ETag
		for _, opts := range []muxcore.GetOptions{
			{},
			{Range: muxcore.Range{Offset: 1, Length: 2}},
			{Range: muxcore.Range{Offset: 2}},
			{Range: muxcore.Range{Offset: -2}},
			{Range: muxcore.Range{Offset: 10}},
			{Range: muxcore.Range{Offset: 1}, IfRange: `"other"`},
			{Conditions: muxcore.Conditions{IfNoneMatch: etag}},
			{Conditions: muxcore.Conditions{IfMatch: `"other"`}},
			{Conditions: muxcore.Conditions{IfMatch: etag}, Range: muxcore.Range{Offset: 1}},
		} {
			got, body, ok, err := peek(t, s, key, opts)
			if !ok {
				t.Fatalf("%s is not kept", key)
			}
			want, wantErr := s.Get(t.Context(), key, opts)
			if muxcore.CodeOf(err) != muxcore.CodeOf(wantErr) || (err == nil) != (wantErr == nil) {
				t.Errorf("%s %+v: Peek says %v, Get says %v", key, opts, err, wantErr)
			}
			if wantErr != nil {
				continue
			}
			text, err := io.ReadAll(want.Body)
			want.Body.Close()
			if body != string(text) || err != nil || got.Offset != want.Offset || got.Length != want.Length {
				t.Errorf("%s %+v: Peek has %q at %d, Get %q at %d (%v)", key, opts, body, got.Offset, text, want.Offset, err)
			}
			if diff := cmp.Diff(want.Info, got.Info); diff != "" {
				t.Errorf("%s %+v: -Get +Peek\n%s", key, opts, diff)
			}
		}
	}
}

func TestWhatIsKeptIsNeverOlderThanTheFile(t *testing.T) {
	at := time.Now().Add(-time.Hour)
	for name, change := range map[string]func(t *testing.T, s *Store, path string){
		"overwritten in place, size and time kept": func(t *testing.T, s *Store, path string) {
			write(t, s.path, "d/k", "new")
			must(t, os.Chtimes(path, at, at))
		},
		"replaced, size and time kept": func(t *testing.T, s *Store, path string) {
			other := write(t, s.path, "other", "new")
			must(t, os.Chtimes(other, at, at))
			must(t, os.Rename(other, path))
		},
		"grown": func(t *testing.T, s *Store, _ string) { write(t, s.path, "d/k", "older") },
		"put":   func(t *testing.T, s *Store, _ string) { put(t, s, "d/k", "new", muxcore.PutOptions{ModTime: at}) },
		"deleted": func(t *testing.T, s *Store, _ string) {
			_, err := s.Delete(t.Context(), "d/k", muxcore.DeleteOptions{})
			must(t, err)
		},
		"removed":           func(t *testing.T, _ *Store, path string) { must(t, os.Remove(path)) },
		"touched":           func(t *testing.T, _ *Store, path string) { must(t, os.Chtimes(path, at, time.Now())) },
		"other permissions": func(t *testing.T, _ *Store, path string) { must(t, os.Chmod(path, 0o600)) },
		"a folder in its place": func(t *testing.T, _ *Store, path string) {
			must(t, os.Remove(path))
			must(t, os.Mkdir(path, 0o755))
		},
		"a link that leads to it": func(t *testing.T, s *Store, path string) {
			must(t, os.Rename(path, filepath.Join(s.path, "away")))
			must(t, os.Symlink(filepath.Join("..", "away"), path))
		},
		"its folder lies outside": func(t *testing.T, s *Store, path string) {
			outside := filepath.Join(t.TempDir(), "d")
			must(t, os.Rename(filepath.Dir(path), outside))
			must(t, os.Symlink(outside, filepath.Dir(path)))
		},
		"another root": func(t *testing.T, s *Store, _ string) {
			must(t, os.Rename(s.path, s.path+"-old"))
			write(t, s.path, "d/k", "new")
			s.mu.Lock()
			s.checked = time.Time{} // a second later
			s.mu.Unlock()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := caching(t, 1<<20)
			path := write(t, s.path, "d/k", "old")
			must(t, os.Chtimes(path, at, at))
			warm(t, s, "d/k", "old")
			tick(t)
			change(t, s, path)
			if _, body, ok, err := peek(t, s, "d/k", muxcore.GetOptions{}); ok {
				t.Errorf("Peek = %q, %v", body, err)
			}
		})
	}
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func TestAFileThatWasJustChangedIsNotKept(t *testing.T) {
	at := time.Now()
	s := newStore(t, Settings{Cache: NewCache(1 << 20), Now: func() time.Time { return at }})
	s.quirks.local = true
	write(t, s.path, "k", "x")
	for range 3 {
		wantBody(t, s, "k", "x")
	}
	if _, ok, _ := s.Peek("k", muxcore.GetOptions{}); ok {
		t.Error("another change within the tick of the file system's clock would not be seen")
	}
}

func TestOnlyWhatIsReadAgainIsKept(t *testing.T) {
	s := caching(t, 1<<20)
	write(t, s.path, "once", "x")
	wantBody(t, s, "once", "x")
	large := strings.Repeat("x", maxCached+1)
	write(t, s.path, "large", large)
	write(t, s.path, "part", "0123")
	for range 3 {
		wantBody(t, s, "large", large)
		o, err := s.Get(t.Context(), "part", muxcore.GetOptions{Range: muxcore.Range{Offset: 1}})
		must(t, err)
		_, err = io.ReadAll(o.Body)
		must(t, err)
		o.Body.Close()
	}
	for _, key := range []string{"once", "large", "part"} {
		if _, ok, _ := s.Peek(key, muxcore.GetOptions{}); ok {
			t.Errorf("%s is kept", key)
		}
	}
}

func TestStoresShareTheRoomOfACache(t *testing.T) {
	const room = 64 << 10
	s, other := caching(t, room), caching(t, room)
	other.cache = s.cache
	body := strings.Repeat("x", 4<<10)
	for i := range 30 {
		for _, one := range []*Store{s, other} {
			key := fmt.Sprint("k", i)
			write(t, one.path, key, body)
			warm(t, one, key, body)
		}
	}
	if c := s.cache; c.size > room || c.size < room/2 || c.used.Len() != len(c.at) {
		t.Errorf("%d objects of %d bytes in room for %d", c.used.Len(), c.size, room)
	}
	if _, ok, _ := s.Peek("k0", muxcore.GetOptions{}); ok {
		t.Error("the one that was used first is still kept")
	}
	must(t, s.Close())
	must(t, other.Close())
	if c := s.cache; c.size != 0 || len(c.at) != 0 {
		t.Errorf("closed stores left %d objects of %d bytes", len(c.at), c.size)
	}
}

func TestWhatIsStoredBesidesAnObjectTakesRoomInACache(t *testing.T) {
	const room = 64 << 10
	s := caching(t, room)
	s.quirks = quirks{local: true, noAttributes: true, noSync: true}
	long := muxcore.Attributes{ContentDisposition: strings.Repeat("x", 2<<10), Metadata: map[string]string{"a": strings.Repeat("x", 2<<10)}}
	for i := range 30 {
		key := fmt.Sprint("k", i)
		put(t, s, key, "x", muxcore.PutOptions{Attributes: long})
		warm(t, s, key, "x")
	}
	if n := s.cache.used.Len(); n*4<<10 > room || n*4<<10 < room/2 {
		t.Errorf("%d objects with 4 KiB of attributes each in room for %d", n, room)
	}
	long.ContentDisposition = strings.Repeat("x", room/4)
	put(t, s, "longer", "x", muxcore.PutOptions{Attributes: long})
	for range 3 {
		wantBody(t, s, "longer", "x")
	}
	if _, ok, _ := s.Peek("longer", muxcore.GetOptions{}); ok {
		t.Error("an object whose attributes take a fourth of the room is kept")
	}
}

func TestReadersNeverSeeAnOlderVersionThanTheWriterHasPut(t *testing.T) {
	s := caching(t, 1<<20)
	s.now = func() time.Time { return time.Now().Add(steady - 20*time.Millisecond) } // twice a tick of the file system's clock
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			key, r := fmt.Sprint("k", w), rand.New(rand.NewPCG(1, uint64(w)))
			for version := range storetest.Times(5, 40) {
				want := fmt.Sprintf("%04d", version)
				put(t, s, key, want, muxcore.PutOptions{})
				for end := time.Now().Add(time.Duration(r.IntN(50)) * time.Millisecond); time.Now().Before(end); {
					if _, got, ok, err := peek(t, s, key, muxcore.GetOptions{}); ok && (got != want || err != nil) {
						t.Errorf("Peek = %q, %v, want %q", got, err, want)
						return
					}
					wantBody(t, s, key, want)
				}
			}
		})
	}
	wg.Wait()
}

func BenchmarkGetKept(b *testing.B) {
	s := caching(b, 1<<20)
	write(b, s.path, "dir/k.txt", strings.Repeat("x", 1<<10))
	warm(b, s, "dir/k.txt", strings.Repeat("x", 1<<10))
	b.ReportAllocs()
	for b.Loop() {
		o, ok, err := s.Peek("dir/k.txt", muxcore.GetOptions{})
		if !ok { // the root is looked at once a second
			o, err = s.Get(b.Context(), "dir/k.txt", muxcore.GetOptions{})
		}
		if err != nil {
			b.Fatal(err)
		}
		_, _ = o.Body.(io.WriterTo).WriteTo(io.Discard)
		_ = o.Body.Close()
	}
}
