package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open makes a journal that the test closes.
func open(tb testing.TB, dir string, set Settings) (*Journal, *Scope) {
	tb.Helper()
	j := New(dir, set)
	tb.Cleanup(func() { _ = j.Close() })
	return j, j.Scope("")
}

// reopened reads the journal of dir as the next process would.
func reopened(tb testing.TB, j *Journal) (*Journal, *Scope) {
	tb.Helper()
	if err := j.Close(); err != nil {
		tb.Fatal(err)
	}
	next, s := open(tb, j.dir, j.set)
	if err := next.Load(); err != nil {
		tb.Fatal(err)
	}
	return next, s
}

func newDir(tb testing.TB) string { return filepath.Join(tb.TempDir(), "a", "journal") }

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

var (
	object = Write{ETag: `"one"`}
	gone   = Write{Deleted: true}
)

// want compares the mark of a key, but for its numbers.
func want(tb testing.TB, s *Scope, key string, mark Mark) Mark {
	tb.Helper()
	got, _ := s.Lookup(key)
	ignore := cmp.Options{cmpopts.IgnoreFields(Mark{}, "Seq"), cmpopts.IgnoreFields(Intent{}, "Seq"), cmpopts.IgnoreUnexported(Intent{}), cmpopts.EquateEmpty()}
	if diff := cmp.Diff(mark, got, ignore); diff != "" {
		tb.Errorf("mark of %q (-want +got):\n%s", key, diff)
	}
	return got
}

func TestNothingIsMadeBeforeTheFirstMark(t *testing.T) {
	j, s := open(t, newDir(t), Settings{})
	must(t, j.Load())
	if seq, err := s.Begin("k", object, []string{"a"}, nil); seq != 0 || err != nil || s.Pending() {
		t.Errorf("Begin that nobody misses = %d, %v, pending %t", seq, err, s.Pending())
	}
	must(t, s.Settle("k", 0, object, []string{"a"}, nil))
	must(t, j.Close())
	if _, err := os.Stat(filepath.Dir(j.dir)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("directory: %v, want none", err)
	}
}

