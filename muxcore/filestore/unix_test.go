//go:build linux || darwin

package filestore

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

func TestFIFOsAndSocketsAreNoObjectsAndDoNotHang(t *testing.T) {
	root := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(root, "fifo"), 0o644); err != nil {
		t.Skip(err)
	}
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	t.Chdir(root) // socket paths are short
	if err := syscall.Bind(fd, &syscall.SockaddrUnix{Name: "socket"}); err != nil {
		t.Fatal(err)
	}
	s := newStore(t, Settings{Root: root})
	for _, key := range []string{"fifo", "socket"} {
		_, err := get(t, s, key)
		wantCode(t, "Get("+key+")", err, muxcore.CodeKeyNotFound)
		_, err = s.Put(t.Context(), key, strings.NewReader("x"), 1, muxcore.PutOptions{})
		wantCode(t, "Put("+key+")", err, muxcore.CodeKeyConflict)
		_, err = s.Delete(t.Context(), key, muxcore.DeleteOptions{})
		wantCode(t, "Delete("+key+")", err, muxcore.CodeKeyNotFound)
	}
	if got := keys(t, s, muxcore.ListOptions{}); got != "" {
		t.Errorf("List = %q", got)
	}
	if got := keys(t, s, muxcore.ListOptions{Delimiter: "/"}); got != "" {
		t.Errorf("List = %q", got)
	}
}

func TestModesDoNotDependOnTheUmask(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o077))
	for _, row := range []struct{ mode, file, dir os.FileMode }{{0, 0o644, 0o755}, {0o640, 0o640, 0o750}, {0o666, 0o666, 0o777}} {
		root := filepath.Join(t.TempDir(), "root")
		s := newStore(t, Settings{Root: root, CreateRoot: true, Mode: row.mode})
		s.quirks.noAttributes = true
		put(t, s, "a/b/c", "x", muxcore.PutOptions{})
		put(t, s, muxcore.InternalPrefix+"certs/key", "secret", muxcore.PutOptions{})
		for name, want := range map[string]os.FileMode{
			"": row.dir, "a": row.dir, "a/b": row.dir, "a/b/c": row.file,
			".storage_mux": 0o700, ".storage_mux/storage": 0o700, ".storage_mux/storage/certs": 0o700, ".storage_mux/storage/certs/key": 0o600,
		} {
			fi, err := os.Stat(filepath.Join(root, filepath.FromSlash(name)))
			if err != nil || fi.Mode().Perm() != want {
				t.Errorf("mode %#o: %q has %v, %v, want %v", row.mode, name, fi.Mode(), err, want)
			}
		}
		for _, name := range left(t, filepath.Join(root, ".storage_mux")) {
			if fi, err := os.Stat(filepath.Join(root, ".storage_mux", name)); err != nil || fi.Mode().Perm() != 0o600 {
				t.Errorf("%q has %v, %v, want 0600", name, fi.Mode(), err)
			}
		}
	}
}

const killedRoot = "FILESTORE_TEST_ROOT"

// The child process of the test below: it uploads until it is killed.
func TestMainOfAKilledWriter(t *testing.T) {
	root := os.Getenv(killedRoot)
	if root == "" {
		t.Skip("run by another test")
	}
	s := newStore(t, Settings{Root: root})
	body := io.MultiReader(strings.NewReader("partial"), readerFunc(func([]byte) (int, error) {
		os.Stdout.WriteString("\nwriting\n")
		select {}
	}))
	_, _ = s.Put(t.Context(), "dir/k", body, -1, muxcore.PutOptions{})
}

