package bolt

import (
	"context"
	"iter"
	"strings"

	"go.etcd.io/bbolt"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// pageSize is the most entries that are read in one transaction: whoever takes them may write meanwhile.
const pageSize = 256

// List implements muxcore.Store.
func (s *Store) List(ctx context.Context, opts muxcore.ListOptions) iter.Seq2[muxcore.Entry, error] {
	return func(yield func(muxcore.Entry, error) bool) {
		err := muxcore.CheckPrefix(opts.Prefix)
		if err == nil {
			var db *bbolt.DB
			if db, err = s.open(ctx, muxcore.OpList, opts.Prefix); err == nil {
				err = list(ctx, db, &opts, yield)
			}
		}
		if err != nil {
			yield(muxcore.Entry{}, muxcore.At(muxcore.OpList, opts.Prefix, err))
		}
	}
}

// list yields entries, page by page, until nobody wants more.
func list(ctx context.Context, db *bbolt.DB, opts *muxcore.ListOptions, yield func(muxcore.Entry, error) bool) error {
	after, given := opts.After, 0
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		page, err := readPage(db, opts, after)
		if err != nil {
			return err
		}
		for _, e := range page {
			if !yield(e, nil) {
				return nil
			}
			if given++; given == opts.Limit {
				return nil
			}
			after = e.Key
		}
		if len(page) < pageSize {
			return nil
		}
	}
}

// readPage reads the entries after one.
func readPage(db *bbolt.DB, opts *muxcore.ListOptions, after string) (page []muxcore.Entry, err error) {
	err = db.View(func(tx *bbolt.Tx) error {
		c := tx.Bucket(bucket).Cursor()
		k, v := c.Seek([]byte(max(opts.Prefix, after)))
		for k != nil && strings.HasPrefix(string(k), opts.Prefix) && len(page) < pageSize {
			key := string(k)
			entry := muxcore.Entry{Info: muxcore.Info{Key: key}}
			if rolled, ok := opts.RollUp(key); ok {
				entry.Key, entry.IsPrefix = rolled, true
			}
			if entry.Key > after && !muxcore.HiddenFrom(opts.Prefix, key) {
				if !entry.IsPrefix {
					if entry.Info, _, err = decode(key, v); err != nil {
						return err
					}
				}
				page = append(page, entry)
				after = entry.Key
			}
			k, v = c.Next()
		}
		return nil
	})
	return page, err
}
