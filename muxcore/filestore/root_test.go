package filestore

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

func TestSettingsAreChecked(t *testing.T) {
	for name, s := range map[string]Settings{
		"Root: must not be empty":        {},
		"Mode: must be permissions only": {Root: "x", Mode: fs.ModeSetuid | 0o644},
		"Mode: the owner must be able":   {Root: "x", Mode: 0o444},
	} {
		if _, err := New(s); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("New(%+v) = %v, want %q", s, err, name)
		}
	}
}

// everyCall makes each call once, and gives what they say.
func everyCall(ctx context.Context, s muxcore.Store) map[string]error {
	errs := map[string]error{}
	_, errs["Get"] = s.Get(ctx, "k", muxcore.GetOptions{})
	_, errs["Stat"] = s.Stat(ctx, "k", muxcore.Conditions{})
	_, errs["Put"] = s.Put(ctx, "k", strings.NewReader("x"), 1, muxcore.PutOptions{})
	_, errs["Delete"] = s.Delete(ctx, "k", muxcore.DeleteOptions{})
	for _, err := range s.List(ctx, muxcore.ListOptions{}) {
		errs["List"] = err
	}
	errs["Probe"] = muxcore.Probe(ctx, s, "")
	return errs
}

func TestAMissingRootIsAnOutageAndNeverAnAbsence(t *testing.T) {
	root := filepath.Join(t.TempDir(), "missing", "root")
	for name, create := range map[string]bool{"as it is": false, "with create_root, above a missing directory": true} {
		s := newStore(t, Settings{Root: root, CreateRoot: create})
		for call, err := range everyCall(t.Context(), s) {
			wantCode(t, name+": "+call, err, muxcore.CodeUnavailable)
			if errors.Is(err, fs.ErrNotExist) || muxcore.Classify(t.Context(), err) != muxcore.ClassTransient {
				t.Errorf("%s: %s = %v, which passes for an absence", name, call, err)
			}
		}
	}
	if _, err := os.Stat(filepath.Dir(root)); err == nil {
		t.Error("a directory was made above the root")
	}
}

func TestARootThatIsAFileIsAnOutage(t *testing.T) {
	s := newStore(t, Settings{Root: write(t, t.TempDir(), "file", "x")})
	for call, err := range everyCall(t.Context(), s) {
		wantCode(t, call, err, muxcore.CodeUnavailable)
	}
}

func TestTheRootIsMadeAtItsFirstUse(t *testing.T) {
	root := filepath.Join(t.TempDir(), "root")
	s := newStore(t, Settings{Root: root, CreateRoot: true})
	if _, err := os.Stat(root); err == nil {
		t.Error("New made the root")
	}
	_, err := s.Stat(t.Context(), "k", muxcore.Conditions{})
	wantCode(t, "Stat", err, muxcore.CodeKeyNotFound)
	put(t, s, "k", "v", muxcore.PutOptions{})
	wantBody(t, s, "k", "v")
}

func TestARootThatVanishesIsAnOutageAtOnce(t *testing.T) {
	root := filepath.Join(t.TempDir(), "root")
	s := newStore(t, Settings{Root: root, CreateRoot: true})
	put(t, s, "k", "v", muxcore.PutOptions{})
	if err := os.RemoveAll(root); err != nil {
		t.Fatal(err)
	}
	for call, err := range everyCall(t.Context(), s) {
		wantCode(t, call, err, muxcore.CodeUnavailable)
	}
}

func TestAnotherDirectoryBehindTheRootIsNoticed(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "one/k", "old")
	write(t, dir, "two/k", "new")
	write(t, dir, "two/only", "new only")
	root := filepath.Join(dir, "current")
	if err := os.Symlink("one", root); err != nil {
		t.Skip(err)
	}
	now := time.Now()
	s := newStore(t, Settings{Root: root, Now: func() time.Time { return now }})
	wantBody(t, s, "k", "old")

	turn(t, root, "two")
	wantBody(t, s, "only", "new only") // an absence is not believed without a look
	wantBody(t, s, "k", "new")
	turn(t, root, "one")
	put(t, s, "written", "x", muxcore.PutOptions{})
	wantBody(t, newStore(t, Settings{Root: filepath.Join(dir, "one")}), "written", "x")
	turn(t, root, "two")
	now = now.Add(recheckEvery)
	wantBody(t, s, "k", "new")
}

// turn makes a symbolic link lead elsewhere, in one step.
func turn(tb testing.TB, link, target string) {
	tb.Helper()
	if err := os.Symlink(target, link+".new"); err != nil {
		tb.Fatal(err)
	}
	if err := os.Rename(link+".new", link); err != nil {
		tb.Fatal(err)
	}
}

func TestAnUploadDoesNotCommitToAnOldRoot(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "one/k", "old")
	write(t, dir, "two/k", "new")
	root := filepath.Join(dir, "current")
	if err := os.Symlink("one", root); err != nil {
		t.Skip(err)
	}
	s := newStore(t, Settings{Root: root})
	body := readerFunc(func([]byte) (int, error) {
		if to, _ := os.Readlink(root); to == "one" {
			turn(t, root, "two")
		}
		return 0, io.EOF
	})
	_, err := s.Put(t.Context(), "k", body, -1, muxcore.PutOptions{})
	wantCode(t, "Put", err, muxcore.CodeUnavailable)
	wantBody(t, s, "k", "new")
	if got := left(t, dir); len(got) > 0 {
		t.Errorf("left behind: %q", got)
	}
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestCloseIsFinalAndMayBeRepeated(t *testing.T) {
	s := newStore(t, Settings{})
	put(t, s, "k", "v", muxcore.PutOptions{})
	o, err := s.Get(t.Context(), "k", muxcore.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer o.Body.Close()
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Errorf("Close = %v", err)
	}
	if data, err := io.ReadAll(o.Body); string(data) != "v" || err != nil {
		t.Errorf("a body after Close yields %q, %v", data, err)
	}
	_, err = s.Stat(t.Context(), "k", muxcore.Conditions{})
	wantCode(t, "Stat after Close", err, muxcore.CodeUnavailable)
}
