package locks_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/filestore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/locks"
	"github.com/suaveplan/caddy-storage-mux/muxcore/storetest"
)

// childDir is the variable that makes the test's binary a process that takes locks in a folder.
const (
	childDir  = "LOCKS_CHILD_DIR"
	childHang = "LOCKS_CHILD_HANG"
)

// rounds are how often each process counts.
var rounds = storetest.Times(4, 10)

// child counts in a file, under a lock; or takes the lock, says so, and waits to be killed.
func child(dir string) int {
	err := func() error {
		s, err := filestore.New(filestore.Settings{Root: filepath.Join(dir, "locks")})
		if err != nil {
			return err
		}
		l, err := locks.New(s, locks.Settings{Poll: 20 * time.Millisecond})
		if err != nil {
			return err
		}
		if os.Getenv(childHang) != "" {
			if err := l.Lock(context.Background(), "counter"); err != nil {
				return err
			}
			fmt.Println("held")
			_, _ = os.Stdin.Read(make([]byte, 1))
			return nil
		}
		for range rounds {
			if err := count(l, filepath.Join(dir, "counter")); err != nil {
				return err
			}
		}
		return nil
	}()
	if err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// count reads a number and writes the next one, which two at a time would spoil.
func count(l *locks.Locker, file string) error {
	if err := l.Lock(context.Background(), "counter"); err != nil {
		return err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(string(text))
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, []byte(strconv.Itoa(n+1)), 0o600); err != nil {
		return err
	}
	return l.Unlock(context.Background(), "counter")
}

func start(t *testing.T, dir string, env ...string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	bin, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), bin)
	cmd.Env = append(append(os.Environ(), childDir+"="+dir), env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	return cmd, &out
}

func TestProcessesThatShareAFolderTakeTurns(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "locks"), 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "counter")
	if err := os.WriteFile(file, []byte("0"), 0o600); err != nil {
		t.Fatal(err)
	}
	const processes = 3
	var all []func() error
	for range processes {
		cmd, out := start(t, dir)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		all = append(all, func() error {
			if err := cmd.Wait(); err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		})
	}
	for _, wait := range all {
		if err := wait(); err != nil {
			t.Error(err)
		}
	}
	if text, err := os.ReadFile(file); string(text) != strconv.Itoa(processes*rounds) {
		t.Errorf("counted %s, %v, want %d", text, err, processes*rounds)
	}
}

func TestAKilledProcessLeavesALockThatRunsOut(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "locks"), 0o700); err != nil {
		t.Fatal(err)
	}
	cmd, _ := start(t, dir, childHang+"=1")
	cmd.Stdout = nil
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	said, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	word := make([]byte, 4)
	if _, err := said.Read(word); err != nil || string(word) != "held" {
		t.Fatalf("the process said %q, %v", word, err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	s, err := filestore.New(filestore.Settings{Root: filepath.Join(dir, "locks")})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var told teller
	// Its time to live passes by a clock of our own.
	clock := time.Now()
	l := newLocker(t, s, locks.Settings{Observe: told.observe, Now: func() time.Time { return clock }})
	tryLock(t, l, "counter", false)
	clock = clock.Add(ttl)
	tryLock(t, l, "counter", true)
	if told.kinds() != "taken-over" || !strings.Contains(told.all[0].Owner, strconv.Itoa(cmd.Process.Pid)) {
		t.Errorf("told %+v", told.all)
	}
	unlock(t, l, "counter")
	if fi, err := os.Stat(filepath.Join(dir, "locks", muxcore.ReservedPrefix)); err == nil && fi.Mode().Perm() != 0o700 {
		t.Errorf("the folder has mode %v", fi.Mode())
	}
}
