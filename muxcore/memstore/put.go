package memstore

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

const (
	firstBuffer = 4 << 10
	// trustedSize is how much memory a declared size gets at once; what is declared larger grows as it comes, so that
	// a client cannot take memory by a header alone.
	trustedSize = 1 << 20
)

// Put implements muxcore.Store.
func (s *Store) Put(ctx context.Context, key string, body io.Reader, size int64, opts muxcore.PutOptions) (muxcore.PutResult, error) {
	if err := check(ctx, muxcore.OpPut, key); err != nil {
		return muxcore.PutResult{}, err
	}
	o := &object{info: muxcore.Info{Key: key, ETag: opts.ETag, ETagStored: opts.ETag != "", Attributes: opts.Attributes}}
	held, err := s.reserve(key, &opts.Conditions, cost(o)+max(size, 0))
	if err != nil {
		return muxcore.PutResult{}, err
	}
	defer func() { s.release(held) }()

	checked := muxcore.CheckBody(body, size, opts.Digests)
	more := func(n int64) error {
		err := s.grow(key, n)
		if err == nil {
			held += n
		}
		return err
	}
	if size >= 0 {
		more = nil // all of it is reserved
	}
	if o.data, err = read(ctx, checked, size, more); err != nil {
		return muxcore.PutResult{}, muxcore.At(muxcore.OpPut, key, err)
	}
	o.info.Digests = opts.Digests.Or(checked.Digests())
	if o.info.Digests.SHA256 == nil {
		sum := sha256.Sum256(o.data)
		o.info.Digests.SHA256 = sum[:]
	}
	if o.info.ETag == "" {
		o.info.ETag = etagOf(o.info.Digests.SHA256)
	}
	o.info.Size = int64(len(o.data))
	if o.info.ModTime = opts.ModTime; opts.ModTime.IsZero() {
		o.info.ModTime = s.now()
	}
	o.info.ModTime = o.info.ModTime.Round(0) // no monotonic part
	existed, err := s.commit(o, &opts.Conditions)
	if err != nil {
		return muxcore.PutResult{}, err
	}
	return muxcore.PutResult{Info: o.info, Existed: existed}, nil
}

// reserve refuses early what could not be committed, before anything is read, and takes n bytes.
func (s *Store) reserve(key string, cond *muxcore.Conditions, n int64) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.checkWrite(key, cond); err != nil {
		return 0, err
	}
	if !s.fits(key, n) {
		return 0, &muxcore.Error{Code: muxcore.CodeTooLarge, Op: muxcore.OpPut, Key: key, Err: errFull}
	}
	s.reserved += n
	return n, nil
}

func (s *Store) grow(key string, n int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.fits(key, n) {
		return &muxcore.Error{Code: muxcore.CodeTooLarge, Err: errFull}
	}
	s.reserved += n
	return nil
}

func (s *Store) release(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reserved -= n
}

// fits tells whether n more bytes for key fit. What the key holds now is about to go, so it does not count.
// It must be called with s.mu held.
func (s *Store) fits(key string, n int64) bool {
	if s.max == 0 {
		return true
	}
	taken := s.used + s.reserved
	if old := s.objects[key]; old != nil {
		taken -= cost(old)
	}
	return n <= s.max-taken
}

// checkWrite decides the conditions of a write. It must be called with s.mu held.
func (s *Store) checkWrite(key string, cond *muxcore.Conditions) error {
	var info *muxcore.Info
	if o := s.objects[key]; o != nil {
		info = &o.info
	}
	if err := cond.CheckWrite(key, info); err != nil {
		return muxcore.At(muxcore.OpPut, key, err)
	}
	return nil
}

// commit makes o the object at its key.
func (s *Store) commit(o *object, cond *muxcore.Conditions) (existed bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := o.info.Key
	if err := s.checkWrite(key, cond); err != nil {
		return false, err
	}
	n := cost(o)
	old := s.objects[key]
	if old != nil {
		n -= cost(old)
	}
	if s.max > 0 && s.used+n > s.max {
		return false, &muxcore.Error{Code: muxcore.CodeTooLarge, Op: muxcore.OpPut, Key: key, Err: errFull}
	}
	if old == nil {
		s.keys.insert(key)
	}
	s.objects[key] = o
	s.used += n
	return old != nil, nil
}

// read reads body to its end, which is at size if that is known. more, if set, is asked before memory is taken.
func read(ctx context.Context, body io.Reader, size int64, more func(n int64) error) ([]byte, error) {
	var data []byte
	taken := int64(0)
	for {
		if len(data) == cap(data) {
			want := int64(max(2*cap(data), firstBuffer))
			if size >= 0 {
				want = min(max(want, trustedSize), size)
			}
			if more != nil {
				// Near its limit the store still takes what it has room for, down to the last byte.
				for more(want-taken) != nil {
					if want-taken <= 1 {
						return atLimit(body, data)
					}
					want = taken + (want-taken)/2
				}
				taken = want
			}
			grown := make([]byte, len(data), max(want, 1))
			copy(grown, data)
			data = grown
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		n, err := body.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		if errors.Is(err, io.EOF) {
			return trim(data), nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// atLimit ends a body for which there is no more room: it may be at its end already.
func atLimit(body io.Reader, data []byte) ([]byte, error) {
	var one [1]byte
	n, err := io.ReadFull(body, one[:])
	switch {
	case n > 0:
		return nil, &muxcore.Error{Code: muxcore.CodeTooLarge, Err: errFull}
	case errors.Is(err, io.EOF):
		return trim(data), nil
	}
	return nil, err
}

// trim gives back what growing took too much.
func trim(data []byte) []byte {
	if cap(data)-len(data) <= cap(data)/8 {
		return data
	}
	return append(make([]byte, 0, len(data)), data...)
}
