package journal

import (
	"fmt"
	"os"
	"testing"
)

// A backend that is away lacks many keys; each further miss has the others looked at.
func BenchmarkOwedByOthers(b *testing.B) {
	j, s := open(b, newDir(b), Settings{})
	j.file.sync = func(*os.File) error { return nil }
	for i := range 50_000 {
		must(b, s.Settle(fmt.Sprint("key", i), 0, object, []string{"a"}, []string{"away"}))
	}
	for b.Loop() {
		if keys := s.Owed([]string{"a"}); len(keys) > 0 {
			b.Fatal(keys)
		}
	}
}
