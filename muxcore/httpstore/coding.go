package httpstore

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"maps"
	"net/http"
	"strings"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/internal/wire"
)

// An origin that does not keep a Content-Encoding would serve bytes that nobody can read. So before the first body with one the
// origin is tried on an object of our own; where it takes no object of that name, on the body itself.

const (
	probeKey    = muxcore.ReservedPrefix + "-probe-" // and a random word
	probeCoding = "gzip"
	cleanUpTime = 10 * time.Second // for the removal of what must not stay, even for a caller who is gone
)

// nothing is no bytes, in gzip.
const nothing = "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff\x01\x00\x00\xff\xff\x00\x00\x00\x00\x00\x00\x00\x00"

var errCoded = errors.New("the origin does not keep the Content-Encoding, without which the body cannot be read")

// checkCoding refuses a body with a coding that the origin would lose. open: that is to be seen on the body itself.
func (s *Store) checkCoding(ctx context.Context, key string, opts *muxcore.PutOptions) (open bool, err error) {
	if opts.ContentEncoding == "" {
		return false, nil
	}
	select { // one finds out for all
	case s.trying <- struct{}{}:
		defer func() { <-s.trying }()
	case <-ctx.Done():
		return false, wire.Broke(ctx, muxcore.OpPut, key, ctx.Err())
	}
	keeps, known := s.codings.get(s.now())
	if !known {
		if keeps, known, err = s.tryCoding(ctx, key); err != nil {
			return false, err
		}
	}
	if known && !keeps {
		return false, &muxcore.Error{Code: muxcore.CodeUnsupported, Op: muxcore.OpPut, Key: key, Err: errCoded}
	}
	return !known, nil
}

// tryCoding finds out on an object of its own, if the origin takes and shows it.
func (s *Store) tryCoding(ctx context.Context, key string) (keeps, known bool, err error) {
	probe := probeKey + rand.Text()
	header := maps.Clone(s.traced(ctx, s.header))
	header["Content-Encoding"] = []string{probeCoding}
	req := s.request(ctx, http.MethodPut, s.base.of(probe), header)
	req.ContentLength = int64(len(nothing))
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(nothing)), nil }
	req.Body, _ = req.GetBody()
	resp, err := s.exchange(ctx, muxcore.OpPut, key, req) //nolint:bodyclose // drained below
	if err != nil {
		return false, false, err
	}
	wire.Drain(resp)
	if resp.StatusCode >= 300 {
		return false, false, nil
	}
	defer s.remove(ctx, probe)
	coding, err := s.codingOf(ctx, probe)
	if err != nil {
		return false, false, ctx.Err()
	}
	s.codings.set(coding == probeCoding, s.now())
	return coding == probeCoding, true, nil
}

// kept makes sure that the origin has kept the coding of a body, and takes back one that nobody could read.
func (s *Store) kept(ctx context.Context, key string, opts *muxcore.PutOptions) error {
	coding, err := s.codingOf(ctx, key)
	if err != nil {
		return muxcore.At(muxcore.OpPut, key, err)
	}
	s.codings.set(coding == opts.ContentEncoding, s.now())
	if coding == opts.ContentEncoding {
		return nil
	}
	s.remove(ctx, key)
	return &muxcore.Error{Code: muxcore.CodeUnsupported, Op: muxcore.OpPut, Key: key, Err: errCoded}
}

func (s *Store) codingOf(ctx context.Context, key string) (string, error) {
	resp, err := s.answer(ctx, &ask{op: muxcore.OpStat, key: key}) //nolint:bodyclose // drained below
	if err != nil {
		return "", err
	}
	wire.Drain(resp)
	info := infoOf(key, resp, resp.ContentLength)
	return info.ContentEncoding, nil
}

// remove deletes what this store has put, and must not stay.
func (s *Store) remove(ctx context.Context, key string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTime)
	defer cancel()
	s.discard(ctx, muxcore.OpDelete, key)
}

// discard asks the origin to delete what this store has left there. Nobody is waiting to hear whether it did.
func (s *Store) discard(ctx context.Context, op muxcore.Op, key string) {
	if resp, err := s.exchange(ctx, op, key, s.request(ctx, http.MethodDelete, s.base.of(key), s.header)); err == nil { //nolint:bodyclose // drained
		wire.Drain(resp)
	}
}
