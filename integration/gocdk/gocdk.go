// Package gocdk gives any store of ours to the Go Cloud Development Kit (gocloud.dev) as a driver.Bucket, so that its conformance
// suite, which others wrote, runs over our stores.
//
// What the kit asks for beyond the contract of [muxcore.Store], or otherwise than it:
//   - Keys of any kind. What our key rule refuses, or that of a directory, is escaped: control characters, backslashes, slashes that
//     would make an empty segment or one that ends in a dot or a space, and such an end. Metadata that no
//     field of HTTP can have is escaped as well. The kit's own drivers do so too.
//   - Signed URLs and driver-specific types (As): there are none, which the kit has a way to say.
//   - A copy within the service: here the object is read and written.
//   - Detection that a bucket does not exist: to us that is a backend that fails, not one that is empty.
//   - Creation only where nothing exists (IfNotExist), which takes a store with [muxcore.Capabilities.ConditionalWrite].
//   - A list in the order of the keys: it comes in that of the escaped ones.
package gocdk

import (
	"context"
	"errors"
	"io"

	"gocloud.dev/blob/driver"
	"gocloud.dev/gcerrors"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// pageSize is the length of a page where the kit leaves it to us.
const pageSize = 1000

// bucket implements driver.Bucket.
type bucket struct{ store muxcore.Store }

// New is a bucket over a store, which stays the caller's to close.
func New(store muxcore.Store) driver.Bucket { return &bucket{store} }

// codes are what our codes are to the kit. The others are failures of a kind that it has no word for.
var codes = map[muxcore.Code]gcerrors.ErrorCode{
	muxcore.CodeKeyNotFound:         gcerrors.NotFound,
	muxcore.CodeInvalidKey:          gcerrors.InvalidArgument,
	muxcore.CodeKeyConflict:         gcerrors.FailedPrecondition,
	muxcore.CodePreconditionFailed:  gcerrors.FailedPrecondition,
	muxcore.CodeRangeNotSatisfiable: gcerrors.InvalidArgument,
	muxcore.CodeBodyMismatch:        gcerrors.InvalidArgument,
	muxcore.CodeTooLarge:            gcerrors.ResourceExhausted,
	muxcore.CodeUnsupported:         gcerrors.Unimplemented,
	muxcore.CodeReadOnly:            gcerrors.PermissionDenied,
	muxcore.CodeDenied:              gcerrors.PermissionDenied,
	muxcore.CodeCredentialExpired:   gcerrors.PermissionDenied,
	muxcore.CodeBackendAborted:      gcerrors.Canceled,
	muxcore.CodeBackendTimeout:      gcerrors.DeadlineExceeded,
}

// ErrorCode implements driver.Bucket.
func (b *bucket) ErrorCode(err error) gcerrors.ErrorCode {
	switch {
	case errors.Is(err, errUnable):
		return gcerrors.Unimplemented
	case errors.Is(err, context.Canceled):
		return gcerrors.Canceled
	case errors.Is(err, context.DeadlineExceeded):
		return gcerrors.DeadlineExceeded
	}
	if code, ok := codes[muxcore.CodeOf(err)]; ok {
		return code
	}
	return gcerrors.Unknown
}

// As implements driver.Bucket.
func (*bucket) As(any) bool { return false }

// ErrorAs implements driver.Bucket.
func (*bucket) ErrorAs(error, any) bool { return false }

func noAs(any) bool { return false }

// before calls back, where somebody wants to be.
func before(call func(func(any) bool) error) error {
	if call == nil {
		return nil
	}
	return call(noAs)
}

// Attributes implements driver.Bucket.
func (b *bucket) Attributes(ctx context.Context, key string) (*driver.Attributes, error) {
	info, err := b.store.Stat(ctx, escapeKey(key), muxcore.Conditions{})
	if err != nil {
		return nil, err
	}
	return &driver.Attributes{
		CacheControl:       info.CacheControl,
		ContentDisposition: info.ContentDisposition,
		ContentEncoding:    info.ContentEncoding,
		ContentLanguage:    info.ContentLanguage,
		ContentType:        typeOf(&info),
		Metadata:           mapped(info.Metadata, unescape, unescape),
		ModTime:            info.ModTime,
		Size:               info.Size,
		MD5:                info.Digests.MD5,
		ETag:               info.ETag,
	}, nil
}

// typeOf is the content type, which the kit wants of every object.
func typeOf(info *muxcore.Info) string {
	if info.ContentType == "" {
		return "application/octet-stream"
	}
	return info.ContentType
}

// ListPaged implements driver.Bucket. A page begins after the last entry of the one before it.
func (b *bucket) ListPaged(ctx context.Context, opts *driver.ListOptions) (*driver.ListPage, error) {
	if err := before(opts.BeforeList); err != nil {
		return nil, err
	}
	size := opts.PageSize
	if size == 0 {
		size = pageSize
	}
	list := muxcore.ListOptions{
		Prefix: escapePrefix(opts.Prefix), Delimiter: escapePrefix(opts.Delimiter), After: string(opts.PageToken), Limit: size + 1,
	}
	if opts.Delimiter == "/" {
		list.Delimiter = "/"
	}
	page, last := new(driver.ListPage), ""
	for e, err := range b.store.List(ctx, list) {
		if err != nil {
			return nil, err
		}
		if len(page.Objects) == size {
			page.NextPageToken = []byte(last)
			break
		}
		last = e.Key
		o := &driver.ListObject{Key: unescape(e.Key), IsDir: e.IsPrefix}
		if !e.IsPrefix {
			o.ModTime, o.Size, o.MD5 = e.ModTime, e.Size, e.Digests.MD5
		}
		page.Objects = append(page.Objects, o)
	}
	return page, nil
}

// NewRangeReader implements driver.Bucket.
func (b *bucket) NewRangeReader(ctx context.Context, key string, offset, length int64, opts *driver.ReaderOptions) (driver.Reader, error) {
	if err := before(opts.BeforeRead); err != nil {
		return nil, err
	}
	if length == 0 { // which is the whole rest to us
		info, err := b.store.Stat(ctx, escapeKey(key), muxcore.Conditions{})
		if err != nil {
			return nil, err
		}
		return &reader{io.NopCloser(eof{}), info}, nil
	}
	o, err := b.store.Get(ctx, escapeKey(key), muxcore.GetOptions{Range: muxcore.Range{Offset: offset, Length: max(length, 0)}})
	if err != nil {
		return nil, err
	}
	return &reader{o.Body, o.Info}, nil
}

// reader implements driver.Reader.
type reader struct {
	io.ReadCloser
	info muxcore.Info
}

// Attributes implements driver.Reader.
func (r *reader) Attributes() *driver.ReaderAttributes {
	return &driver.ReaderAttributes{ContentType: typeOf(&r.info), ModTime: r.info.ModTime, Size: r.info.Size}
}

// As implements driver.Reader.
func (*reader) As(any) bool { return false }

type eof struct{}

func (eof) Read([]byte) (int, error) { return 0, io.EOF }

// NewTypedWriter implements driver.Bucket.
func (b *bucket) NewTypedWriter(ctx context.Context, key, contentType string, opts *driver.WriterOptions) (driver.Writer, error) {
	if err := before(opts.BeforeWrite); err != nil {
		return nil, err
	}
	put := muxcore.PutOptions{Attributes: muxcore.Attributes{
		ContentType:        contentType,
		CacheControl:       opts.CacheControl,
		ContentDisposition: opts.ContentDisposition,
		ContentEncoding:    opts.ContentEncoding,
		ContentLanguage:    opts.ContentLanguage,
		Metadata:           mapped(opts.Metadata, escapeName, escapeValue),
	}}
	if len(opts.ContentMD5) > 0 {
		put.Digests.MD5 = opts.ContentMD5
	}
	if opts.IfNotExist {
		put.Conditions.IfNoneMatch = "*"
	}
	body, feed := io.Pipe()
	w := &writer{ctx: ctx, feed: feed, done: make(chan error, 1)}
	go func() {
		_, err := b.store.Put(ctx, escapeKey(key), body, -1, put)
		body.CloseWithError(err) // whoever still writes is told
		w.done <- err
	}()
	return w, nil
}

// writer implements driver.Writer. What is written is there once Close has returned, or not at all.
type writer struct {
	ctx  context.Context //nolint:containedctx // Close takes none, and must know whether the writer was given up
	feed *io.PipeWriter
	done chan error
}

// Write implements io.Writer.
func (w *writer) Write(p []byte) (int, error) { return w.feed.Write(p) }

// Close implements io.Closer.
func (w *writer) Close() error {
	gone := w.ctx.Err()
	w.feed.CloseWithError(gone) // io.EOF without one
	if err := <-w.done; gone == nil {
		return err
	}
	return gone
}

// Copy implements driver.Bucket.
func (b *bucket) Copy(ctx context.Context, dstKey, srcKey string, opts *driver.CopyOptions) error {
	if err := before(opts.BeforeCopy); err != nil {
		return err
	}
	o, err := b.store.Get(ctx, escapeKey(srcKey), muxcore.GetOptions{})
	if err != nil {
		return err
	}
	defer o.Body.Close()
	_, err = b.store.Put(ctx, escapeKey(dstKey), o.Body, o.Length, muxcore.PutOptions{Attributes: o.Attributes, Digests: o.Digests})
	return err
}

// Delete implements driver.Bucket.
func (b *bucket) Delete(ctx context.Context, key string, opts *driver.DeleteOptions) error {
	if err := before(opts.BeforeDelete); err != nil {
		return err
	}
	_, err := b.store.Delete(ctx, escapeKey(key), muxcore.DeleteOptions{})
	return err
}

var errUnable = errors.New("there are no signed URLs")

// SignedURL implements driver.Bucket.
func (*bucket) SignedURL(context.Context, string, *driver.SignedURLOptions) (string, error) {
	return "", errUnable
}

// Close implements driver.Bucket.
func (*bucket) Close() error { return nil }

// Interface guards.
var (
	_ driver.Bucket = (*bucket)(nil)
	_ driver.Reader = (*reader)(nil)
	_ driver.Writer = (*writer)(nil)
)
