package memstore

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// Whatever comes and goes, the index holds the keys of a set in order.
func TestTheIndexIsASortedSet(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	var x index
	set := map[string]bool{}
	for step := range 30_000 {
		key := fmt.Sprintf("k%d", rnd.IntN(3000))
		if grow := step < 12_000 || step > 24_000; !set[key] && (grow || rnd.IntN(4) == 0) {
			x.insert(key)
			set[key] = true
		} else if set[key] && (!grow || rnd.IntN(4) == 0) {
			x.remove(key)
			delete(set, key)
		}
		if step%1500 == 0 {
			checkIndex(t, &x, set)
		}
	}
	for key := range set {
		x.remove(key)
	}
	checkIndex(t, &x, nil)
}

func checkIndex(t *testing.T, x *index, set map[string]bool) {
	t.Helper()
	want := make([]string, 0, len(set))
	for key := range set {
		want = append(want, key)
	}
	slices.Sort(want)
	for _, from := range []string{"", "k1", "k1500", "k2999", "zz"} {
		var got []string
		for block, at := x.seek(from); ; {
			key, nextBlock, nextAt, ok := x.at(block, at)
			if !ok {
				break
			}
			got = append(got, key)
			block, at = nextBlock, nextAt
		}
		start, _ := slices.BinarySearch(want, from)
		if !slices.Equal(got, want[start:]) {
			t.Fatalf("from %q: %d keys, want %d", from, len(got), len(want)-start)
		}
	}
	for _, b := range x.blocks {
		if len(b) == 0 || len(b) > blockSize {
			t.Fatalf("a block has %d keys", len(b))
		}
	}
}
