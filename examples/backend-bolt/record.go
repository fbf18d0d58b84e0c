package bolt

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"sync/atomic"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// record is what stands in front of an object's bytes: its length, as a varint, and this as JSON.
type record struct {
	ETag       string
	ETagStored bool
	ModTime    time.Time
	Digests    muxcore.Digests
	Attributes muxcore.Attributes
}

// describe is the Info of what is put. Without an identity, the ETag is the store's own.
func describe(key string, body []byte, opts *muxcore.PutOptions) muxcore.Info {
	sum := sha256.Sum256(body)
	info := muxcore.Info{
		Key: key, Size: int64(len(body)), ModTime: opts.ModTime, ETag: opts.ETag, ETagStored: opts.ETag != "",
		Digests: opts.Digests, Attributes: opts.Attributes,
	}
	info.Digests.SHA256 = sum[:]
	if info.ETag == "" {
		info.ETag = `"` + hex.EncodeToString(sum[:16]) + `"`
	}
	if info.ModTime.IsZero() {
		info.ModTime = time.Now()
	}
	return info
}

func encode(info *muxcore.Info, body []byte) ([]byte, error) {
	text, err := json.Marshal(record{info.ETag, info.ETagStored, info.ModTime, info.Digests, info.Attributes})
	if err != nil {
		return nil, err
	}
	value := binary.AppendUvarint(make([]byte, 0, len(text)+len(body)+binary.MaxVarintLen64), uint64(len(text)))
	return append(append(value, text...), body...), nil
}

var errRecord = errors.New("the database holds something that is no object")

// decode copies an object out of a value, which is only valid during its transaction.
func decode(key string, value []byte) (info muxcore.Info, body []byte, err error) {
	if value == nil {
		return muxcore.Info{}, nil, &muxcore.Error{Code: muxcore.CodeKeyNotFound}
	}
	length, n := binary.Uvarint(value)
	if n <= 0 || length > uint64(len(value)-n) {
		return muxcore.Info{}, nil, errRecord
	}
	var r record
	if err := json.Unmarshal(value[n:n+int(length)], &r); err != nil {
		return muxcore.Info{}, nil, errors.Join(errRecord, err)
	}
	body = bytes.Clone(value[n+int(length):])
	return muxcore.Info{
		Key: key, Size: int64(len(body)), ETag: r.ETag, ETagStored: r.ETagStored, ModTime: r.ModTime, Digests: r.Digests, Attributes: r.Attributes,
	}, body, nil
}

// body is the body of an open object. Its bytes are a copy, so it outlives whatever becomes of the object.
type body struct {
	ctx    context.Context //nolint:containedctx // it governs the body as well as the call
	src    *bytes.Reader
	closed atomic.Bool
}

func newBody(ctx context.Context, part []byte) *body {
	return &body{ctx: ctx, src: bytes.NewReader(part)}
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	if b.closed.Load() {
		return 0, fs.ErrClosed
	}
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	return b.src.Read(p)
}

// Close implements io.Closer.
func (b *body) Close() error {
	b.closed.Store(true)
	return nil
}

// Interface guards.
var _ io.ReadCloser = (*body)(nil)
