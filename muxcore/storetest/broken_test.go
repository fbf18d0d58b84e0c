package storetest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

var errBroken = errors.New("broken")

func brokenStores() []broken {
	var all []broken
	for _, some := range [][]broken{brokenReads(), brokenBodies(), brokenWrites(), brokenKeys(), brokenMetadata(), brokenTogether(), brokenLists()} {
		all = append(all, some...)
	}
	return all
}

func brokenReads() []broken {
	return []broken{
		{
			"absence is an outage",
			[]string{"an absent object is not found", "a failed read carries the contract's error", "a probe of a store that is well succeeds"},
			func(in muxcore.Store) muxcore.Store {
				f := NewFaulty(in)
				f.On(muxcore.OpGet, Every, Fail(errBroken))
				f.On(muxcore.OpStat, Every, Fail(errBroken))
				f.On(muxcore.OpHealth, Every, Fail(errBroken))
				return f
			},
		},
		{"a byte is wrong", []string{"objects of every size are read whole"}, byScript(muxcore.OpGet, Flip(4095))},
		{"bodies are cut", []string{"objects of every size are read whole"}, byScript(muxcore.OpGet, CutClean(1000))},
		{"bodies go on", []string{"objects of every size are read whole", "an empty object is an object"}, byScript(muxcore.OpGet, Extra("more"))},
		{"the size is wrong", []string{"objects of every size are read whole", "an empty object is an object"}, byScript(muxcore.OpStat, WrongSize(77))},
		{"the ETag changes from call to call", []string{"validators and descriptions are stable"}, func(in muxcore.Store) muxcore.Store {
			f := NewFaulty(in)
			f.On(muxcore.OpStat, 3, ETag(`"other"`))
			return f
		}},
		{
			"ranges are ignored",
			[]string{"every range opens the bytes that an oracle says", "a range past the end is not satisfiable", "if-range decides between part and whole"},
			byScript(muxcore.OpGet, IgnoreRange()),
		},
		{"the offset is wrong", []string{"every range opens the bytes that an oracle says"}, byScript(muxcore.OpGet, WrongOffset(1))},
		{"conditions of reads are ignored", []string{"conditions of reads follow RFC 9110", "conditions are decided before the range"}, func(in muxcore.Store) muxcore.Store {
			return &twisted{Store: in, get: func(ctx context.Context, key string, o muxcore.GetOptions) (*muxcore.Object, error) {
				o.Conditions = muxcore.Conditions{}
				return in.Get(ctx, key, o)
			}}
		}},
		{"if-range is ignored", []string{"if-range decides between part and whole"}, func(in muxcore.Store) muxcore.Store {
			return &twisted{Store: in, get: func(ctx context.Context, key string, o muxcore.GetOptions) (*muxcore.Object, error) {
				o.IfRange = ""
				return in.Get(ctx, key, o)
			}}
		}},
		{"ended contexts are ignored", []string{"no operation starts after its context has ended"}, func(in muxcore.Store) muxcore.Store {
			return &twisted{Store: in, get: func(ctx context.Context, key string, o muxcore.GetOptions) (*muxcore.Object, error) {
				return in.Get(context.WithoutCancel(ctx), key, o)
			}}
		}},
		{"a read panics", []string{"objects of every size are read whole"}, byScript(muxcore.OpGet, Panic("boom"))},
	}
}

// bodyOf changes the body of every Get.
func bodyOf(change func(ctx context.Context, o *muxcore.Object) io.ReadCloser) func(muxcore.Store) muxcore.Store {
	return func(in muxcore.Store) muxcore.Store {
		return &twisted{Store: in, get: func(ctx context.Context, key string, opts muxcore.GetOptions) (*muxcore.Object, error) {
			o, err := in.Get(ctx, key, opts)
			if err == nil {
				o.Body = change(ctx, o)
			}
			return o, err
		}}
	}
}

type lyingBody struct {
	io.ReadCloser
	writeTo func(w io.Writer) (int64, error)
	seek    func(offset int64, whence int) (int64, error)
	read    func(p []byte) (int, error)
	close   func() error
}

func (b *lyingBody) Read(p []byte) (int, error) {
	if b.read != nil {
		return b.read(p)
	}
	return b.ReadCloser.Read(p)
}

