package storetest

import (
	"context"
	"io"
	"iter"
	"os"
	"slices"
	"strings"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// mapped gives every key another name inside of the store.
func mapped(in muxcore.Store, name func(string) string) muxcore.Store {
	return &twisted{
		Store: in,
		get: func(ctx context.Context, key string, o muxcore.GetOptions) (*muxcore.Object, error) {
			obj, err := in.Get(ctx, name(key), o)
			if err == nil {
				obj.Key = key
			}
			return obj, err
		},
		stat: func(ctx context.Context, key string, c muxcore.Conditions) (muxcore.Info, error) {
			info, err := in.Stat(ctx, name(key), c)
			info.Key = key
			return info, err
		},
		put: func(ctx context.Context, key string, body io.Reader, size int64, o muxcore.PutOptions) (muxcore.PutResult, error) {
			res, err := in.Put(ctx, name(key), body, size, o)
			res.Key = key
			return res, err
		},
		del: func(ctx context.Context, key string, o muxcore.DeleteOptions) (muxcore.DeleteResult, error) {
			return in.Delete(ctx, name(key), o)
		},
	}
}

func brokenKeys() []broken {
	return []broken{
		{"a plus is a space", []string{"keys that look alike are different objects"}, func(in muxcore.Store) muxcore.Store {
			return mapped(in, func(k string) string { return strings.ReplaceAll(k, "+", " ") })
		}},
		{"case does not matter", []string{"keys that look alike are different objects", "keys are bytes and come back as they were"}, func(in muxcore.Store) muxcore.Store {
			s := mapped(in, strings.ToLower).(*twisted)
			put := s.put
			s.put = func(ctx context.Context, key string, body io.Reader, size int64, o muxcore.PutOptions) (muxcore.PutResult, error) {
				res, err := put(ctx, key, body, size, o)
				res.Key = strings.ToLower(key)
				return res, err
			}
			return s
		}},
		{
			"odd keys are refused without a rule",
			[]string{"a store refuses a key it cannot hold and changes nothing", "keys are bytes and come back as they were"},
			func(in muxcore.Store) muxcore.Store {
				return &twisted{Store: in, put: func(ctx context.Context, key string, body io.Reader, size int64, o muxcore.PutOptions) (muxcore.PutResult, error) {
					if strings.ContainsAny(key, ":?") {
						return muxcore.PutResult{}, &muxcore.Error{Code: muxcore.CodeInvalidKey}
					}
					return in.Put(ctx, key, body, size, o)
				}}
			},
		},
		{"keys are cleaned", []string{"keys that no store may hold are refused by every operation"}, func(in muxcore.Store) muxcore.Store {
			return mapped(in, func(k string) string { return strings.Trim(strings.ReplaceAll(k, "//", "/"), "/") })
		}},
		{"a key below an object is an outage", []string{"a key below an object is held or is a conflict"}, func(in muxcore.Store) muxcore.Store {
			return &twisted{Store: in, put: func(ctx context.Context, key string, body io.Reader, size int64, o muxcore.PutOptions) (muxcore.PutResult, error) {
				if key == "top/below" {
					return muxcore.PutResult{}, &muxcore.Error{Code: muxcore.CodeUnavailable}
				}
				return in.Put(ctx, key, body, size, o)
			}}
		}},
		{"the internal prefix is refused", []string{"the internal prefix holds objects"}, func(in muxcore.Store) muxcore.Store {
			return &twisted{Store: in, put: func(ctx context.Context, key string, body io.Reader, size int64, o muxcore.PutOptions) (muxcore.PutResult, error) {
				if err := muxcore.CheckKey(key); err != nil {
					return muxcore.PutResult{}, err
				}
				return in.Put(ctx, key, body, size, o)
			}}
		}},
	}
}

// forgetful stores without what forget takes away.
func forgetful(forget func(o *muxcore.PutOptions)) func(muxcore.Store) muxcore.Store {
	return func(in muxcore.Store) muxcore.Store {
		return &twisted{Store: in, put: func(ctx context.Context, key string, body io.Reader, size int64, o muxcore.PutOptions) (muxcore.PutResult, error) {
			forget(&o)
			return in.Put(ctx, key, body, size, o)
		}}
	}
}

func brokenMetadata() []broken {
	return []broken{
		{"attributes are dropped", []string{"attributes come back as they were"}, forgetful(func(o *muxcore.PutOptions) { o.Attributes = muxcore.Attributes{} })},
		{"one attribute is dropped", []string{"attributes come back as they were"}, forgetful(func(o *muxcore.PutOptions) { o.ContentLanguage = "" })},
		{"codings are dropped", []string{"a content coding is kept, or the body refused"}, forgetful(func(o *muxcore.PutOptions) { o.ContentEncoding = "" })},
		{"identities are dropped", []string{"a stored identity comes back as it was", "a stored identity decides conditions"}, forgetful(func(o *muxcore.PutOptions) { o.ETag = "" })},
		{"times are dropped", []string{"a stored identity comes back as it was"}, forgetful(func(o *muxcore.PutOptions) { o.ModTime = o.ModTime.Add(5e9) })},
		{"a store's own ETag passes for a stored one", []string{"a store's own ETag is not a stored one"}, forgetful(func(o *muxcore.PutOptions) {
			if o.ETag == "" {
				o.ETag = `"made up"`
			}
		})},
		{"old attributes stay", []string{"an overwrite takes the old attributes away"}, func(in muxcore.Store) muxcore.Store {
			return &twisted{Store: in, put: func(ctx context.Context, key string, body io.Reader, size int64, o muxcore.PutOptions) (muxcore.PutResult, error) {
				if old, err := in.Stat(ctx, key, muxcore.Conditions{}); err == nil && o.Metadata == nil {
					o.Metadata = old.Metadata
				}
				return in.Put(ctx, key, body, size, o)
			}}
		}},
	}
}

// listing changes the entries of every list.
func listing(change func(o muxcore.ListOptions, entries []muxcore.Entry) []muxcore.Entry) func(muxcore.Store) muxcore.Store {
	return func(in muxcore.Store) muxcore.Store {
		return &twisted{Store: in, list: func(ctx context.Context, o muxcore.ListOptions) iter.Seq2[muxcore.Entry, error] {
			return func(yield func(muxcore.Entry, error) bool) {
				var entries []muxcore.Entry
				for e, err := range in.List(ctx, o) {
					if err != nil {
						yield(e, err)
						return
					}
					entries = append(entries, e)
				}
				for _, e := range change(o, entries) {
					if !yield(e, nil) {
						return
					}
				}
			}
		}}
	}
}

func brokenLists() []broken {
	folders := func(_ muxcore.ListOptions, entries []muxcore.Entry) []muxcore.Entry {
		slices.SortFunc(entries, func(a, b muxcore.Entry) int {
			return slices.Compare(strings.Split(a.Key, "/"), strings.Split(b.Key, "/"))
		})
		return entries
	}
	first := once{}
	return []broken{
		{"a list is in the order of folders", []string{"every list is what an oracle says"}, listing(folders)},
		{"an empty store lists something", []string{"an empty store lists nothing"}, listing(func(_ muxcore.ListOptions, e []muxcore.Entry) []muxcore.Entry {
			return append(e, muxcore.Entry{Info: muxcore.Info{Key: "zzz"}})
		})},
		{"the entry after a page is lost", []string{"pages give each entry once"}, listing(func(o muxcore.ListOptions, e []muxcore.Entry) []muxcore.Entry {
			if o.After != "" && len(e) > 0 {
				return e[1:]
			}
			return e
		})},
		{"a list runs only once", []string{"a list may be broken off and run again"}, listing(func(_ muxcore.ListOptions, e []muxcore.Entry) []muxcore.Entry {
			if first.first() {
				return e
			}
			return nil
		})},
		{"entries have wrong sizes", []string{"what an entry says is true"}, listing(func(_ muxcore.ListOptions, e []muxcore.Entry) []muxcore.Entry {
			for i := range e {
				e[i].Size++
			}
			return e
		})},
		{"prefixes are cleaned", []string{"a prefix that no key can have lists nothing"}, func(in muxcore.Store) muxcore.Store {
			return &twisted{Store: in, list: func(ctx context.Context, o muxcore.ListOptions) iter.Seq2[muxcore.Entry, error] {
				o.Prefix = strings.Trim(strings.ReplaceAll(o.Prefix, "//", "/"), "./\\")
				return in.List(ctx, o)
			}}
		}},
		{"only a page ever shows", []string{"a long list is complete"}, listing(func(_ muxcore.ListOptions, e []muxcore.Entry) []muxcore.Entry {
			return e[:min(len(e), 256)]
		})},
	}
}

// wrongFile puts a file behind each body that stands one byte too far.
func wrongFile(in muxcore.Store) muxcore.Store {
	return &twisted{Store: in, get: func(ctx context.Context, key string, opts muxcore.GetOptions) (*muxcore.Object, error) {
		o, err := in.Get(ctx, key, opts)
		if err != nil {
			return nil, err
		}
		f, err := os.CreateTemp("", "storetest")
		if err != nil {
			return nil, err
		}
		_ = os.Remove(f.Name())
		_, _ = io.Copy(f, o.Body)
		_, _ = f.Seek(1, io.SeekStart)
		o.Body = f
		return o, nil
	}}
}
