package storefs_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/filestore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/memstore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/storefs"
	"github.com/suaveplan/caddy-storage-mux/muxcore/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func ExampleNew() {
	store, _ := memstore.New(memstore.Settings{})
	fsys := storefs.New(func() (muxcore.Store, func(), error) { return store, func() {}, nil }, nil)
	_, err := fs.ReadFile(fsys, "x")
	fmt.Println(err)
	// Output: open x: file does not exist
}

var errOut = errors.New("out of order")

// of shows a store, and counts what is open.
func of(store muxcore.Store, open *int) *storefs.FS {
	return storefs.New(func() (muxcore.Store, func(), error) {
		*open++
		return store, func() { *open-- }, nil
	}, func(err error) error { return fmt.Errorf("%w: %w", errOut, err) })
}

func put(t *testing.T, s muxcore.Store, keys ...string) {
	t.Helper()
	for _, key := range keys {
		body := "content of " + key
		if _, err := s.Put(t.Context(), key, strings.NewReader(body), int64(len(body)), muxcore.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

func memory(t *testing.T) *memstore.Store {
	t.Helper()
	s, err := memstore.New(memstore.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestItIsAFileSystem(t *testing.T) {
	dir := t.TempDir()
	for name, open := range map[string]func(t *testing.T) muxcore.Store{
		"memory": func(t *testing.T) muxcore.Store { return memory(t) },
		"files": func(t *testing.T) muxcore.Store {
			s, err := filestore.New(filestore.Settings{Root: dir})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			return s
		},
	} {
		inOneMoment(t, name, func(t *testing.T) {
			store := open(t)
			put(t, store, "a", "a.txt", "dir/b", "dir/sub/c", "dir-x/d", muxcore.InternalPrefix+"key")
			held := 0
			fsys := of(store, &held)
			if err := fstest.TestFS(fsys, "a", "a.txt", "dir/b", "dir/sub/c", "dir-x/d"); err != nil {
				t.Error(err)
			}
			if held != 0 {
				t.Errorf("%d files hold the store", held)
			}
			if all, err := fs.Glob(fsys, "*"); err != nil || len(all) != 4 {
				t.Errorf("the root has %q, %v, want no reserved name", all, err)
			}
		})
	}
}

// inOneMoment runs a test in which no time passes, as the suite compares the times of folders that it sees twice.
func inOneMoment(t *testing.T, name string, test func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

// One backend that is away leaves open whether an object has the name; what lies below says that it is a folder.
func TestAFolderIsThereThoughTheStoreCannotSayThatNoObjectIs(t *testing.T) {
	f, open := storetest.NewFaulty(memory(t)), 0
	put(t, f, "dir/sub/x")
	f.From(muxcore.OpStat, 1, storetest.Fail(&muxcore.Error{Code: muxcore.CodeUnavailable}))
	for _, name := range []string{"dir", "dir/sub"} {
		if found, err := fs.Stat(of(f, &open), name); err != nil || !found.IsDir() {
			t.Errorf("Stat(%q) = %v, %v, want a folder", name, found, err)
		}
	}
	if _, err := of(f, &open).Open("missing"); !errors.Is(err, errOut) {
		t.Errorf("Open of what may be there = %v, want the outage", err)
	}
	if open != 0 {
		t.Errorf("%d files hold the store", open)
	}
}

// Of a folder whose time is that of its newest file, a browser's cache would never hear that another file is gone.
func TestAFolderIsAsOldAsTheLookAtIt(t *testing.T) {
	inOneMoment(t, "in whole seconds", func(t *testing.T) {
		store, open := memory(t), 0
		put(t, store, "dir/x")
		time.Sleep(time.Minute + time.Millisecond)
		found, err := fs.Stat(of(store, &open), "dir")
		if err != nil || !found.ModTime().Equal(time.Now().Truncate(time.Second)) {
			t.Errorf("the folder is of %v, %v, want of %v", found.ModTime(), err, time.Now())
		}
	})
}

func TestReservedAndBadNamesAreInvalid(t *testing.T) {
	store, open := memory(t), 0
	put(t, store, muxcore.InternalPrefix+"key")
	for _, name := range []string{muxcore.InternalPrefix + "key", ".storage_mux", "/a", "a//b", "../a", "a\\b", "a\x00", ""} {
		if _, err := of(store, &open).Open(name); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("Open(%q) = %v, want fs.ErrInvalid", name, err)
		}
	}
}

func TestAnObjectHidesTheFolderOfItsName(t *testing.T) {
	inOneMoment(t, "as the suite has it", func(t *testing.T) {
		store, open := memory(t), 0
		put(t, store, "a", "a/b", "a.x")
		if err := fstest.TestFS(of(store, &open), "a", "a.x"); err != nil {
			t.Error(err)
		}
	})
}

func TestAPartIsReadFromItsOffset(t *testing.T) {
	f, open := storetest.NewFaulty(memory(t)), 0
	put(t, f, "x")
	file, err := of(f, &open).Open("x")
	if err != nil {
		t.Fatal(err)
	}
	seeker := file.(io.ReadSeeker)
	if _, err := seeker.Seek(-1, io.SeekEnd); err != nil {
		t.Fatal(err)
	}
	if n := f.Calls(muxcore.OpGet); n != 0 {
		t.Errorf("%d bodies were opened before the first Read", n)
	}
	if got, err := io.ReadAll(seeker); err != nil || string(got) != "x" {
		t.Errorf("read %q, %v", got, err)
	}
	put(t, f, "y")
	if _, err := f.Put(t.Context(), "x", strings.NewReader("other body x"), 12, muxcore.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	_, _ = seeker.Seek(0, io.SeekStart)
	if got, err := io.ReadAll(seeker); err == nil {
		t.Errorf("read %q of another version", got)
	}
	if err := file.Close(); err != nil || open != 0 {
		t.Errorf("Close = %v, %d open", err, open)
	}
	if _, err := seeker.Read(make([]byte, 1)); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("Read after Close = %v", err)
	}
}

// untagged is a store without entity tags.
type untagged struct{ muxcore.Store }

func (s untagged) Stat(ctx context.Context, key string, cond muxcore.Conditions) (muxcore.Info, error) {
	info, err := s.Store.Stat(ctx, key, cond)
	info.ETag = ""
	return info, err
}

func (s untagged) Get(ctx context.Context, key string, opts muxcore.GetOptions) (*muxcore.Object, error) {
	o, err := s.Store.Get(ctx, key, opts)
	if err == nil {
		o.ETag = ""
	}
	return o, err
}

// Without tags, another version of the same length was read under the length and the time of the first.
func TestWithoutTagsTheTimeTellsVersionsApart(t *testing.T) {
	first := time.Date(2024, 5, 6, 7, 8, 9, 0, time.UTC)
	for second, want := range map[time.Time]bool{first: true, first.Add(time.Second): false} {
		s, open := untagged{memory(t)}, 0
		write := func(body string, at time.Time) {
			if _, err := s.Put(t.Context(), "x", strings.NewReader(body), 1, muxcore.PutOptions{ModTime: at}); err != nil {
				t.Fatal(err)
			}
		}
		write("1", first)
		file, err := of(s, &open).Open("x")
		if err != nil {
			t.Fatal(err)
		}
		write("2", second)
		if got, err := io.ReadAll(file); (err == nil) != want {
			t.Errorf("what was put %v later is read as %q, %v", second.Sub(first), got, err)
		}
		_ = file.Close()
	}
}

func TestAnOutageIsNoAbsenceAndNoPathError(t *testing.T) {
	f, open := storetest.NewFaulty(memory(t)), 0
	f.Break(&muxcore.Error{Code: muxcore.CodeUnavailable})
	for _, name := range []string{".", "x", "dir/x"} {
		_, err := of(f, &open).Open(name)
		if _, path := errors.AsType[*fs.PathError](err); !errors.Is(err, errOut) || errors.Is(err, fs.ErrNotExist) || path {
			t.Errorf("Open(%q) = %v", name, err)
		}
	}
	if open != 0 {
		t.Errorf("%d open", open)
	}
}

func TestCloseEndsARead(t *testing.T) {
	f, open := storetest.NewFaulty(memory(t)), 0
	f.SetWaits(muxcore.WaitsWithContext)
	put(t, f, "x")
	f.From(muxcore.OpGet, 1, storetest.StallBody(3))
	file, err := of(f, &open).Open("x")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		_, err := io.ReadAll(file)
		done <- err
	}()
	if err := f.AwaitStalled(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	_ = file.Close()
	if err := <-done; err == nil {
		t.Error("the read ended well")
	}
}