func (b *lyingBody) WriteTo(w io.Writer) (int64, error) {
	if b.writeTo != nil {
		return b.writeTo(w)
	}
	return io.Copy(w, struct{ io.Reader }{b.ReadCloser})
}

func (b *lyingBody) Seek(offset int64, whence int) (int64, error) {
	if b.seek != nil {
		return b.seek(offset, whence)
	}
	return b.ReadCloser.(io.Seeker).Seek(offset, whence)
}

func (b *lyingBody) Close() error {
	if b.close != nil {
		return b.close()
	}
	return b.ReadCloser.Close()
}

func brokenBodies() []broken {
	return []broken{
		{
			"WriteTo starts again from the beginning",
			[]string{"a body that writes itself writes what it would read"},
			bodyOf(func(_ context.Context, o *muxcore.Object) io.ReadCloser {
				inner := o.Body
				return &lyingBody{ReadCloser: inner, writeTo: func(w io.Writer) (int64, error) {
					_, _ = inner.(io.Seeker).Seek(0, io.SeekStart)
					return inner.(io.WriterTo).WriteTo(w)
				}}
			}),
		},
		{
			"Seek counts from the beginning of the object",
			[]string{"a body that seeks stays within what was opened"},
			bodyOf(func(_ context.Context, o *muxcore.Object) io.ReadCloser {
				inner, offset := o.Body, o.Offset
				return &lyingBody{ReadCloser: inner, seek: func(at int64, whence int) (int64, error) {
					got, err := inner.(io.Seeker).Seek(at, whence)
					return got + offset, err
				}}
			}),
		},
		{"the file stands at another byte", []string{"a file behind the body stands at the right byte"}, wrongFile},
		{
			"closing twice panics",
			[]string{"a body may be closed twice and is then over"},
			bodyOf(func(_ context.Context, o *muxcore.Object) io.ReadCloser {
				closed := make(chan struct{})
				return &lyingBody{ReadCloser: o.Body, close: func() error { close(closed); return nil }}
			}),
		},
		{
			"a read of nothing takes a byte",
			[]string{"a read of nothing takes nothing"},
			bodyOf(func(_ context.Context, o *muxcore.Object) io.ReadCloser {
				inner := o.Body
				return &lyingBody{ReadCloser: inner, read: func(p []byte) (int, error) {
					if len(p) == 0 {
						_, _ = inner.Read(make([]byte, 1))
					}
					return inner.Read(p)
				}}
			}),
		},
		{
			"a body ends cleanly with its context",
			[]string{"a body whose context ends yields right bytes or that error"},
			bodyOf(func(ctx context.Context, o *muxcore.Object) io.ReadCloser {
				inner := o.Body
				return &lyingBody{ReadCloser: inner, read: func(p []byte) (int, error) {
					if ctx.Err() != nil {
						return 0, io.EOF
					}
					return inner.Read(p)
				}}
			}),
		},
		{
			"a body ends cleanly when it is closed",
			[]string{"a body may be closed twice and is then over", "a body may be closed while it is read"},
			bodyOf(func(_ context.Context, o *muxcore.Object) io.ReadCloser {
				inner := o.Body
				var closed atomic.Bool
				return &lyingBody{
					ReadCloser: inner,
					close:      func() error { closed.Store(true); return nil },
					read: func(p []byte) (int, error) {
						if closed.Load() {
							return 0, io.EOF
						}
						return inner.Read(p)
					},
				}
			}),
		},
	}
}

// naivePut stores whatever the body yields.
func naivePut(in muxcore.Store) muxcore.Store {
	return &twisted{Store: in, put: func(ctx context.Context, key string, body io.Reader, _ int64, o muxcore.PutOptions) (muxcore.PutResult, error) {
		data, _ := io.ReadAll(body)
		o.Digests = muxcore.Digests{}
		return in.Put(context.WithoutCancel(ctx), key, bytes.NewReader(data), int64(len(data)), o)
	}}
}

