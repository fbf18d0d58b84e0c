package journal

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// written makes a journal of what a script says, and gives its file with the marks that its lines make, one after the other.
func written(tb testing.TB, dir string, script []byte) (file []byte, states []map[string]Mark) {
	tb.Helper()
	j, s := open(tb, dir, Settings{})
	var open []uint64
	keys := []string{"a", "b/c", "d"}
	backends := []string{"x", "y", "z"}
	for n, step := range script {
		key, one, other := keys[n%3], backends[step%3], backends[(step+1)%3]
		w := Write{ETag: fmt.Sprintf(`"%d"`, n), Deleted: step&8 != 0}
		if w.Deleted {
			w.ETag = ""
		}
		mark, _ := s.Lookup(key)
		switch step >> 4 & 3 {
		case 0:
			must(tb, s.Settle(key, 0, w, []string{one}, []string{other}))
		case 1:
			seq, err := s.Begin(key, w, []string{one}, []string{other})
			must(tb, err)
			open = append(open, seq)
		case 2:
			must(tb, s.Repaired(key, mark.Seq, one))
		default:
			if len(open) > 0 {
				s.Leave(key, open[0])
				open = open[1:]
			}
		}
	}
	if !s.Pending() {
		must(tb, s.Settle("a", 0, object, []string{"x"}, []string{"y"}))
	}
	must(tb, j.Close())
	file, err := os.ReadFile(filepath.Join(dir, "journal"))
	must(tb, err)
	states = append(states, map[string]Mark{})
	for line := range bytes.Lines(file) {
		r, err := parseLine(bytes.TrimSuffix(line, []byte("\n")))
		must(tb, err)
		now := maps.Clone(states[len(states)-1])
		if r.Key != "" && r.Mark == nil {
			delete(now, r.Key)
		} else if r.Key != "" {
			now[r.Key] = *r.Mark
		}
		states = append(states, now)
	}
	return file, states
}

// tampered is what disks and crashes make of a file: pairs of a way and a place.
func tampered(file, how []byte) []byte {
	file = slices.Clone(file)
	for ; len(how) >= 3 && len(file) > 0; how = how[3:] {
		at := (int(how[1])<<8 | int(how[2])) % len(file)
		switch how[0] % 5 {
		case 0: // cut
			file = file[:at]
		case 1: // a bit that flips
			file[at] ^= 1 << (how[0] / 5 % 8)
		case 2: // a block that was never written
			clear(file[at:min(len(file), at+int(how[0]))])
		case 3: // a line that is lost
			from := bytes.LastIndexByte(file[:at], '\n') + 1
			if to := bytes.IndexByte(file[at:], '\n'); to >= 0 {
				file = slices.Delete(file, from, at+to+1)
			}
		default: // something foreign at the end
			file = append(file, how...)
		}
	}
	return file
}

// Whatever becomes of the file, it is read; no mark is believed that is not one of a moment, the same for all; and where some
// are missing without the end being cut off, every backend is in doubt.
func FuzzATamperedFile(f *testing.F) {
	steps := []byte{0x00, 0x11, 0x18, 0x21, 0x09, 0x30, 0x12, 0x02, 0x22, 0x1a, 0x30, 0x00}
	for _, how := range [][]byte{{}, {0, 0, 9}, {0, 1, 9}, {1, 0, 40}, {6, 0, 200}, {2, 0, 70}, {42, 0, 255}, {3, 0, 100}, {3, 0, 0}, {4, 1, 1}, {1, 0, 1}, {1, 0, 2, 11, 1, 2}, {3, 0, 100, 0, 1, 0}} {
		f.Add(steps, how)
		f.Add(steps[:3], how)
	}
	f.Fuzz(func(t *testing.T, script, how []byte) {
		dir := filepath.Join(t.TempDir(), "j")
		file, states := written(t, dir, script[:min(len(script), 40)])
		after := tampered(file, how[:min(len(how), 12)])
		must(t, os.WriteFile(filepath.Join(dir, "journal"), after, 0o600))
		j, s := open(t, dir, Settings{})
		if err := j.Load(); err != nil && !errors.Is(err, errVersion) {
			t.Fatalf("Load = %v", err)
		}
		got := map[string]Mark{}
		for _, key := range s.Keys("", "", 100) {
			got[key], _ = s.Lookup(key)
		}
		// Empty marks are kept in memory only until the file has lost them.
		maps.DeleteFunc(got, func(_ string, m Mark) bool { return m.empty() })
		if !slices.ContainsFunc(states, func(all map[string]Mark) bool { return agree(got, all, s.Doubtful("x")) }) {
			t.Fatalf("in doubt: %t, marks %+v are those of no moment\n%s", s.Doubtful("x"), got, after)
		}
		if !s.Doubtful("x") && !bytes.HasPrefix(file, after[:max(0, bytes.LastIndexByte(after, '\n')+1)]) {
			t.Fatalf("nobody is in doubt, and the file was\n%s\nand is\n%s", file, after)
		}
		// What is remembered from now on is there the next time.
		must(t, s.Settle("new", 0, gone, []string{"x"}, []string{"y"}))
		_, s = reopened(t, j)
		want(t, s, "new", Mark{Known: true, Deleted: true, Lacks: []string{"y"}})
	})
}

// agree tells whether got is all, or a part of it.
func agree(got, all map[string]Mark, part bool) bool {
	equal := cmp.Options{cmpopts.IgnoreUnexported(Intent{}), cmpopts.EquateEmpty()}
	n := 0
	for key, m := range all {
		if m.empty() {
			continue
		}
		n++
		if g, ok := got[key]; (!ok && !part) || ok && !cmp.Equal(g, m, equal) {
			return false
		}
	}
	for key := range got {
		if m, ok := all[key]; !ok || m.empty() {
			return false
		}
	}
	return part || n == len(got)
}
