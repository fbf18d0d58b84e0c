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

// putBackTime is how long a collection that turned out to be in use may take to be put back, even for a caller who is gone.
const putBackTime = 10 * time.Second

var errMadeRoom = errors.New("collections were missing or in the way, and are not any more; the body is used up")

// makeRoom removes the reason for which the origin refused a PUT, if collections were: those above the key were missing,
// or an empty one stands in its place. It tells whether there is a point in trying again.
func (s *Store) makeRoom(ctx context.Context, key string, status int) bool {
	dav, _ := s.dav.get(s.now())
	switch status {
	case http.StatusConflict:
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusInternalServerError: // what some say in its place
		if !dav {
			return false
		}
	default:
		return false
	}
	if s.madeParents(ctx, key) {
		return true
	}
	if !dav {
		return false
	}
	kind, err := s.kindOf(ctx, muxcore.OpPut, key)
	return err == nil && kind == kindCollection && s.clear(ctx, key)
}

// clear removes the collection at key if there is no object in it. A DELETE would take whatever has come in meanwhile
// with it, so the collection is put aside first, looked at again, and put back if it has become somebody's.
func (s *Store) clear(ctx context.Context, key string) bool {
	dir := key + "/"
	aside := wire.ParentOf(key) + muxcore.ReservedPrefix + "-" + rand.Text() + "/"
	if !s.isEmpty(ctx, dir) || !s.move(ctx, dir, aside) {
		return false
	}
	if !s.isEmpty(ctx, aside) {
		back, cancel := context.WithTimeout(context.WithoutCancel(ctx), putBackTime)
		defer cancel()
		s.move(back, aside, dir)
		return false
	}
	s.discard(ctx, muxcore.OpPut, aside)
	s.parents.forget()
	return true
}

// isEmpty tells whether there surely is nothing but collections in dir.
func (s *Store) isEmpty(ctx context.Context, dir string) bool {
	members, err := s.members(ctx, dir)
	for i := range members {
		if !members[i].Collection() || !s.isEmpty(ctx, members[i].Key) {
			return false
		}
	}
	return err == nil
}

// move renames a collection, over nothing.
func (s *Store) move(ctx context.Context, from, to string) bool {
	header := maps.Clone(s.header)
	destination := s.base.of(to)
	if s.host != "" {
		destination.Host = s.host
	}
	header["Destination"] = []string{destination.String()}
	header["Overwrite"] = []string{"F"}
	resp, err := s.exchange(ctx, muxcore.OpPut, from, s.request(ctx, "MOVE", s.base.of(from), header)) //nolint:bodyclose // drained below
	if err != nil {
		return false
	}
	wire.Drain(resp)
	return resp.StatusCode == http.StatusCreated || resp.StatusCode == http.StatusNoContent
}

// lacksBase tells whether a WebDAV origin refused a PUT because it has no collection at the base URL.
func (s *Store) lacksBase(ctx context.Context, key string, status int) bool {
	switch status {
	case http.StatusConflict, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusInternalServerError:
	default:
		return false
	}
	if dav, err := s.isDAV(ctx, muxcore.OpPut, key); err != nil || !dav {
		return false
	}
	found, err := s.propfind(ctx, muxcore.OpPut, key, "", "0")
	if err != nil {
		return isGone(err) || statusOf(err) == http.StatusConflict
	}
	found.close()
	return false
}

// conflicts tells whether the origin refused a PUT because key is a collection, or is below an object.
func (s *Store) conflicts(ctx context.Context, key string, status int) bool {
	switch status {
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusInternalServerError:
	default:
		return false
	}
	if dav, _ := s.dav.get(s.now()); !dav {
		return false
	}
	s.parents.forget()
	if kind, err := s.kindOf(ctx, muxcore.OpPut, key); err != nil || kind == kindCollection {
		return err == nil
	}
	for above := wire.ParentOf(key); above != ""; above = wire.ParentOf(above) {
		above = strings.TrimSuffix(above, "/")
		kind, err := s.kindOf(ctx, muxcore.OpPut, above)
		if err != nil || kind != kindAbsent {
			return err == nil && kind == kindObject
		}
	}
	return false
}

// mayDelete looks at what a DELETE would delete on a WebDAV origin: with a collection, everything in it would go.
func (s *Store) mayDelete(ctx context.Context, key string) error {
	dav, err := s.isDAV(ctx, muxcore.OpDelete, key)
	if err != nil || !dav {
		return err
	}
	kind, err := s.kindOf(ctx, muxcore.OpDelete, key)
	switch {
	case err != nil:
		return err
	case kind == kindCollection:
		return &muxcore.Error{Code: muxcore.CodeKeyNotFound, Op: muxcore.OpDelete, Key: key, Err: errCollection}
	case kind == kindAbsent:
		return &muxcore.Error{Code: muxcore.CodeKeyNotFound, Op: muxcore.OpDelete, Key: key}
	}
	return nil
}

// kind is what stands at a path of a WebDAV origin.
type kind uint8

const (
	kindAbsent kind = iota
	kindObject
	kindCollection
)

func (s *Store) kindOf(ctx context.Context, op muxcore.Op, key string) (kind, error) {
	found, err := s.propfind(ctx, op, key, key, "0")
	if err != nil {
		return s.kindBelow(ctx, op, key, err)
	}
	defer found.close()
	r, err := found.next()
	switch {
	case errors.Is(err, io.EOF):
		return kindAbsent, nil
	case err != nil:
		return kindAbsent, err
	case r.collection:
		return kindCollection, nil
	}
	return kindObject, nil
}

// kindBelow decides what a refusal means: absent, and with statuses that some origins give for a path below an object,
// absent if that is where key is.
func (s *Store) kindBelow(ctx context.Context, op muxcore.Op, key string, refusal error) (kind, error) {
	if isGone(refusal) {
		return kindAbsent, nil
	}
	switch statusOf(refusal) {
	case http.StatusMethodNotAllowed, http.StatusConflict:
		if above := strings.TrimSuffix(wire.ParentOf(key), "/"); above != "" {
			if kind, err := s.kindOf(ctx, op, above); err == nil && kind != kindCollection {
				return kindAbsent, nil
			}
		}
	}
	return kindAbsent, refusal
}
