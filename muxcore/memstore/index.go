package memstore

import "slices"

// blockSize is the most keys in a block: an insert moves at most so many, and the list of blocks stays short.
const blockSize = 256

// index is a set of keys in order: blocks of sorted keys, none empty, one after the other. Insert and remove cost a
// binary search and a short move, so that a list never has to sort.
type index struct {
	blocks [][]string
}

// seek finds the first key that is not smaller than key.
func (x *index) seek(key string) (block, at int) {
	block, found := slices.BinarySearchFunc(x.blocks, key, func(b []string, key string) int {
		switch {
		case b[len(b)-1] < key:
			return -1
		case b[0] > key:
			return 1
		}
		return 0
	})
	if !found {
		return block, 0
	}
	at, _ = slices.BinarySearch(x.blocks[block], key)
	return block, at
}

// insert adds a key that is not there.
func (x *index) insert(key string) {
	if len(x.blocks) == 0 {
		x.blocks = append(x.blocks, []string{key})
		return
	}
	block, at := x.seek(key)
	if block == len(x.blocks) {
		block--
		at = len(x.blocks[block])
	}
	b := slices.Insert(x.blocks[block], at, key)
	x.blocks[block] = b
	if len(b) > blockSize {
		half := len(b) / 2
		x.blocks[block] = slices.Clone(b[:half])
		x.blocks = slices.Insert(x.blocks, block+1, slices.Clone(b[half:]))
	}
}

// remove takes away a key that is there.
func (x *index) remove(key string) {
	block, at := x.seek(key)
	b := slices.Delete(x.blocks[block], at, at+1)
	x.blocks[block] = b
	if len(b) == 0 {
		x.blocks = slices.Delete(x.blocks, block, block+1)
	}
}

// at gives the key at a place that seek or at gave, and the place after it; false past the last.
func (x *index) at(block, at int) (key string, nextBlock, nextAt int, ok bool) {
	if block >= len(x.blocks) {
		return "", block, at, false
	}
	key = x.blocks[block][at]
	if at++; at == len(x.blocks[block]) {
		return key, block + 1, 0, true
	}
	return key, block, at, true
}