func TestMarksSurviveARestart(t *testing.T) {
	j, s := open(t, newDir(t), Settings{})
	must(t, s.Settle("put", 0, object, []string{"a"}, []string{"c", "b"}))
	must(t, s.Settle("delete \"ü\"", 0, gone, []string{"a"}, []string{"b"}))
	must(t, s.Settle("repaired", 0, object, []string{"a"}, []string{"b"}))
	mark, _ := s.Lookup("repaired")
	must(t, s.Repaired("repaired", mark.Seq, "b"))
	_, err := s.Begin("open", object, []string{"a"}, []string{"b"})
	must(t, err)
	must(t, j.Scope("eu").Settle("put", 0, gone, nil, []string{"x"}))
	for range 2 {
		j, s = reopened(t, j)
		want(t, s, "put", Mark{Known: true, ETag: `"one"`, Lacks: []string{"b", "c"}})
		want(t, s, "delete \"ü\"", Mark{Known: true, Deleted: true, Lacks: []string{"b"}})
		want(t, s, "repaired", Mark{})
		want(t, s, "open", Mark{Open: []Intent{{ETag: `"one"`, Asks: []string{"a"}, Skips: []string{"b"}}}})
		want(t, j.Scope("eu"), "put", Mark{Known: true, Deleted: true, Lacks: []string{"x"}})
		if s.Count("b") != 3 || s.Count("c") != 1 || s.Count("a") != 1 || j.Scope("eu").Count("x") != 1 {
			t.Errorf("counts: b %d, c %d, a %d", s.Count("b"), s.Count("c"), s.Count("a"))
		}
		if got := s.Owed([]string{"c", "a"}); !slices.Equal(got, []string{"open", "put"}) {
			t.Errorf("Owed = %v", got)
		}
		if got := s.Keys("", "open", 9); !slices.Equal(got, []string{"put"}) {
			t.Errorf("Keys = %v", got)
		}
	}
	info, err := os.Stat(filepath.Join(j.dir, "journal"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("file: %v, %v", info.Mode(), err)
	}
	if info, err := os.Stat(j.dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("directory: %v, %v", info.Mode(), err)
	}
}

func TestTheNewestStateWins(t *testing.T) {
	_, s := open(t, newDir(t), Settings{})
	must(t, s.Settle("k", 0, object, []string{"a"}, []string{"b", "c"}))
	old, _ := s.Lookup("k")
	seq, err := s.Begin("k", gone, []string{"a", "b"}, []string{"c"})
	must(t, err)
	want(t, s, "k", Mark{Known: true, ETag: `"one"`, Lacks: []string{"b", "c"}, Open: []Intent{{Deleted: true, Asks: []string{"a", "b"}, Skips: []string{"c"}}}})
	must(t, s.Repaired("k", old.Seq, "b"))
	must(t, s.Settle("k", seq, gone, []string{"a", "b"}, []string{"c"}))
	want(t, s, "k", Mark{Known: true, Deleted: true, Lacks: []string{"c"}})
	must(t, s.Settle("k", 0, object, []string{"a", "b", "c"}, []string{}))
	if _, marked := s.Lookup("k"); marked || s.Pending() {
		t.Error("a mark is left when all have the newest state")
	}
}

func TestWhatWasLeftOpenIsInDoubtAfterTheNextWrite(t *testing.T) {
	_, s := open(t, newDir(t), Settings{})
	seq, err := s.Begin("k", object, []string{"a", "b"}, []string{"c"})
	must(t, err)
	s.Leave("k", seq)
	if mark, _ := s.Lookup("k"); len(mark.Left()) != 1 || s.Count("a") != 1 {
		t.Errorf("left %v, a is owed %d", mark.Left(), s.Count("a"))
	}
	next, err := s.Begin("k", object, []string{"a"}, nil)
	must(t, err)
	must(t, s.Settle("k", next, object, []string{"a"}, nil))
	want(t, s, "k", Mark{Known: true, ETag: `"one"`, Lacks: []string{"b", "c"}, Late: []Late{{Backend: "b", ETag: `"one"`}}})
}

func TestAWriteThatFailedEverywhereIsLeftOpen(t *testing.T) {
	j, s := open(t, newDir(t), Settings{})
	must(t, s.LeaveOpen("k", gone, []string{"a", "b"}, nil))
	_, s = reopened(t, j)
	if mark, _ := s.Lookup("k"); len(mark.Left()) != 1 || mark.LackedBy("a") || s.Count("a") != 1 {
		t.Errorf("mark = %+v, a is owed %d", mark, s.Count("a"))
	}
}

func TestAWriteThatNobodyTookLeavesWhatWas(t *testing.T) {
	j, s := open(t, newDir(t), Settings{})
	must(t, s.Settle("k", 0, gone, []string{"a"}, []string{"b"}))
	for key, left := range map[string]Mark{"k": {Known: true, Deleted: true, Lacks: []string{"b"}}, "new": {}} {
		seq, err := s.Begin(key, object, []string{"a"}, []string{"b"})
		must(t, err)
		s.Withdraw(key, seq)
		want(t, s, key, left)
	}
	_, s = reopened(t, j)
	want(t, s, "k", Mark{Known: true, Deleted: true, Lacks: []string{"b"}})
	want(t, s, "new", Mark{})
}

func TestOnlyOneProcessRemembers(t *testing.T) {
	dir := newDir(t)
	owner, s := open(t, dir, Settings{})
	must(t, s.Settle("k", 0, object, []string{"a"}, []string{"b"}))
	other, seen := open(t, dir, Settings{})
	if err := other.Load(); !errors.Is(err, ErrLocked) {
		t.Errorf("Load of another's journal = %v", err)
	}
	want(t, seen, "k", Mark{Known: true, ETag: `"one"`, Lacks: []string{"b"}})
	if err := seen.Settle("x", 0, object, nil, []string{"b"}); !errors.Is(err, ErrLocked) {
		t.Errorf("Settle in another's journal = %v", err)
	}
	if _, err := seen.Begin("x", object, nil, []string{"b"}); !errors.Is(err, ErrLocked) {
		t.Errorf("Begin in another's journal = %v", err)
	}
	must(t, s.Settle("later", 0, object, []string{"a"}, []string{"b"}))
	if err := other.Load(); !errors.Is(err, ErrLocked) {
		t.Errorf("second Load = %v", err)
	}
	want(t, seen, "later", Mark{Known: true, ETag: `"one"`, Lacks: []string{"b"}})
	must(t, owner.Close())
	must(t, seen.Settle("x", 0, object, []string{"a"}, []string{"b"}))
	if seen.Count("b") != 3 {
		t.Errorf("%d marks after the lock was taken over, want 3", seen.Count("b"))
	}
}

// A line that was being written is dropped; what was there before is kept, and what comes after is read again.
func TestATornTailIsDropped(t *testing.T) {
	for cut := 1; cut < 60; cut += 7 {
		dir := newDir(t)
		j, s := open(t, dir, Settings{})
		must(t, s.Settle("k", 0, object, []string{"a"}, []string{"b"}))
		must(t, s.Settle("torn", 0, object, []string{"a"}, []string{"b"}))
		must(t, j.Close())
		path := filepath.Join(dir, "journal")
		data, err := os.ReadFile(path)
		must(t, err)
		must(t, os.WriteFile(path, data[:len(data)-cut], 0o600))
		j, s = open(t, dir, Settings{})
		must(t, j.Load())
		if _, torn := s.Lookup("torn"); torn || s.Count("b") != 1 || s.Doubtful("b") {
			t.Errorf("cut by %d: torn %t, %d marks, in doubt %t", cut, torn, s.Count("b"), s.Doubtful("b"))
		}
		must(t, s.Settle("after", 0, object, []string{"a"}, []string{"b"}))
		_, s = reopened(t, j)
		if s.Count("b") != 2 || s.Doubtful("b") {
			t.Errorf("cut by %d: %d marks after the next one, in doubt %t", cut, s.Count("b"), s.Doubtful("b"))
		}
	}
}

// Damage before good lines makes all backends doubtful, voids what stood before it, and is not forgotten by a restart.
func TestDamageIsNeverActedOn(t *testing.T) {
	for name, spoil := range map[string]func(lines []string) []string{
		"a flipped bit":    func(l []string) []string { l[2] = strings.Replace(l[2], `"d":true`, `"d":trve`, 1); return l },
		"a missing line":   func(l []string) []string { return slices.Delete(l, 2, 3) },
		"garbage":          func(l []string) []string { return slices.Insert(l, 2, "\x00\xff garbage") },
		"no first line":    func(l []string) []string { return l[1:] },
		"a line too long":  func(l []string) []string { return slices.Insert(l, 2, strings.Repeat("x", 3<<20)) },
		"a line out order": func(l []string) []string { l[1], l[2] = l[2], l[1]; return l },
	} {
		t.Run(name, func(t *testing.T) {
			dir := newDir(t)
			j, s := open(t, dir, Settings{})
			must(t, s.Settle("early", 0, gone, []string{"a"}, []string{"b"}))
			must(t, s.Settle("spoilt", 0, gone, []string{"a"}, []string{"b"}))
			must(t, s.Settle("late", 0, gone, []string{"a"}, []string{"b"}))
			must(t, j.Close())
			path := filepath.Join(dir, "journal")
			data, err := os.ReadFile(path)
			must(t, err)
			lines := spoil(strings.Split(strings.TrimSuffix(string(data), "\n"), "\n"))
			must(t, os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600))
			j, s = open(t, dir, Settings{})
			must(t, j.Load())
			for range 2 {
				for _, scope := range []*Scope{s, j.Scope("new")} {
					if !scope.Doubtful("a") || !scope.Doubtful("b") {
						t.Error("backends are not in doubt")
					}
				}
				if _, early := s.Lookup("early"); early && name != "no first line" {
					t.Error("what stood before the damage is relied on")
				}
				if mark, _ := s.Lookup("late"); !mark.Deleted {
					t.Errorf("what stands after the damage is lost: %+v", mark)
				}
				j, s = reopened(t, j)
			}
			if _, err := os.Stat(path + ".damaged"); err != nil {
				t.Errorf("the damaged file is not kept: %v", err)
			}
			s.Compare([]string{"a", "b"})
			must(t, s.Compared("a"))
			_, s = reopened(t, j)
			if s.Doubtful("a") || !s.Doubtful("b") {
				t.Errorf("after a comparison of a: in doubt a %t, b %t", s.Doubtful("a"), s.Doubtful("b"))
			}
		})
	}
}