func TestTheTempFileOfAKilledWriterIsHiddenAndRemoved(t *testing.T) {
	root := t.TempDir()
	child := exec.Command(os.Args[0], "-test.run=^TestMainOfAKilledWriter$", "-test.v")
	child.Env = append(os.Environ(), killedRoot+"="+root)
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); lines.Scan() && lines.Text() != "writing"; {
	}
	temps := left(t, root)
	if len(temps) != 1 {
		t.Fatalf("temp files of a living writer: %q, want one", temps)
	}
	// A living writer's file stays, and shows nowhere.
	s := newStore(t, Settings{Root: root})
	put(t, s, "dir/other", "x", muxcore.PutOptions{})
	s.sweeps.Wait()
	if got := left(t, root); !slices.Equal(got, temps) {
		t.Errorf("after a sweep beside a living writer: %q, want %q", got, temps)
	}
	if got := keys(t, s, muxcore.ListOptions{}); got != "dir/other" {
		t.Errorf("List = %q", got)
	}
	_, err = get(t, s, temps[0])
	wantCode(t, "Get of a temp file", err, muxcore.CodeInvalidKey)

	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait()
	next := newStore(t, Settings{Root: root})
	if _, err := next.Delete(t.Context(), "dir/other", muxcore.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	next.sweeps.Wait()
	if got := left(t, root); len(got) != 0 {
		t.Errorf("after the sweep of the next process: %q", got)
	}
}

func TestSideFilesOfNobodyAreRemovedWhenTheyAreOld(t *testing.T) {
	root := t.TempDir()
	old := time.Now().Add(-2 * staleAfter)
	s := newStore(t, Settings{Root: root})
	s.quirks.noAttributes = true
	put(t, s, "dir/k", "x", muxcore.PutOptions{ETag: `"kept"`})
	s.sweeps.Wait()
	kept := left(t, root)
	orphan := write(t, root, "dir/"+sidePrefix+nameHash("gone")+"-abc", "x")
	of := write(t, root, "dir/"+sidePrefix+nameHash("k")+"-zzz", "x") // of an earlier version
	young := write(t, root, "dir/"+sidePrefix+nameHash("soon")+"-abc", "x")
	for _, path := range []string{orphan, of, filepath.Join(root, filepath.FromSlash(kept[0]))} {
		if err := os.Chtimes(path, old, old); err != nil {
			t.Fatal(err)
		}
	}
	next := newStore(t, Settings{Root: root})
	next.quirks.noAttributes = true
	put(t, next, "other", "x", muxcore.PutOptions{})
	next.sweeps.Wait()
	for path, stays := range map[string]bool{orphan: false, of: false, young: true} {
		if _, err := os.Stat(path); (err == nil) != stays {
			t.Errorf("%s: %v, want that it stays: %t", filepath.Base(path), err, stays)
		}
	}
	if info := stat(t, next, "dir/k"); info.ETag != `"kept"` {
		t.Errorf("Stat after a sweep = %+v", info)
	}
}

func TestADeniedFileIsDeniedAndNotAbsent(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("nothing is denied to root")
	}
	root := t.TempDir()
	for _, name := range []string{"closed/k", "lost+found/k", "open/k"} {
		write(t, root, name, "x")
	}
	for _, dir := range []string{"closed", "lost+found"} {
		if err := os.Chmod(filepath.Join(root, dir), 0); err != nil {
			t.Fatal(err)
		}
		defer os.Chmod(filepath.Join(root, dir), 0o700)
	}
	s := newStore(t, Settings{Root: root})
	_, err := get(t, s, "closed/k")
	wantCode(t, "Get", err, muxcore.CodeDenied)
	_, err = s.Put(t.Context(), "closed/new", strings.NewReader("x"), 1, muxcore.PutOptions{})
	wantCode(t, "Put", err, muxcore.CodeDenied)
	var lerr error
	for _, err := range s.List(t.Context(), muxcore.ListOptions{}) {
		lerr = err
	}
	wantCode(t, "List", lerr, muxcore.CodeDenied)
	if got := keys(t, s, muxcore.ListOptions{After: "closed0"}); got != "open/k" {
		t.Errorf("List past the closed folder = %q, want open/k: lost+found is not ours", got)
	}
}
