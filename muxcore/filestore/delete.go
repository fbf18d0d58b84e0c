package filestore

import (
	"context"
	"errors"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// Delete implements muxcore.Store. It also removes the folders that it leaves empty.
func (s *Store) Delete(ctx context.Context, key string, opts muxcore.DeleteOptions) (muxcore.DeleteResult, error) {
	if err := checkCall(ctx, muxcore.OpDelete, key); err != nil {
		return muxcore.DeleteResult{}, err
	}
	d, err := s.acquireToWrite()
	if err != nil {
		return muxcore.DeleteResult{}, fault(muxcore.OpDelete, key, err)
	}
	defer s.release(d)
	if err := s.remove(d, key, &opts.Conditions); err != nil {
		return muxcore.DeleteResult{}, fault(muxcore.OpDelete, key, err)
	}
	return muxcore.DeleteResult{}, nil
}

func (s *Store) remove(d *rootDir, key string, cond *muxcore.Conditions) error {
	defer s.lock(key).Unlock()
	if !cond.Empty() {
		unlock, err := d.lockOthers(key)
		if err != nil {
			return err
		}
		defer unlock()
	}
	var info muxcore.Info
	f, _, side, err := d.open(key, &info)
	if err != nil {
		if d.noObject(err) || errors.Is(err, errNotRegular) {
			return absent(muxcore.OpDelete, key, err)
		}
		return err
	}
	_ = f.Close()
	if err := cond.CheckWrite(key, &info); err != nil {
		return err
	}
	old := ""
	if side {
		old = d.sideOf(key)
	}
	if err := d.Remove(key); err != nil {
		if d.noObject(err) {
			return absent(muxcore.OpDelete, key, err) // another process was faster
		}
		return err
	}
	if old != "" {
		_ = d.Remove(old)
	}
	return d.sync(d.prune(folderOf(key), "."))
}
