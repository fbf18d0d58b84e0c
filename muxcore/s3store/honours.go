package s3store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// Services that do not know conditions take the headers for noise and write all the same. So before the first conditional
// write of a kind the endpoint is tried on an object of our own, which it must refuse to touch.

// kind is one of the ways to write conditionally, which services learnt one by one.
type kind uint8

const (
	kindPut kind = iota
	kindMultipart
	kindDelete
	kinds
)

var kindNames = [kinds]string{"PUT", "CompleteMultipartUpload", "DELETE"}

// The verdicts on a kind. Anything else than these answers leaves it open.
const (
	open int32 = iota
	honoured
	ignored
)

const (
	probeKey  = muxcore.ReservedPrefix + "-probe-" // and a random word
	clearTime = 10 * time.Second                   // the longest that clearing up after a probe may take
	otherTag  = `"00000000000000000000000000000000"`
)

// honours is what is known of an endpoint. It is safe for concurrent use.
type honours struct {
	turn    chan struct{} // of the one who finds out
	verdict [kinds]atomic.Int32
}

// hopeful tells whether conditional writes may work.
func (h *honours) hopeful() bool { return h.verdict[kindPut].Load() != ignored }

// checkHonours makes sure, before a conditional write, that the endpoint honours conditions.
func (s *Store) checkHonours(ctx context.Context, op muxcore.Op, key string, k kind) error {
	v := &s.honours.verdict[k]
	if v.Load() == open {
		select {
		case s.honours.turn <- struct{}{}:
		case <-ctx.Done():
			return brokeOff(ctx, op, key)
		}
		defer func() { <-s.honours.turn }()
	}
	if v.Load() == open {
		verdict, err := s.try(ctx, op, k)
		if err != nil {
			return fmt.Errorf("trying whether the endpoint honours conditions of a %s: %w", kindNames[k], err)
		}
		v.Store(verdict)
	}
	if v.Load() == ignored {
		return &muxcore.Error{
			Code: muxcore.CodeUnsupported, Op: op, Key: key,
			Err: fmt.Errorf("the endpoint does not honour the conditions of a %s", kindNames[k]),
		}
	}
	return nil
}

// try finds out on an object of its own.
func (s *Store) try(ctx context.Context, op muxcore.Op, k kind) (int32, error) {
	var word [8]byte
	_, _ = rand.Read(word[:]) // never fails
	key := fmt.Sprintf("%s%x", probeKey, word)
	if _, err := s.finish(ctx, &call{op: op, key: key, method: http.MethodPut, body: []byte("probe")}); err != nil {
		return open, err
	}
	defer s.discard(ctx, key)
	guards := []http.Header{{"If-None-Match": {"*"}}, {"If-Match": {otherTag}}}
	if k == kindDelete {
		guards = guards[1:]
	}
	for _, guard := range guards {
		var err error
		switch k {
		case kindMultipart:
			err = s.tryMultipart(ctx, op, key, guard)
		case kindDelete:
			_, err = s.finish(ctx, &call{op: op, key: key, method: http.MethodDelete, header: guard})
		default:
			_, err = s.finish(ctx, &call{op: op, key: key, method: http.MethodPut, body: []byte("again"), header: guard})
		}
		if verdict, err := judge(err); verdict != honoured {
			return verdict, err
		}
	}
	return honoured, nil
}

// judge reads the answer to a write whose condition does not hold.
func judge(err error) (int32, error) {
	e, ok := errors.AsType[*muxcore.Error](err)
	switch {
	case err == nil:
		return ignored, nil
	case ok && e.Code == muxcore.CodePreconditionFailed:
		return honoured, nil
	case ok && (e.Status == http.StatusBadRequest || e.Status == http.StatusNotImplemented):
		return ignored, nil // it says so itself
	}
	return open, err
}

// tryMultipart completes a multipart upload over the object, which must fail.
func (s *Store) tryMultipart(ctx context.Context, op muxcore.Op, key string, guard http.Header) error {
	m := multipart{s: s, key: key}
	if err := m.create(ctx, nil); err != nil {
		return err
	}
	m.op = op
	defer m.abort(ctx)
	if err := m.sendPart(ctx, &call{body: []byte("again")}, 1); err != nil {
		return err
	}
	_, err := m.complete(ctx, guard)
	return err
}

// discard deletes the object of a trial, also if ctx has ended.
func (s *Store) discard(ctx context.Context, key string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), clearTime)
	defer cancel()
	_, _ = s.finish(ctx, &call{op: muxcore.OpDelete, key: key, method: http.MethodDelete})
}

// guardFor is the condition under which a write changes just what was found: nothing, or the version of an ETag.
func guardFor(f *found) http.Header {
	if f == nil {
		return http.Header{"If-None-Match": {"*"}}
	}
	return http.Header{"If-Match": {f.native}}
}
