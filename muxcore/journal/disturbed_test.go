package journal

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// Whatever somebody does to the files of a journal at work, what is remembered next has all that was remembered before
// beside it, on disk, and the lock is held.
func TestWhatIsDisturbedIsWrittenAnew(t *testing.T) {
	for name, disturb := range map[string]func(dir string) error{
		"the directory is removed": os.RemoveAll,
		"the file is removed":      func(dir string) error { return os.Remove(filepath.Join(dir, "journal")) },
		"the lock is removed": func(dir string) error {
			return errors.Join(os.Remove(filepath.Join(dir, "lock")), os.Truncate(filepath.Join(dir, "journal"), 3))
		},
		"the file is emptied": func(dir string) error { return os.Truncate(filepath.Join(dir, "journal"), 0) },
		"the file is cut":     func(dir string) error { return os.Truncate(filepath.Join(dir, "journal"), 50) },
		"the file is replaced": func(dir string) error {
			path := filepath.Join(dir, "journal")
			data, err := os.ReadFile(path)
			return errors.Join(err, os.WriteFile(path+".copy", data, 0o600), os.Rename(path+".copy", path))
		},
		"something is added": func(dir string) error {
			f, err := os.OpenFile(filepath.Join(dir, "journal"), os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			_, err = f.WriteString("note to self\n")
			return errors.Join(err, f.Close())
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := newDir(t)
			j, s := open(t, dir, Settings{})
			must(t, s.Settle("before", 0, gone, []string{"a"}, []string{"b"}))
			must(t, disturb(dir))
			must(t, s.Settle("after", 0, object, []string{"a"}, []string{"b"}))
			if err := New(dir, Settings{}).Load(); !errors.Is(err, ErrLocked) {
				t.Errorf("Load by another = %v, want it locked", err)
			}
			_, s = reopened(t, j)
			if mark, _ := s.Lookup("before"); !mark.Deleted || s.Count("b") != 2 || s.Doubtful("b") {
				t.Errorf("after a restart: %d marks, %+v, in doubt %t", s.Count("b"), mark, s.Doubtful("b"))
			}
		})
	}
}

// A lock that was removed, and that another process has by now, is not ours to write under.
func TestALockThatIsLostIsRespected(t *testing.T) {
	dir := newDir(t)
	_, s := open(t, dir, Settings{})
	must(t, s.Settle("before", 0, gone, []string{"a"}, []string{"b"}))
	must(t, os.Remove(filepath.Join(dir, "lock")))
	_, other := open(t, dir, Settings{})
	must(t, other.Settle("by another", 0, object, []string{"a"}, []string{"b"}))
	if err := s.Settle("after", 0, object, []string{"a"}, []string{"b"}); !errors.Is(err, ErrLocked) {
		t.Errorf("Settle = %v, want it refused", err)
	}
	want(t, other, "by another", Mark{Known: true, ETag: object.ETag, Lacks: []string{"b"}})
	if other.Count("b") != 2 {
		t.Errorf("the other has %d marks, want 2", other.Count("b"))
	}
}
