// Package bolt keeps objects in one file, a bbolt database. It is the example of a backend in a module of its own: it uses
// nothing but what the core and the plugin export, and passes the suite.
//
// Build Caddy with it beside the plugin, from the root of a checkout:
//
//	./xcaddy-build.sh --with github.com/suaveplan/caddy-storage-mux/examples/backend-bolt=examples/backend-bolt
package bolt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"go.etcd.io/bbolt"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// lockTime is how long the file may be locked by somebody else before it counts as unavailable.
const lockTime = time.Second

var bucket = []byte("objects")

// Settings of a store. File is required.
type Settings struct {
	// File of the database. It is made at the first use.
	File string

	// MaxSize is the largest object: bodies are held in memory while they are written. Default: 16 MiB.
	MaxSize int64
}

// Store is a database. It is safe for concurrent use.
//
// It does not say how its calls wait: a disk may hang, and the mux then abandons the call.
type Store struct {
	set Settings

	mu sync.Mutex
	db *bbolt.DB // nil until the first use
}

// New makes a store. It opens nothing: configs are loaded for `caddy validate` too.
func New(set Settings) (*Store, error) {
	switch {
	case set.File == "":
		return nil, errors.New("file: missing")
	case set.MaxSize < 0:
		return nil, fmt.Errorf("max_size: must be >= 0, got %d", set.MaxSize)
	case set.MaxSize == 0:
		set.MaxSize = 16 << 20
	}
	return &Store{set: set}, nil
}

// Close implements io.Closer. The mux calls it when nobody is in the store any more.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.db == nil {
		return nil
	}
	err := s.db.Close()
	s.db = nil
	return err
}

// begin is what every call begins with.
func (s *Store) begin(ctx context.Context, op muxcore.Op, key string) (*bbolt.DB, error) {
	if err := muxcore.CheckStoreKey(key); err != nil {
		return nil, muxcore.At(op, key, err)
	}
	return s.open(ctx, op, key)
}

// open opens the database, once.
func (s *Store) open(ctx context.Context, op muxcore.Op, key string) (*bbolt.DB, error) {
	if err := ctx.Err(); err != nil {
		return nil, muxcore.At(op, key, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.db != nil {
		return s.db, nil
	}
	db, err := bbolt.Open(s.set.File, 0o600, &bbolt.Options{Timeout: lockTime})
	if err != nil {
		return nil, muxcore.At(op, key, fmt.Errorf("opening the database: %w", err))
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucketIfNotExists(bucket)
		return err
	})
	if err != nil {
		return nil, muxcore.At(op, key, errors.Join(err, db.Close()))
	}
	s.db = db
	return db, nil
}

// Get implements muxcore.Store.
func (s *Store) Get(ctx context.Context, key string, opts muxcore.GetOptions) (*muxcore.Object, error) {
	info, body, err := s.read(ctx, muxcore.OpGet, key)
	if err != nil {
		return nil, err
	}
	offset, length, err := opts.Resolve(&info)
	if err != nil {
		return nil, muxcore.At(muxcore.OpGet, key, err)
	}
	return &muxcore.Object{Info: info, Offset: offset, Length: length, Body: newBody(ctx, body[offset:offset+length])}, nil
}

// Stat implements muxcore.Store.
func (s *Store) Stat(ctx context.Context, key string, cond muxcore.Conditions) (muxcore.Info, error) {
	info, _, err := s.read(ctx, muxcore.OpStat, key)
	if err != nil {
		return muxcore.Info{}, err
	}
	if err := cond.CheckRead(&info); err != nil {
		return muxcore.Info{}, muxcore.At(muxcore.OpStat, key, err)
	}
	return info, nil
}

// read copies an object out of the database.
func (s *Store) read(ctx context.Context, op muxcore.Op, key string) (info muxcore.Info, body []byte, err error) {
	db, err := s.begin(ctx, op, key)
	if err != nil {
		return muxcore.Info{}, nil, err
	}
	err = db.View(func(tx *bbolt.Tx) error {
		info, body, err = decode(key, tx.Bucket(bucket).Get([]byte(key)))
		return err
	})
	if err != nil {
		return muxcore.Info{}, nil, muxcore.At(op, key, err)
	}
	return info, body, nil
}

// Put implements muxcore.Store.
func (s *Store) Put(ctx context.Context, key string, src io.Reader, size int64, opts muxcore.PutOptions) (muxcore.PutResult, error) {
	db, err := s.begin(ctx, muxcore.OpPut, key)
	if err != nil {
		return muxcore.PutResult{}, err
	}
	checked := muxcore.CheckBody(src, size, opts.Digests)
	body, err := s.take(ctx, checked)
	if err != nil {
		return muxcore.PutResult{}, muxcore.At(muxcore.OpPut, key, err)
	}
	info := describe(key, body, &opts)
	value, err := encode(&info, body)
	if err != nil {
		return muxcore.PutResult{}, muxcore.At(muxcore.OpPut, key, err)
	}
	existed := false
	err = db.Update(func(tx *bbolt.Tx) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		objects := tx.Bucket(bucket)
		var err error
		if existed, err = decide(key, objects.Get([]byte(key)), &opts.Conditions); err != nil {
			return err
		}
		return objects.Put([]byte(key), value)
	})
	if err != nil {
		return muxcore.PutResult{}, muxcore.At(muxcore.OpPut, key, err)
	}
	return muxcore.PutResult{Info: info, Existed: existed}, nil
}

// take reads a body whole, and makes what became of it an error of the uploader's.
func (s *Store) take(ctx context.Context, checked *muxcore.CheckedBody) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(checked, s.set.MaxSize+1))
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case int64(len(body)) > s.set.MaxSize:
		return nil, &muxcore.Error{Code: muxcore.CodeTooLarge, Err: fmt.Errorf("larger than max_size, %d bytes", s.set.MaxSize)}
	case checked.Err() != nil && muxcore.CodeOf(checked.Err()) == "":
		return nil, &muxcore.Error{Code: muxcore.CodeBodyMismatch, Err: checked.Err()}
	case err != nil:
		return nil, err
	}
	return body, nil
}

// decide decides the conditions of a write over what is there.
func decide(key string, value []byte, cond *muxcore.Conditions) (existed bool, err error) {
	if value == nil {
		return false, cond.CheckWrite(key, nil)
	}
	info, _, err := decode(key, value)
	if err != nil {
		return true, err
	}
	return true, cond.CheckWrite(key, &info)
}

// Delete implements muxcore.Store.
func (s *Store) Delete(ctx context.Context, key string, opts muxcore.DeleteOptions) (muxcore.DeleteResult, error) {
	db, err := s.begin(ctx, muxcore.OpDelete, key)
	if err != nil {
		return muxcore.DeleteResult{}, err
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		objects := tx.Bucket(bucket)
		existed, err := decide(key, objects.Get([]byte(key)), &opts.Conditions)
		if err == nil && !existed {
			err = &muxcore.Error{Code: muxcore.CodeKeyNotFound}
		}
		if err != nil {
			return err
		}
		return objects.Delete([]byte(key))
	})
	if err != nil {
		return muxcore.DeleteResult{}, muxcore.At(muxcore.OpDelete, key, err)
	}
	return muxcore.DeleteResult{}, nil
}

// Interface guards.
var _ muxcore.Store = (*Store)(nil)
