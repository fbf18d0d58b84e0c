package muxcore

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
)

const (
	blockSize = 128 << 10

	// shareOfMemory of the spool is the most that one body may take (1/n): what hangs must not send the others to disk.
	shareOfMemory = 4

	spoolPrefix = "body-"
)

// SpoolSettings say how much of bodies on their way a spool may hold. The zero value works.
type SpoolSettings struct {
	// Memory for all bodies together, in bytes. Negative: none. Default: 32 MiB.
	Memory int64

	// Disk for all bodies together, in bytes. Negative: none. Default: 4 GiB.
	Disk int64

	// Dir is the folder for what does not fit into memory. It is made when it is first needed, for the owner alone, and
	// belongs to the spool: what is found in it then was left by a process that died. Default: nothing goes to disk.
	Dir string
}

// Spool holds what some backends of a write have yet to read while others, or the uploader, are ahead; and what may have
// to be sent again. Memory is used first, then disk, each within one budget for all writes. When both are spent, writes
// go on at the pace of their slowest backend, and a body that was sent to a backend that failed is not sent to another.
// It holds nothing while no write is under way. It is safe for concurrent use, and meant to be one for a whole process.
type Spool struct {
	dir    string
	memory budget
	disk   budget
	blocks sync.Pool // of *[]byte

	once  sync.Once // makes the folder
	fault error     // why it could not be made
}

// budget is a number of bytes of which many take.
type budget struct {
	max  int64
	used atomic.Int64
}

func (b *budget) take(n int64) bool {
	if b.used.Add(n) <= b.max {
		return true
	}
	b.used.Add(-n)
	return false
}

func (b *budget) giveBack(n int64) { b.used.Add(-n) }

// NewSpool makes a spool. It touches no disk.
func NewSpool(set SpoolSettings) *Spool {
	orDefault(&set.Memory, 32<<20)
	orDefault(&set.Disk, 4<<30)
	if set.Dir == "" {
		set.Disk = -1
	}
	s := &Spool{dir: set.Dir}
	s.memory.max, s.disk.max = max(set.Memory, 0), max(set.Disk, 0)
	s.blocks.New = func() any { b := make([]byte, blockSize); return &b }
	return s
}

// Used tells how many bytes of either budget are taken now.
func (s *Spool) Used() (memory, disk int64) { return s.memory.used.Load(), s.disk.used.Load() }

// buffer gives the memory of a block, to be given back by recycle.
func (s *Spool) buffer() []byte { return *s.blocks.Get().(*[]byte) }

func (s *Spool) recycle(buf []byte) { s.blocks.Put(&buf) }

// create makes a file that nobody else sees: where it can, it takes its name away at once. name is "" then.
func (s *Spool) create() (f *os.File, name string, err error) {
	s.once.Do(s.makeDir)
	if s.fault != nil {
		return nil, "", s.fault
	}
	f, err = os.CreateTemp(s.dir, spoolPrefix)
	if errors.Is(err, fs.ErrNotExist) && os.MkdirAll(s.dir, 0o700) == nil { // removed by somebody
		f, err = os.CreateTemp(s.dir, spoolPrefix)
	}
	if err != nil {
		return nil, "", err
	}
	if inUse := os.Remove(f.Name()); inUse != nil { // not on every system
		name = f.Name()
	}
	return f, name, nil
}

// makeDir makes the folder, and removes what dead processes left in it. Files in use have no name, or cannot be removed.
func (s *Spool) makeDir() {
	s.fault = os.MkdirAll(s.dir, 0o700)
	if s.fault == nil {
		s.fault = os.Chmod(s.dir, 0o700) // should it have been there
	}
	if s.fault != nil {
		return
	}
	entries, _ := os.ReadDir(s.dir)
	for _, e := range entries {
		if e.Type().IsRegular() && strings.HasPrefix(e.Name(), spoolPrefix) {
			_ = os.Remove(filepath.Join(s.dir, e.Name()))
		}
	}
}