func brokenWrites() []broken {
	return []broken{
		{"whatever comes is stored", []string{
			"a short or long body changes nothing", "a body that fails changes nothing", "a wrong digest changes nothing",
			"a put whose context ends is whole or not at all",
		}, naivePut},
		{"bodies of unknown length are refused", []string{"bodies of known and unknown length are kept"}, func(in muxcore.Store) muxcore.Store {
			return &twisted{Store: in, put: func(ctx context.Context, key string, body io.Reader, size int64, o muxcore.PutOptions) (muxcore.PutResult, error) {
				if size < 0 {
					return muxcore.PutResult{}, &muxcore.Error{Code: muxcore.CodeUnsupported}
				}
				return in.Put(ctx, key, body, size, o)
			}}
		}},
		{"the body is closed", []string{"a body is neither closed nor read after Put returns"}, func(in muxcore.Store) muxcore.Store {
			return &twisted{Store: in, put: func(ctx context.Context, key string, body io.Reader, size int64, o muxcore.PutOptions) (muxcore.PutResult, error) {
				if c, ok := body.(io.Closer); ok {
					defer c.Close()
				}
				return in.Put(ctx, key, body, size, o)
			}}
		}},
		{
			"the old object goes before the new one comes",
			[]string{"a short or long body changes nothing"},
			func(in muxcore.Store) muxcore.Store {
				return &twisted{Store: in, put: func(ctx context.Context, key string, body io.Reader, size int64, o muxcore.PutOptions) (muxcore.PutResult, error) {
					_, _ = in.Delete(ctx, key, muxcore.DeleteOptions{})
					return in.Put(ctx, key, body, size, o)
				}}
			},
		},
		{"between two versions there is none", []string{"readers beside writers read one whole version"}, gaping},
		{"nobody knows what existed", []string{"an overwrite replaces the whole object"}, func(in muxcore.Store) muxcore.Store {
			return &twisted{Store: in, put: func(ctx context.Context, key string, body io.Reader, size int64, o muxcore.PutOptions) (muxcore.PutResult, error) {
				res, err := in.Put(ctx, key, body, size, o)
				res.Existed = false
				return res, err
			}}
		}},
		{"deletes of nothing succeed", []string{"a deleted object is gone", "one of many conditional deletes succeeds"}, func(in muxcore.Store) muxcore.Store {
			return &twisted{Store: in, del: func(ctx context.Context, key string, o muxcore.DeleteOptions) (muxcore.DeleteResult, error) {
				res, err := in.Delete(ctx, key, o)
				if muxcore.CodeOf(err) == muxcore.CodeKeyNotFound {
					err = nil
				}
				return res, err
			}}
		}},
		{"deletes do nothing", []string{"a deleted object is gone", "keys that look alike are different objects"}, func(in muxcore.Store) muxcore.Store {
			return &twisted{Store: in, del: func(ctx context.Context, key string, _ muxcore.DeleteOptions) (muxcore.DeleteResult, error) {
				_, err := in.Stat(ctx, key, muxcore.Conditions{})
				return muxcore.DeleteResult{}, err
			}}
		}},
		{
			"conditions of writes are ignored",
			[]string{"conditions of writes hold or change nothing"},
			func(in muxcore.Store) muxcore.Store { return unconditional(in, muxcore.CapabilitiesOf(in)) },
		},
		{
			"conditions of writes are ignored and not refused",
			[]string{"a store that cannot write conditionally refuses"},
			func(in muxcore.Store) muxcore.Store { return unconditional(in, muxcore.Capabilities{Write: true}) },
		},
	}
}

// unconditional ignores the conditions of writes.
func unconditional(in muxcore.Store, caps muxcore.Capabilities) muxcore.Store {
	return &twisted{
		Store: in,
		caps:  &caps,
		put: func(ctx context.Context, key string, body io.Reader, size int64, o muxcore.PutOptions) (muxcore.PutResult, error) {
			o.Conditions = muxcore.Conditions{}
			return in.Put(ctx, key, body, size, o)
		},
	}
}

