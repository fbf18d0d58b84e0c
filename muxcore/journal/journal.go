package journal

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Settings of a journal. The zero value works.
type Settings struct {
	// MaxMarks is how many keys may be remembered that one backend lacks, and as many more that it is to delete. Beyond
	// that, a backend is to be compared in full; what it is to delete is never forgotten, but refused. Default: 100,000.
	MaxMarks int

	// MaxBytes is how long all keys together may be, with their entity tags. Default: 64 MiB.
	MaxBytes int64
}

// ErrLocked is why nothing can be remembered while another process has the journal, unless that one takes it: see
// [Journal.HandOver].
var ErrLocked = errors.New("another process has it")

// ErrFull is why a delete cannot be remembered any more.
var ErrFull = errors.New("it is full of deletes")

var errClosed = errors.New("it is closed")

// Journal remembers which backends of a tree lack what. It is safe for concurrent use.
type Journal struct {
	dir string
	set Settings

	owned   atomic.Bool // the lock is held, and what is in memory is what the file says
	foreign atomic.Bool // another process has it, as far as is known
	to      atomic.Pointer[Handover]
	always  atomic.Bool

	io   sync.Mutex // guards the file; taken before mu
	file file

	mu       sync.Mutex // guards all below, and the scopes
	scopes   map[string]*Scope
	seq      uint64
	bytes    int64
	doubtful bool                   // the file was damaged: every backend of a scope that is not known yet is in doubt
	batch    *batch                 // what is to be written next
	handed   map[uint64]*time.Timer // writes of other processes that are under way, by the number of their intent
}

// batch is what one fsync makes durable.
type batch struct {
	records []record
	sync    bool
	anew    bool // the file is to be written anew
	written bool
	err     error
}

// New makes a journal in dir. It touches nothing there: that is done by [Journal.Load], and by the first mark.
func New(dir string, set Settings) *Journal {
	if set.MaxMarks <= 0 {
		set.MaxMarks = 100_000
	}
	if set.MaxBytes <= 0 {
		set.MaxBytes = 64 << 20
	}
	return &Journal{
		dir: filepath.Clean(dir), set: set, batch: new(batch), scopes: make(map[string]*Scope), handed: make(map[uint64]*time.Timer),
		file: file{path: filepath.Join(dir, "journal"), lock: filepath.Join(dir, "lock")},
	}
}

// Dir is where the journal is.
func (j *Journal) Dir() string { return j.dir }

// Load reads a journal that is there, and locks it. Nothing is created. [ErrLocked] says that it was read all the same, as
// far as it has changed since the last time; what its owner does later shows with the next Load.
func (j *Journal) Load() error {
	if j.owned.Load() {
		return nil
	}
	j.io.Lock()
	defer j.io.Unlock()
	return j.wrap(j.load())
}

// load must be called with j.io held.
func (j *Journal) load() error {
	if j.owned.Load() {
		return nil
	}
	err := j.read()
	j.foreign.Store(errors.Is(err, ErrLocked))
	return err
}

// read is load of a journal that is not this process's own yet.
func (j *Journal) read() error {
	there, err := j.file.exists()
	if err != nil || !there {
		return err
	}
	err = j.file.own()
	if err != nil && !errors.Is(err, ErrLocked) {
		return err
	}
	if err != nil && !j.file.changed() {
		return ErrLocked
	}
	c, readErr := j.file.read()
	if readErr != nil {
		j.file.disown()
		return readErr
	}
	j.adopt(c)
	if err != nil {
		return ErrLocked
	}
	j.file.rewrite = j.file.rewrite || c.damaged || c.torn
	j.file.lines = c.lines
	if c.damaged {
		j.file.keepDamaged()
		if err := j.write(new(batch)); err != nil {
			j.file.disown()
			return err
		}
	}
	j.owned.Store(true)
	return nil
}

// acquire makes the journal this process's own, for which it is created if it is not there.
func (j *Journal) acquire() error {
	if j.owned.Load() {
		return nil
	}
	j.io.Lock()
	defer j.io.Unlock()
	if err := j.file.create(); err != nil {
		j.foreign.Store(errors.Is(err, ErrLocked))
		return j.wrap(err)
	}
	return j.wrap(j.load())
}

