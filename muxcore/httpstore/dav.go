package httpstore

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/internal/wire"
)

// disbelief is for how long an origin's no to an ability is believed.
const disbelief = 10 * time.Minute

// ability is what is known of something that the origin can do, or not: 0 nothing, 1 that it can, else the time in
// nanoseconds until which it cannot.
type ability struct{ state atomic.Int64 }

func (a *ability) get(now time.Time) (yes, known bool) {
	switch state := a.state.Load(); state {
	case 0, 1:
		return state == 1, state == 1
	default:
		return false, now.UnixNano() < state
	}
}

func (a *ability) set(yes bool, now time.Time) {
	if yes {
		a.state.Store(1)
		return
	}
	a.state.Store(now.Add(disbelief).UnixNano())
}

// isDAV tells whether the origin is a WebDAV origin. It asks if that is not known; an error is one without an answer.
func (s *Store) isDAV(ctx context.Context, op muxcore.Op, key string) (bool, error) {
	if yes, known := s.dav.get(s.now()); known {
		return yes, nil
	}
	resp, err := s.exchange(ctx, op, key, s.request(ctx, http.MethodOptions, s.base.url, s.traced(ctx, s.header))) //nolint:bodyclose // drained below
	if err != nil {
		return false, err
	}
	wire.Drain(resp)
	yes := false
	for _, v := range resp.Header["Dav"] {
		for class := range strings.SplitSeq(v, ",") {
			class = strings.TrimSpace(class)
			yes = yes || class == "1" || class == "2" // 2 includes 1; some origins name it alone
		}
	}
	yes = yes && resp.StatusCode < 300
	s.dav.set(yes, s.now())
	return yes, nil
}

// ensureParents makes the collections above key, if the origin needs that.
func (s *Store) ensureParents(ctx context.Context, key string) error {
	dir := wire.ParentOf(key)
	if dir == "" || s.parents.has(dir) {
		return nil
	}
	dav, err := s.isDAV(ctx, muxcore.OpPut, key)
	if err != nil || !dav {
		return err
	}
	_, err = s.makeCollection(ctx, key, dir)
	return err
}

// madeParents tells whether a conflict was for missing collections, and is none any more.
func (s *Store) madeParents(ctx context.Context, key string) bool {
	dir := wire.ParentOf(key)
	if dir == "" {
		return false
	}
	s.parents.forget()
	made, err := s.makeCollection(ctx, key, dir)
	if made && err == nil {
		s.dav.set(true, s.now()) // whatever it said when it was asked
	}
	return made && err == nil
}

// makeCollection makes dir, and what is missing above it. What the origin says beyond yes, exists and conflict is left
// for the PUT to find out.
func (s *Store) makeCollection(ctx context.Context, key, dir string) (made bool, err error) {
	status, err := s.mkcol(ctx, key, dir)
	if err != nil {
		return false, err
	}
	if above := wire.ParentOf(strings.TrimSuffix(dir, "/")); status == http.StatusConflict && above != "" {
		if _, err := s.makeCollection(ctx, key, above); err != nil {
			return false, err
		}
		if status, err = s.mkcol(ctx, key, dir); err != nil {
			return false, err
		}
		switch {
		case status != http.StatusConflict:
		case s.lacksBase(ctx, key, status):
			return false, baseless(muxcore.OpPut, key)
		default:
			return false, &muxcore.Error{Code: muxcore.CodeKeyConflict, Op: muxcore.OpPut, Key: key, Status: status}
		}
	}
	if status == http.StatusCreated || status == http.StatusMethodNotAllowed {
		s.parents.add(dir)
	}
	return status == http.StatusCreated, nil
}

func (s *Store) mkcol(ctx context.Context, key, dir string) (status int, err error) {
	resp, err := s.exchange(ctx, muxcore.OpPut, key, s.request(ctx, "MKCOL", s.base.of(dir), s.traced(ctx, s.header))) //nolint:bodyclose // drained, or taken over
	if err != nil {
		return 0, err
	}
	wire.Drain(resp)
	return resp.StatusCode, nil
}

// maxKnown bounds a set of collections; a set that is full starts anew.
const maxKnown = 4096

// known is a set of collections that were there when they were last looked at. It is safe for concurrent use.
type known struct {
	mu   sync.Mutex
	dirs map[string]struct{}
}

func (k *known) has(dir string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, ok := k.dirs[dir]
	return ok
}

func (k *known) add(dir string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.dirs == nil || len(k.dirs) >= maxKnown {
		k.dirs = make(map[string]struct{})
	}
	k.dirs[dir] = struct{}{}
}

func (k *known) forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.dirs = nil
}