func TestAnUnknownVersionIsLeftAlone(t *testing.T) {
	dir := newDir(t)
	must(t, os.MkdirAll(dir, 0o700))
	path := filepath.Join(dir, "journal")
	first := record{Number: 1, Version: version + 1}
	must(t, os.WriteFile(path, first.appendTo(nil), 0o600))
	j, s := open(t, dir, Settings{})
	if err := j.Load(); !errors.Is(err, errVersion) {
		t.Errorf("Load = %v", err)
	}
	if err := s.Settle("k", 0, object, nil, []string{"b"}); !errors.Is(err, errVersion) {
		t.Errorf("Settle = %v", err)
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != string(first.appendTo(nil)) {
		t.Errorf("the file is changed: %q, %v", data, err)
	}
}

// Beyond its bounds a backend is to be compared in full; what it is to delete is kept, and refused in the end.
func TestTheJournalIsBounded(t *testing.T) {
	j, s := open(t, newDir(t), Settings{MaxMarks: 10})
	for i := range 10 {
		must(t, s.Settle(fmt.Sprint("deleted", i), 0, gone, []string{"a"}, []string{"b"}))
	}
	if err := s.Settle("one more", 0, gone, []string{"a"}, []string{"b"}); !errors.Is(err, ErrFull) {
		t.Errorf("a delete too many = %v", err)
	}
	if _, err := s.Begin("one more", gone, []string{"a"}, []string{"b"}); !errors.Is(err, ErrFull) {
		t.Errorf("a delete too many, begun = %v", err)
	}
	for i := range 25 {
		must(t, s.Settle(fmt.Sprint("put", i), 0, object, []string{"a"}, []string{"b", "c"}))
		if i == 9 && (s.Doubtful("b") || s.Count("b") != 20) {
			t.Errorf("in doubt %t with %d marks, before it is full", s.Doubtful("b"), s.Count("b"))
		}
	}
	for range 2 {
		if !s.Doubtful("b") || !s.Doubtful("c") || s.Doubtful("a") || s.Count("b") != 10 || s.Count("c") != 0 {
			t.Errorf("in doubt: a %t, b %t, c %t; marks of b %d, c %d", s.Doubtful("a"), s.Doubtful("b"), s.Doubtful("c"), s.Count("b"), s.Count("c"))
		}
		j, s = reopened(t, j)
	}
	must(t, s.Settle("deleted0", 0, object, []string{"a"}, []string{"b"}))
	want(t, s, "deleted0", Mark{})
	s.Compare([]string{"a", "b", "c"})
	must(t, s.Settle("meanwhile", 0, object, []string{"a"}, []string{"b"}))
	must(t, s.Compared("b", "c"))
	_, s = reopened(t, j)
	if s.Doubtful("b") || s.Count("b") != 10 {
		t.Errorf("after a comparison: in doubt %t, %d marks, want the one missed meanwhile among 10", s.Doubtful("b"), s.Count("b"))
	}
	_, s = open(t, newDir(t), Settings{MaxBytes: 100})
	if err := s.Settle(strings.Repeat("k", 200), 0, gone, []string{"a"}, []string{"b"}); !errors.Is(err, ErrFull) {
		t.Errorf("a delete of too long a key = %v", err)
	}
	must(t, s.Settle(strings.Repeat("k", 200), 0, object, []string{"a"}, []string{"b"}))
	if !s.Doubtful("b") {
		t.Error("b is not in doubt after too many bytes")
	}
}

// The file does not grow with what is out of date in it, and nothing is lost when it is written anew.
func TestTheFileIsWrittenAnew(t *testing.T) {
	j, s := open(t, newDir(t), Settings{})
	j.file.sync = func(*os.File) error { return nil }
	must(t, s.Settle("kept", 0, gone, []string{"a"}, []string{"b"}))
	most := int64(0)
	for i := range 1800 {
		must(t, s.Settle("k", 0, Write{ETag: fmt.Sprint(i, strings.Repeat("e", 2000))}, []string{"a"}, []string{"b"}))
		most = max(most, j.file.size)
	}
	if most > 2*outgrowth {
		t.Errorf("the file grew to %d bytes", most)
	}
	_, s = reopened(t, j)
	if mark, _ := s.Lookup("k"); s.Count("b") != 2 || !strings.HasPrefix(mark.ETag, "1799e") {
		t.Errorf("%d marks, the last is %+v", s.Count("b"), mark)
	}
}

// What cannot be written fails; once it can be again, all that is in memory is.
func TestADiskThatFails(t *testing.T) {
	j, s := open(t, newDir(t), Settings{})
	must(t, s.Settle("k", 0, gone, []string{"a"}, []string{"b"}))
	broken := errors.New("no space left")
	j.file.sync = func(*os.File) error { return broken }
	if err := s.Settle("x", 0, object, []string{"a"}, []string{"b"}); !errors.Is(err, broken) {
		t.Errorf("Settle = %v", err)
	}
	if seq, err := s.Begin("y", object, []string{"a"}, []string{"b"}); !errors.Is(err, broken) || seq != 0 {
		t.Errorf("Begin = %d, %v", seq, err)
	}
	want(t, s, "y", Mark{})
	must(t, s.Settle("k", 0, object, []string{"a", "b"}, nil)) // all have it; the old mark is still on disk
	if mark, marked := s.Lookup("k"); !marked || mark.Deleted {
		t.Errorf("mark of k = %+v, %t, want one that has the next write remembered", mark, marked)
	}
	j.file.sync = nil
	must(t, s.Settle("z", 0, object, []string{"a"}, []string{"b"}))
	_, s = reopened(t, j)
	want(t, s, "k", Mark{})
	if got := s.Keys("", "", 9); !slices.Equal(got, []string{"x", "z"}) {
		t.Errorf("marks of %v, want x and z", got)
	}
}

// Many writers share syncs, and all of their marks are there.
func TestManyWriters(t *testing.T) {
	j, s := open(t, newDir(t), Settings{})
	syncs := 0
	j.file.sync = func(f *os.File) error { syncs++; return f.Sync() }
	var wg sync.WaitGroup
	for w := range 32 {
		wg.Go(func() {
			for i := range 10 {
				key := fmt.Sprint(w, "/", i)
				seq, err := s.Begin(key, object, []string{"a"}, []string{"b"})
				if err != nil || s.Settle(key, seq, object, []string{"a"}, []string{"b", "c"}) != nil {
					t.Error(key, err)
				}
			}
		})
	}
	wg.Wait()
	if syncs > 600 {
		t.Errorf("%d syncs for 640 changes", syncs)
	}
	_, s = reopened(t, j)
	if s.Count("b") != 320 || s.Count("c") != 320 {
		t.Errorf("%d and %d marks, want 320", s.Count("b"), s.Count("c"))
	}
}

func TestWhoWatchesIsTold(t *testing.T) {
	_, s := open(t, newDir(t), Settings{})
	more, stop := s.Watch()
	must(t, s.Settle("k", 0, object, []string{"a"}, []string{"b"}))
	select {
	case <-more:
	default:
		t.Error("nothing was told")
	}
	stop()
	must(t, s.Settle("l", 0, object, []string{"a"}, []string{"b"}))
	select {
	case <-more:
		t.Error("told after the end")
	default:
	}
}

func TestAClosedJournalRemembersNothing(t *testing.T) {
	j, s := open(t, newDir(t), Settings{})
	must(t, j.Close())
	if err := s.Settle("k", 0, object, nil, []string{"b"}); !errors.Is(err, errClosed) {
		t.Errorf("Settle = %v", err)
	}
}

// Whatever a file holds, it is read without a panic, and written again it says the same.
func FuzzParse(f *testing.F) {
	f.Add([]byte(""))
	f.Add([]byte("00000000 {}\n"))
	lines := []record{
		{Number: 1, Version: 1, Last: 7},
		{Number: 2, Key: "k", Mark: &Mark{Seq: 8, Known: true, Deleted: true, Lacks: []string{"b"}}},
		{Number: 3, Scope: "eu", Key: "k", Mark: &Mark{Seq: 9, Open: []Intent{{Seq: 9, ETag: `"e"`, Asks: []string{"a"}, Skips: []string{"b"}}}}},
		{Number: 4, Scope: "eu", Doubtful: []string{"a"}},
		{Number: 5, Key: "k"},
	}
	var all []byte
	for i := range lines {
		all = lines[i].appendTo(all)
		f.Add(all)
		f.Add(all[:len(all)-3])
	}
	f.Add(append([]byte("garbage\n"), all...))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := parse(strings.NewReader(string(data)))
		if err != nil {
			return
		}
		j := New(t.TempDir(), Settings{})
		j.adopt(c)
		records, _ := j.snapshot()
		var out []byte
		for i := range records {
			records[i].Number = uint64(i) + 1
			out = records[i].appendTo(out)
		}
		again, err := parse(strings.NewReader(string(out)))
		if err != nil || again.damaged || again.torn || again.seq < c.seq {
			t.Fatalf("what was written is read as %+v, %v", again, err)
		}
		for name, s := range j.scopes {
			for key, m := range s.marks {
				if m.empty() {
					continue
				}
				got, ok := again.scope(name).marks[key]
				if diff := cmp.Diff(m, got, cmpopts.IgnoreUnexported(Intent{}), cmpopts.EquateEmpty()); !ok || diff != "" {
					t.Errorf("mark of %q:\n%s", key, diff)
				}
			}
		}
	})
}