// gaping takes the old object away, and puts the new one there once somebody has seen that there is none.
func gaping(in muxcore.Store) muxcore.Store {
	var mu sync.Mutex // one gap at a time
	seen := make(chan struct{})
	return &twisted{
		Store: in,
		get: func(ctx context.Context, key string, opts muxcore.GetOptions) (*muxcore.Object, error) {
			o, err := in.Get(ctx, key, opts)
			if muxcore.CodeOf(err) == muxcore.CodeKeyNotFound {
				select {
				case seen <- struct{}{}:
				default: // the gap is not open any more, or not yet
				}
			}
			return o, err
		},
		put: func(ctx context.Context, key string, body io.Reader, size int64, o muxcore.PutOptions) (muxcore.PutResult, error) {
			mu.Lock()
			defer mu.Unlock()
			if _, err := in.Delete(ctx, key, muxcore.DeleteOptions{}); err == nil {
				select {
				case <-seen:
				case <-ctx.Done():
				}
			}
			return in.Put(ctx, key, body, size, o)
		},
	}
}

// racyConditions decides conditions before it writes, not with it: the first to have found one met waits for a second.
func racyConditions(in muxcore.Store) muxcore.Store {
	var met atomic.Int32
	two := make(chan struct{})
	return &twisted{Store: in, put: func(ctx context.Context, key string, body io.Reader, size int64, o muxcore.PutOptions) (muxcore.PutResult, error) {
		var info *muxcore.Info
		if i, err := in.Stat(ctx, key, muxcore.Conditions{}); err == nil {
			info = &i
		}
		if err := o.Conditions.CheckWrite(key, info); err != nil {
			return muxcore.PutResult{}, err
		}
		if !o.Conditions.Empty() {
			if met.Add(1) == 2 {
				close(two)
			}
			select {
			case <-two:
			case <-ctx.Done():
			}
		}
		o.Conditions = muxcore.Conditions{}
		return in.Put(ctx, key, body, size, o)
	}}
}

func brokenTogether() []broken {
	return []broken{
		{"conditions and commit are apart", []string{"one of many writers creates an object", "compare and swap loses no update"}, racyConditions},
		{"versions mix", []string{"readers beside writers read one whole version", "an open body outlives an overwrite and a delete"}, mixing},
		{"a delete takes the folder with it", []string{"neighbours come and go without harm", "lists beside writers stay sorted"}, func(in muxcore.Store) muxcore.Store {
			return &twisted{Store: in, del: func(ctx context.Context, key string, o muxcore.DeleteOptions) (muxcore.DeleteResult, error) {
				for e, err := range in.List(ctx, muxcore.ListOptions{Prefix: key[:strings.LastIndex(key, "/")+1]}) {
					if err == nil && e.Key != key && !strings.HasPrefix(e.Key, key+"/") {
						_, _ = in.Delete(ctx, e.Key, muxcore.DeleteOptions{})
					}
				}
				return in.Delete(ctx, key, o)
			}}
		}},
		{"a list ends cleanly with its context", []string{"a list whose context ends is whole or ends in that error"}, func(in muxcore.Store) muxcore.Store {
			return &twisted{Store: in, list: func(ctx context.Context, o muxcore.ListOptions) iter.Seq2[muxcore.Entry, error] {
				return func(yield func(muxcore.Entry, error) bool) {
					for e, err := range in.List(ctx, o) {
						if ctx.Err() != nil || !yield(e, err) {
							return
						}
					}
				}
			}}
		}},
	}
}

// mixing reads through to whatever the object is at each Read.
func mixing(in muxcore.Store) muxcore.Store {
	return &twisted{Store: in, get: func(ctx context.Context, key string, opts muxcore.GetOptions) (*muxcore.Object, error) {
		o, err := in.Get(ctx, key, opts)
		if err != nil {
			return nil, err
		}
		at := o.Offset
		end := at + o.Length
		o.Body = &lyingBody{ReadCloser: o.Body, read: func(p []byte) (int, error) {
			if at >= end {
				return 0, io.EOF
			}
			now, err := in.Get(ctx, key, muxcore.GetOptions{Range: muxcore.Range{Offset: at, Length: min(int64(len(p)), 512, end-at)}})
			if err != nil {
				return 0, io.EOF
			}
			defer now.Body.Close()
			n, _ := io.ReadFull(now.Body, p[:now.Length])
			at += int64(n)
			return n, nil
		}}
		return o, nil
	}}
}

// once does something the first time only.
type once struct {
	mu   sync.Mutex
	done bool
}

func (o *once) first() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	was := o.done
	o.done = true
	return !was
}
