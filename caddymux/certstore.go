package caddymux

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// certStore is a tree as certmagic's storage.
type certStore struct {
	tree   *tree
	hold   func() (*tree, error) // keeps it open until release is called
	logger *zap.Logger

	mu   sync.Mutex
	held map[string][]heldLocks // by the name of the lock, the oldest first
}

func newCertStore(t *tree, logger *zap.Logger) *certStore {
	return &certStore{tree: t, hold: t.acquire, logger: logger, held: make(map[string][]heldLocks)}
}

// String names the storage in logs, which would else show all that it consists of.
func (s *certStore) String() string { return "storage_mux:" + s.tree.name }

// errUnloaded is for calls that come when the config is gone and none has taken its place.
var errUnloaded = errors.New("storage_mux: the config of this storage was unloaded")

// open keeps the tree open until release is called on it.
func (s *certStore) open() (*tree, error) {
	t, err := s.hold()
	if errors.Is(err, errClosed) {
		return nil, errUnloaded
	}
	return t, err
}

// maxValue is far more than any certificate, key, account or staple takes: what is loaded is in memory, whatever a backend gives.
const maxValue = 64 << 20

var errLargeValue = fmt.Errorf("more than %d MiB, which nothing in a certificate storage has", maxValue>>20)

// Store implements certmagic.Storage.
func (s *certStore) Store(ctx context.Context, key string, value []byte) error {
	if len(value) > maxValue {
		return fmt.Errorf("storing %q: %w", key, errLargeValue)
	}
	t, err := s.open()
	if err != nil {
		return err
	}
	defer t.release()
	_, err = t.store.Put(ctx, certKey(key), bytes.NewReader(value), int64(len(value)), muxcore.PutOptions{})
	return err
}

// Load implements certmagic.Storage.
func (s *certStore) Load(ctx context.Context, key string) ([]byte, error) {
	t, err := s.open()
	if err != nil {
		return nil, err
	}
	defer t.release()
	o, err := t.store.Get(ctx, certKey(key), muxcore.GetOptions{})
	if err != nil {
		return nil, asAbsent(err)
	}
	defer func() { _ = o.Body.Close() }()
	value, err := readValue(o, maxValue)
	if err != nil {
		return nil, fmt.Errorf("reading %q: %w", key, err)
	}
	return value, nil
}

// readValue reads an object of up to most bytes.
func readValue(o *muxcore.Object, most int64) ([]byte, error) {
	if o.Size > most {
		return nil, errLargeValue
	}
	value, err := io.ReadAll(io.LimitReader(o.Body, most+1))
	if err == nil && int64(len(value)) > most {
		return nil, errLargeValue
	}
	return value, err
}

