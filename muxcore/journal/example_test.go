package journal_test

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/suaveplan/caddy-storage-mux/muxcore/journal"
)

func ExampleNew() {
	dir, err := os.MkdirTemp("", "journal")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	j := journal.New(filepath.Join(dir, "tree"), journal.Settings{})
	s := j.Scope("")
	if err := s.Settle("report.pdf", 0, journal.Write{ETag: `"v2"`}, []string{"a"}, []string{"b"}); err != nil {
		fmt.Println(err)
	}
	mark, _ := s.Lookup("report.pdf")
	fmt.Println(mark.ETag, "is newest, and not on", mark.Lacks)
	fmt.Println(s.Repaired("report.pdf", mark.Seq, "b"), s.Pending())
	fmt.Println(j.Close())
	// Output:
	// "v2" is newest, and not on [b]
	// <nil> false
	// <nil>
}
