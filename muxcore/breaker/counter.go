package breaker

import (
	"sync/atomic"
	"unsafe"
)

// counterCells is a power of two: with 16, two goroutines rarely share a cell.
const (
	counterBits  = 4
	counterCells = 1 << counterBits
)

// counter is a sum kept in several cache lines, so that goroutines on different
// cores rarely write to the same one. Refusals are counted on the fast path of
// an open breaker, where a single shared word would cost more than the rest.
type counter struct {
	_     [128]byte // keeps the owner's fields, which are only read, out of the way
	cells [counterCells]struct {
		n atomic.Uint64
		_ [120]byte // two lines: processors fetch them in pairs
	}
}

func (c *counter) add() {
	// The address of a local stands for the goroutine: it costs nothing to get,
	// and any value is correct. Stacks begin at multiples of 2 KiB, and the
	// multiplication sends neighbours far apart.
	var here byte
	mixed := uint64(uintptr(unsafe.Pointer(&here))>>11) * 0x9E3779B97F4A7C15
	c.cells[mixed>>(64-counterBits)].n.Add(1)
}

func (c *counter) sum() uint64 {
	var total uint64
	for i := range c.cells {
		total += c.cells[i].n.Load()
	}
	return total
}