// asAbsent makes fs.ErrNotExist of what can never be there.
func asAbsent(err error) error {
	if errors.Is(err, muxcore.ErrInvalidKey) {
		return fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	return err
}

// Delete implements certmagic.Storage: the key, and all below it. It is no error if there is nothing. Where a part of what is below
// cannot be listed, the rest goes all the same, the key first of all.
func (s *certStore) Delete(ctx context.Context, key string) error {
	t, err := s.open()
	if err != nil {
		return err
	}
	defer t.release()
	var errs []error
	remove := func(key string) {
		if _, err := t.store.Delete(ctx, key, muxcore.DeleteOptions{}); err != nil && !errors.Is(asAbsent(err), fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	if certKey(key) != muxcore.InternalPrefix {
		remove(certKey(key))
	}
	var under []string
	var listErr error
	for e, err := range s.list(ctx, t, muxcore.ListOptions{Prefix: below(key)}) {
		if listErr = err; err != nil {
			break
		}
		if _, ours := certName(e.Key); ours {
			under = append(under, e.Key)
		}
	}
	for _, one := range under {
		remove(one)
	}
	return errors.Join(append(errs, listErr)...)
}

// Exists implements certmagic.Storage.
func (s *certStore) Exists(ctx context.Context, key string) bool {
	_, err := s.Stat(ctx, key)
	return err == nil
}

// Stat implements certmagic.Storage.
func (s *certStore) Stat(ctx context.Context, key string) (certmagic.KeyInfo, error) {
	t, err := s.open()
	if err != nil {
		return certmagic.KeyInfo{}, err
	}
	defer t.release()
	if certKey(key) == muxcore.InternalPrefix {
		return certmagic.KeyInfo{Key: key}, nil // the root is there
	}
	info, err := t.store.Stat(ctx, certKey(key), muxcore.Conditions{})
	if err == nil {
		return certmagic.KeyInfo{Key: key, Modified: info.ModTime, Size: max(info.Size, 0), IsTerminal: true}, nil
	}
	// A backend that is away may leave open whether this is a key. What is known to lie below says that it is a folder.
	err = asAbsent(err)
	for e, listErr := range s.list(ctx, t, muxcore.ListOptions{Prefix: below(key)}) {
		if listErr != nil {
			if errors.Is(err, fs.ErrNotExist) {
				err = listErr
			}
			break
		}
		if _, ours := certName(e.Key); ours {
			return certmagic.KeyInfo{Key: key}, nil
		}
	}
	return certmagic.KeyInfo{}, err
}

// List implements certmagic.Storage: what lies below a path, folders included, as certmagic's own storage has it.
func (s *certStore) List(ctx context.Context, dir string, recursive bool) ([]string, error) {
	t, err := s.open()
	if err != nil {
		return nil, err
	}
	defer t.release()
	root := strings.TrimPrefix(path.Clean("/"+dir), "/")
	found := listing{root: root, recursive: recursive, seen: make(map[string]bool)}
	if err := s.walk(ctx, t, below(dir), &found); err != nil {
		return nil, err
	}
	if len(found.keys) > 0 || root == "" {
		return found.keys, nil
	}
	_, err = t.store.Stat(ctx, certKey(dir), muxcore.Conditions{})
	return nil, asAbsent(err)
}

// walk adds what lies below a prefix. A list that does not go deep sees folders as one entry, unless their names are so long
// that they take several segments.
func (s *certStore) walk(ctx context.Context, t *tree, prefix string, found *listing) error {
	opts := muxcore.ListOptions{Prefix: prefix}
	if !found.recursive && !strings.HasSuffix(prefix, longName) {
		opts.Delimiter = "/"
	}
	for e, err := range s.list(ctx, t, opts) {
		switch {
		case err != nil:
			return err
		case e.IsPrefix && strings.HasSuffix(e.Key, longName):
			if err := s.walk(ctx, t, e.Key, found); err != nil {
				return err
			}
		default:
			found.add(strings.TrimSuffix(e.Key, "/"))
		}
	}
	return nil
}

// listing collects what a list yields, in its order, each once.
type listing struct {
	root      string // cleaned
	recursive bool
	keys      []string
	seen      map[string]bool
}

// add adds a key of the tree, and the folders on the way to it.
func (l *listing) add(key string) {
	name, ours := certName(key)
	if !ours {
		return
	}
	rest := strings.TrimPrefix(strings.TrimPrefix(name, l.root), "/")
	at := l.root
	for more := true; more; {
		var segment string
		segment, rest, more = strings.Cut(rest, "/")
		if at = path.Join(at, segment); !l.seen[at] {
			l.seen[at] = true
			l.keys = append(l.keys, at)
		}
		if !l.recursive {
			return
		}
	}
}

// list is a list of the tree. A backend whose part is missing is an error at its end, unless the others hold copies of what it has.
func (s *certStore) list(ctx context.Context, t *tree, opts muxcore.ListOptions) func(yield func(muxcore.Entry, error) bool) {
	var missing error
	opts.OnDegraded = func(backend string, err error) {
		if copies := t.root.set.Mode; copies == muxcore.Mirror || copies == muxcore.Shield {
			s.logger.Warn("certificates are listed without one backend's part", zap.String("tree", t.name), zap.String("backend", backend), zap.Error(err))
			return
		}
		missing = errors.Join(missing, fmt.Errorf("backend %q could not be listed: %w", backend, err))
	}
	return func(yield func(muxcore.Entry, error) bool) {
		for e, err := range t.store.List(ctx, opts) {
			if !yield(e, err) || err != nil {
				return
			}
		}
		if missing != nil {
			yield(muxcore.Entry{}, missing)
		}
	}
}

// Lock implements certmagic.Locker. The tree stays open, and the backend with the locks in it, until the lock is given back.
func (s *certStore) Lock(ctx context.Context, name string) error {
	_, err := s.lock(name, func(l heldLocks) (bool, error) { return true, l.Lock(ctx, name) })
	return err
}

// TryLock implements certmagic.TryLocker.
func (s *certStore) TryLock(ctx context.Context, name string) (bool, error) {
	return s.lock(name, func(l heldLocks) (bool, error) { return l.TryLock(ctx, name) })
}

func (s *certStore) lock(name string, take func(heldLocks) (bool, error)) (bool, error) {
	t, err := s.open()
	if err != nil {
		return false, err
	}
	l, err := t.holdLocks() // of a newer tree, perhaps
	if err != nil {
		return false, err
	}
	ok, err := take(l)
	if !ok || err != nil {
		l.letGo()
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[name] = append(s.held[name], l)
	return true, nil
}

// Unlock implements certmagic.Locker.
func (s *certStore) Unlock(ctx context.Context, name string) error {
	s.mu.Lock()
	all := s.held[name]
	if len(all) == 0 {
		s.mu.Unlock()
		return fmt.Errorf("unlocking %q: this lock is not held", name)
	}
	l := all[0]
	if s.held[name] = all[1:]; len(all) == 1 {
		delete(s.held, name)
	}
	s.mu.Unlock()
	defer l.letGo()
	return l.Unlock(ctx, name)
}

// RenewLockLease implements certmagic.LockLeaseRenewer. Locks are refreshed for as long as this process lives, whatever time
// is asked for; a longer one would only have others wait longer after its end.
func (s *certStore) RenewLockLease(ctx context.Context, name string, _ time.Duration) error {
	s.mu.Lock()
	all := s.held[name]
	s.mu.Unlock()
	if len(all) == 0 {
		return fmt.Errorf("renewing %q: this lock is not held", name)
	}
	return all[0].Renew(ctx, name)
}

// Interface guards.
var (
	_ certmagic.Storage          = (*certStore)(nil)
	_ certmagic.TryLocker        = (*certStore)(nil)
	_ certmagic.LockLeaseRenewer = (*certStore)(nil)
	_ fmt.Stringer               = (*certStore)(nil)
)
