// Package memstore keeps objects in memory.
package memstore

import (
	"context"
	"encoding/base64"
	"errors"
	"sync"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

var (
	errFull     = errors.New("the memory store is full")
	errNegative = errors.New("memstore: MaxBytes: must be >= 0")
)

// Settings of a memory store. The zero value works.
type Settings struct {
	// MaxBytes is the most that bodies, keys and attributes together may take. An upload over an object may hold both
	// until it commits. Default: 0, no limit.
	MaxBytes int64

	// Now reads the clock. Default: time.Now.
	Now func() time.Time
}

// Store keeps objects in memory. It is safe for concurrent use. Bodies are immutable: all readers share one slice, and
// an overwrite leaves theirs alone.
type Store struct {
	max int64
	now func() time.Time

	mu       sync.RWMutex
	objects  map[string]*object
	keys     index // of objects, in order
	used     int64 // sum of the objects' costs
	reserved int64 // what uploads under way have taken so far
}

// object is one version of an object, never changed once it is in the map.
type object struct {
	info muxcore.Info
	data []byte
}

// New makes an empty store.
func New(s Settings) (*Store, error) {
	if s.MaxBytes < 0 {
		return nil, errNegative
	}
	if s.Now == nil {
		s.Now = time.Now
	}
	return &Store{max: s.MaxBytes, now: s.Now, objects: make(map[string]*object)}, nil
}

// Waits implements muxcore.Waiter: memory waits for nothing.
func (s *Store) Waits() muxcore.Waits { return muxcore.WaitsNever }

// Capabilities implements muxcore.Capable.
func (s *Store) Capabilities() muxcore.Capabilities {
	return muxcore.Capabilities{Write: true, List: true, ConditionalWrite: true, Metadata: true, Range: true, Digests: true, Locks: true}
}

// Probe implements muxcore.Prober: memory is well as long as the process is.
func (s *Store) Probe(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return muxcore.At(muxcore.OpHealth, "", err)
	}
	return nil
}

// Get implements muxcore.Store.
func (s *Store) Get(ctx context.Context, key string, opts muxcore.GetOptions) (*muxcore.Object, error) {
	o, err := s.find(ctx, muxcore.OpGet, key)
	if err != nil {
		return nil, err
	}
	offset, length, err := opts.Resolve(&o.info)
	if err != nil {
		return nil, muxcore.At(muxcore.OpGet, key, err)
	}
	open := &opened{object: muxcore.Object{Info: o.info, Offset: offset, Length: length}}
	open.body.data = o.data[offset : offset+length]
	open.object.Body = &open.body
	return &open.object, nil
}

// opened is an object with its body, so that a Get allocates once.
type opened struct {
	object muxcore.Object
	body   body
}

// Stat implements muxcore.Store.
func (s *Store) Stat(ctx context.Context, key string, cond muxcore.Conditions) (muxcore.Info, error) {
	o, err := s.find(ctx, muxcore.OpStat, key)
	if err != nil {
		return muxcore.Info{}, err
	}
	if err := cond.CheckRead(&o.info); err != nil {
		return muxcore.Info{}, muxcore.At(muxcore.OpStat, key, err)
	}
	return o.info, nil
}

// Delete implements muxcore.Store.
func (s *Store) Delete(ctx context.Context, key string, opts muxcore.DeleteOptions) (muxcore.DeleteResult, error) {
	if err := check(ctx, muxcore.OpDelete, key); err != nil {
		return muxcore.DeleteResult{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.objects[key]
	if !ok {
		return muxcore.DeleteResult{}, absent(muxcore.OpDelete, key)
	}
	if err := opts.Conditions.CheckWrite(key, &o.info); err != nil {
		return muxcore.DeleteResult{}, muxcore.At(muxcore.OpDelete, key, err)
	}
	delete(s.objects, key)
	s.keys.remove(key)
	s.used -= cost(o)
	return muxcore.DeleteResult{}, nil
}

func (s *Store) find(ctx context.Context, op muxcore.Op, key string) (*object, error) {
	if err := check(ctx, op, key); err != nil {
		return nil, err
	}
	if o := s.look(key); o != nil {
		return o, nil
	}
	return nil, absent(op, key)
}

// look gives the object at key, or nil.
func (s *Store) look(key string) *object {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.objects[key]
}

// check is what every call begins with.
func check(ctx context.Context, op muxcore.Op, key string) error {
	if err := muxcore.CheckStoreKey(key); err != nil {
		return muxcore.At(op, key, err)
	}
	if err := ctx.Err(); err != nil {
		return muxcore.At(op, key, err)
	}
	return nil
}

func absent(op muxcore.Op, key string) error {
	return &muxcore.Error{Code: muxcore.CodeKeyNotFound, Op: op, Key: key}
}

// etagOf makes a strong entity tag of the content: equal bytes have equal tags in every memory store.
func etagOf(sum []byte) string {
	return `"` + base64.RawURLEncoding.EncodeToString(sum[:16]) + `"`
}

// cost is what an object counts against MaxBytes.
func cost(o *object) int64 { return int64(len(o.data) + len(o.info.Key) + o.info.AttributeBytes()) }