// wrap says which journal it is.
func (j *Journal) wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("journal %s: %w", j.dir, err)
}

// adopt replaces what is in memory by what the file says.
func (j *Journal) adopt(c *content) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.seq = max(j.seq, c.seq)
	j.doubtful = c.damaged
	if all, ok := c.scopes[anyBackend]; ok && len(all.doubtful) > 0 {
		j.doubtful = true
	}
	delete(c.scopes, anyBackend)
	for name := range c.scopes {
		if j.scopes[name] == nil {
			j.scopes[name] = newScope(j, name)
		}
	}
	j.bytes = 0
	for name, s := range j.scopes {
		from := c.scopes[name]
		if from == nil {
			from = new(scopeContent)
		}
		if c.damaged || j.doubtful && !from.told {
			from.doubtful = []string{anyBackend}
		}
		s.adopt(from)
	}
}

// Scope is the part of the journal of one mux of the tree, by the mux's dotted name in it, "" for the outermost.
func (j *Journal) Scope(name string) *Scope {
	j.mu.Lock()
	defer j.mu.Unlock()
	s := j.scopes[name]
	if s == nil {
		s = newScope(j, name)
		j.scopes[name] = s
		if j.doubtful {
			s.adopt(&scopeContent{doubtful: []string{anyBackend}})
		}
	}
	return s
}

// Close writes what is left and gives up the lock. Nothing may follow.
func (j *Journal) Close() error {
	j.io.Lock()
	defer j.io.Unlock()
	j.forgetHanded()
	var err error
	if j.owned.Swap(false) {
		if b := j.next(); len(b.records) > 0 || j.file.rewrite {
			err = j.write(b)
		}
	}
	j.file.disown()
	j.file.closed = true
	return j.wrap(err)
}

// record adds to what will be written next. It must be called with j.mu held.
func (j *Journal) record(r record, sync bool) *batch {
	j.batch.records = append(j.batch.records, r)
	j.batch.sync = j.batch.sync || sync
	return j.batch
}

// next takes what is to be written. It must be called with j.io held.
func (j *Journal) next() *batch {
	j.mu.Lock()
	defer j.mu.Unlock()
	b := j.batch
	j.batch = new(batch)
	return b
}

// flush returns when b is written, by this caller or by one that was first.
func (j *Journal) flush(b *batch) error {
	j.io.Lock()
	defer j.io.Unlock()
	if !b.written {
		b = j.next()
		b.err, b.written = j.wrap(j.write(b)), true
	}
	return b.err
}

// write makes a batch durable: as lines at the end of the file, or by writing all of it anew. It must be called with j.io
// held.
func (j *Journal) write(b *batch) error {
	if !b.anew && !j.file.rewrite && !j.file.outgrown() && !j.file.disturbed() {
		return j.file.append(b.records, b.sync)
	}
	all, spent := j.snapshot()
	if err := j.file.replace(all); err != nil {
		return err
	}
	j.forget(spent)
	return nil
}

// spent is a mark that says nothing any more.
type spent struct {
	scope *Scope
	key   string
	seq   uint64
}

// snapshot is all there is to remember, as lines, and what need not be remembered but is in memory.
func (j *Journal) snapshot() (all []record, done []spent) {
	j.mu.Lock()
	defer j.mu.Unlock()
	all = append(all, record{Version: version, Last: j.seq})
	if j.doubtful {
		all = append(all, record{Scope: anyBackend, Doubtful: []string{anyBackend}})
	}
	for _, s := range j.scopes {
		if len(s.doubtful) > 0 || j.doubtful {
			all = append(all, record{Scope: s.name, Doubtful: slices.Sorted(maps.Keys(s.doubtful))})
		}
		for key, m := range s.marks {
			if m.empty() {
				done = append(done, spent{s, key, m.Seq})
				continue
			}
			all = append(all, record{Scope: s.name, Key: key, Mark: &m})
		}
	}
	return all, done
}

// forget drops marks that were kept in memory because they could not be taken out of the file.
func (j *Journal) forget(done []spent) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, d := range done {
		if m, ok := d.scope.marks[d.key]; ok && m.Seq == d.seq && m.empty() {
			d.scope.set(d.key, Mark{})
		}
	}
}
