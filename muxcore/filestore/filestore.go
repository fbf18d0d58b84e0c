package filestore

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

const (
	defaultMode = 0o644
	// recheckEvery is how long the root's path is trusted to lead where it did.
	recheckEvery = time.Second
	stripes      = 64
	bufferSize   = 128 << 10
)

// Settings of a file store. Only Root is required.
type Settings struct {
	// Root is the directory that holds the objects. It need not exist yet.
	Root string

	// CreateRoot makes the root when it is first used and missing, but not the directories above it. A root that was
	// there and vanishes is not made again. Default: false.
	CreateRoot bool

	// Mode is the permissions of files, whatever the umask. Directories get the same with the right to search wherever
	// there is one to read. What Caddy keeps below muxcore.InternalPrefix is for the owner alone in any case.
	// Default: 0644.
	Mode fs.FileMode

	// Cache keeps small objects, and may be shared with other stores. Default: none.
	Cache *Cache

	// Now reads the clock. Default: time.Now.
	Now func() time.Time
}

// Store keeps objects as files. It is safe for concurrent use, and several stores, also of several processes, may
// share a root.
type Store struct {
	path   string
	create bool
	seen   bool // the root was there; guarded by mu
	mode   fs.FileMode
	now    func() time.Time
	cache  *Cache // nil: none

	buffers sync.Pool // of *[]byte
	seed    maphash.Seed
	locks   [stripes]sync.Mutex // by key, for who commits

	closing chan struct{}
	sweeps  sync.WaitGroup
	quirks  quirks

	mu      sync.Mutex
	dir     *rootDir // nil before the first use
	checked time.Time
	closed  bool
}

// New makes a store. It does not touch the disk: a root that is missing is an error when it is used.
func New(s Settings) (*Store, error) {
	if s.Root == "" {
		return nil, errors.New("filestore: Root: must not be empty")
	}
	if s.Mode == 0 {
		s.Mode = defaultMode
	}
	if s.Mode&^fs.ModePerm != 0 {
		return nil, fmt.Errorf("filestore: Mode: must be permissions only, at most 0777, got %#o", uint32(s.Mode))
	}
	if s.Mode&0o600 != 0o600 {
		return nil, fmt.Errorf("filestore: Mode: the owner must be able to read and write, got %#o", uint32(s.Mode))
	}
	if s.Now == nil {
		s.Now = time.Now
	}
	path, err := filepath.Abs(s.Root)
	if err != nil {
		return nil, fmt.Errorf("filestore: Root: %w", err)
	}
	return &Store{
		path: path, create: s.CreateRoot, mode: s.Mode, now: s.Now, cache: s.Cache, seed: maphash.MakeSeed(), closing: make(chan struct{}),
		buffers: sync.Pool{New: func() any { b := make([]byte, bufferSize); return &b }},
	}, nil
}

// Waits implements muxcore.Waiter: a file system may hang for as long as it likes.
func (s *Store) Waits() muxcore.Waits { return muxcore.WaitsUnbounded }

// Capabilities implements muxcore.Capable.
func (s *Store) Capabilities() muxcore.Capabilities {
	return muxcore.Capabilities{Write: true, List: true, ConditionalWrite: true, Metadata: true, Range: true, Digests: true, Locks: true}
}

// Probe implements muxcore.Prober: the root is there and can be opened.
func (s *Store) Probe(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fault(muxcore.OpHealth, "", err)
	}
	d, err := s.acquire()
	if err != nil {
		return fault(muxcore.OpHealth, "", err)
	}
	defer s.release(d)
	if _, err := d.Stat("."); err != nil {
		return fault(muxcore.OpHealth, "", rootError(err))
	}
	return nil
}

// Close ends what runs in the background, waits for it, and releases the root. Open bodies stay open.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	close(s.closing)
	s.mu.Unlock()
	s.sweeps.Wait()
	s.cache.forget(s)

	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop()
	return nil
}

// lock serialises those who commit to key.
func (s *Store) lock(key string) *sync.Mutex {
	m := &s.locks[maphash.String(s.seed, key)%stripes]
	m.Lock()
	return m
}

func (s *Store) buffer() *[]byte { return s.buffers.Get().(*[]byte) }

// rootDir is the directory to which the root's path led when it was opened.
type rootDir struct {
	*os.Root
	info    fs.FileInfo
	escapes error // what os.Root says of paths that lead outside

	quirks

	store  *Store
	doubts doubts

	refs  int  // calls that use it; guarded by Store.mu
	old   bool // no longer the store's; guarded by Store.mu
	swept bool // a sweep was started; guarded by Store.mu
}

// quirks are those of a file system that tests make up.
type quirks struct {
	local        bool // it is one of this machine, which is looked up as well
	noAttributes bool // it has no extended attributes
	noSync       bool // what is written need not last
}