// block is a piece of a body. Its bytes never change.
type block struct {
	data []byte // nil: they are in the file alone
	n    int    // how many
	held bool   // data is paid for
	slot int64  // where in the file, counted in blocks; noSlot: nowhere. The owner's, like data
	last bool   // the body ends with it, in err
	err  error

	moving  bool // its owner is about to keep it, and frees it after that if it is
	dropped bool // no longer needed by then
}

const noSlot = -1

// reel is what the spool holds of one body.
type reel struct {
	s *Spool

	mu     sync.Mutex
	memory int64 // bytes held
	file   *os.File
	name   string  // of the file, where it must be removed
	slots  int64   // in the file
	free   []int64 // of them
	full   bool    // the disk takes no more of this body
	closed bool
}

func (s *Spool) newReel() *reel { return &reel{s: s} }

// block makes an empty block, which costs nothing until it is kept.
func (r *reel) block() *block { return &block{data: r.s.buffer(), slot: noSlot} }

// keep pays for a block: with memory, else by writing it to the file, at slot, after which data is not needed any more. It
// tells whether there was room.
func (r *reel) keep(b *block) (slot int64, ok bool) {
	r.mu.Lock()
	if !r.closed && r.memory+blockSize <= r.s.memory.max/shareOfMemory && r.s.memory.take(blockSize) {
		r.memory += blockSize
		b.held = true
		r.mu.Unlock()
		return noSlot, true
	}
	slot, f := r.takeSlot()
	r.mu.Unlock()
	if f == nil {
		return noSlot, false
	}
	if _, err := f.WriteAt(b.data[:b.n], slot*blockSize); err != nil {
		r.mu.Lock()
		r.full = true // what disks say when they are is only one of many reasons
		r.free = append(r.free, slot)
		r.mu.Unlock()
		return noSlot, false
	}
	return slot, true
}

// takeSlot finds a place in the file; f is nil if there is none. It must be called with r.mu held.
func (r *reel) takeSlot() (slot int64, f *os.File) {
	if r.full || r.closed {
		return noSlot, nil
	}
	if n := len(r.free); n > 0 {
		slot, r.free = r.free[n-1], r.free[:n-1]
		return slot, r.file
	}
	if !r.s.disk.take(blockSize) {
		return noSlot, nil
	}
	if r.file == nil {
		var err error
		if r.file, r.name, err = r.s.create(); err != nil {
			r.s.disk.giveBack(blockSize)
			r.full = true
			return noSlot, nil
		}
	}
	r.slots++
	return r.slots - 1, r.file
}

// place is where the bytes of a block are, as its owner saw it at one moment.
type place struct {
	data []byte // nil: in the file
	slot int64
	n    int
}

func (b *block) place() place { return place{b.data, b.slot, b.n} }

// read copies bytes of a block from off on.
func (r *reel) read(p []byte, from place, off int) (int, error) {
	p = p[:min(len(p), from.n-off)]
	if from.data != nil {
		return copy(p, from.data[off:]), nil
	}
	n, err := r.file.ReadAt(p, from.slot*blockSize+int64(off))
	if n < len(p) {
		return n, &Error{Code: CodeUnavailable, Op: OpPut, Err: &fs.PathError{Op: "read", Path: "spool", Err: err}}
	}
	return n, nil
}

// drop gives back what a block takes. Its memory is used again only if nobody reads in it.
func (r *reel) drop(b *block, read bool) {
	r.forget(b, read)
	r.mu.Lock()
	defer r.mu.Unlock()
	if b.held {
		b.held = false
		r.memory -= blockSize
		r.s.memory.giveBack(blockSize)
	}
	if b.slot != noSlot {
		r.free = append(r.free, b.slot)
		b.slot = noSlot
	}
}

// forget lets go of a block's memory.
func (r *reel) forget(b *block, read bool) {
	if b.data != nil && !read {
		r.s.recycle(b.data)
	}
	b.data = nil
}

// close gives back everything. Nothing can be kept or read any more.
func (r *reel) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	r.closed = true
	r.s.memory.giveBack(r.memory)
	r.s.disk.giveBack(r.slots * blockSize)
	if r.file != nil {
		_ = r.file.Close()
	}
	if r.name != "" {
		_ = os.Remove(r.name)
	}
}
