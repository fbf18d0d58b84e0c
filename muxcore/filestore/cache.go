package filestore

import (
	"bytes"
	"container/list"
	"hash/maphash"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

const (
	// maxCached is the largest object that is kept: reading more takes far longer than opening.
	maxCached = 64 << 10

	// steady is how long a file must have been left alone before it is kept. A change of the same tick of the file system's
	// clock could not be told from the state before it.
	steady = 2 * time.Second

	doorSlots = 4096
)

// Cache keeps small objects in memory, for the stores that share it. One is taken from there only after a look at the file: if it
// is another one by now, or has another size, or its modification or change time has moved, it is read again. What is kept least
// recently used makes room. It is safe for concurrent use.
type Cache struct {
	max  int64
	seed maphash.Seed

	mu   sync.Mutex
	size int64
	at   map[place]*list.Element
	used *list.List        // of *cached, the last one used in front
	door [doorSlots]uint64 // objects that were read once: those that are read again are worth keeping
}

// place is a key of a store.
type place struct {
	store *Store
	key   string
}

// cached is an object that is kept.
type cached struct {
	place
	file fs.FileInfo // as it was when it was read
	info muxcore.Info
	data []byte
}

// cost is about the memory that it takes.
func (c *cached) cost() int64 { return int64(len(c.data)+len(c.key)+c.info.AttributeBytes()) + 1024 }

// NewCache makes a cache of at most that many bytes.
func NewCache(size int64) *Cache {
	return &Cache{max: size, seed: maphash.MakeSeed(), at: make(map[place]*list.Element), used: list.New()}
}

func (c *Cache) get(p place) *cached {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.at[p]
	if e == nil {
		return nil
	}
	c.used.MoveToFront(e)
	return e.Value.(*cached)
}

// wants tells whether an object of that size, with all that is stored besides it, which is being read, is worth keeping: whether it was read lately.
func (c *Cache) wants(p place, size int64) bool {
	if c == nil || size > maxCached || size > c.max/8 {
		return false
	}
	sum := maphash.Comparable(c.seed, p)
	c.mu.Lock()
	defer c.mu.Unlock()
	slot := &c.door[sum%doorSlots]
	known := *slot == sum
	*slot = sum
	return known
}

func (c *Cache) put(e *cached) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(c.at[e.place])
	c.at[e.place] = c.used.PushFront(e)
	for c.size += e.cost(); c.size > c.max; {
		c.remove(c.used.Back())
	}
}

// drop forgets e, unless another one has taken its place.
func (c *Cache) drop(e *cached) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at := c.at[e.place]; at != nil && at.Value.(*cached) == e {
		c.remove(at)
	}
}

// forget forgets all objects of a store.
func (c *Cache) forget(s *Store) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for p, e := range c.at {
		if p.store == s {
			c.remove(e)
		}
	}
}

// remove must be called with c.mu held.
func (c *Cache) remove(e *list.Element) {
	if e == nil {
		return
	}
	one := e.Value.(*cached)
	c.used.Remove(e)
	delete(c.at, one.place)
	c.size -= one.cost()
}

// Peek implements muxcore.Peeker: an object that is kept, and still the one in the file. Looking takes a call to the system that a
// local file system, which alone is looked at so, answers without waiting.
func (s *Store) Peek(key string, opts muxcore.GetOptions) (*muxcore.Object, bool, error) {
	if s.cache == nil {
		return nil, false, nil
	}
	e := s.cache.get(place{s, key})
	if e == nil {
		return nil, false, nil
	}
	d := s.acquired()
	if d == nil {
		return nil, false, nil
	}
	still := e.still(d)
	s.release(d)
	if !still {
		s.cache.drop(e)
		return nil, false, nil
	}
	found := &found{object: muxcore.Object{Info: e.info}}
	o := &found.object
	var err error
	if o.Offset, o.Length, err = opts.Resolve(&o.Info); err != nil {
		return nil, true, fault(muxcore.OpGet, key, err)
	}
	found.body.Reset(e.data[o.Offset : o.Offset+o.Length])
	o.Body = &found.body
	return o, true, nil
}

// found is an object with its body, so that they are allocated at once.
type found struct {
	object muxcore.Object
	body   keptBody
}

// keptBody reads what is kept.
type keptBody struct{ bytes.Reader }

// Close implements io.Closer.
func (*keptBody) Close() error { return nil }

// still tells whether the file is as it was when it was read. A symbolic link never is.
func (c *cached) still(d *rootDir) bool {
	fi, err := d.Lstat(c.key)
	return err == nil && fi.Size() == c.file.Size() && fi.ModTime().Equal(c.file.ModTime()) && changeTime(fi) == changeTime(c.file) && os.SameFile(fi, c.file)
}

// keep keeps the body's bytes, all of the object, which are those of the file as it was opened.
func (b *body) keep(data []byte) {
	s, changed := b.store, changeTime(b.kept.file)
	if changed == 0 || s.now().Sub(time.Unix(0, changed)) < steady {
		return
	}
	d := s.acquired()
	if d == nil {
		return
	}
	defer s.release(d)
	if !d.local || !sameDevice(d.info, b.kept.file) || !b.kept.still(d) {
		return
	}
	b.kept.data = bytes.Clone(data)
	s.cache.put(b.kept)
}

// acquired is acquire where the root need not be looked at; nil where it must.
func (s *Store) acquired() *rootDir {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || !s.trusted(s.now()) {
		return nil
	}
	s.dir.refs++
	return s.dir
}
