package s3store

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/internal/wire"
)

const (
	conditionalConflict = "ConditionalRequestConflict"

	maxPart = 5 << 30 // the largest part that services take
)

var (
	errFaster = errors.New("somebody else has written the object meanwhile")
	errNoTag  = errors.New("the service gives no ETag, without which nothing can be written conditionally")
)

// put is a Put under way.
type put struct {
	s    *Store
	key  string
	size int64 // -1 unknown
	opts *muxcore.PutOptions
	body *wire.Upload

	old   *found      // what is there, nil for nothing, as of the last look
	guard http.Header // nil: no condition
	sent  int64
}

// Put implements muxcore.Store. A read of body that is under way when the answer has come, or when ctx has ended, is
// waited for during a moment; then Put returns, and what that one read still yields is dropped.
func (s *Store) Put(ctx context.Context, key string, src io.Reader, size int64, opts muxcore.PutOptions) (muxcore.PutResult, error) {
	if err := s.prefix.Begin(ctx, muxcore.OpPut, key); err != nil {
		return muxcore.PutResult{}, err
	}
	p := put{s: s, key: key, size: size, opts: &opts}
	if _, err := p.header(nil); err != nil {
		return muxcore.PutResult{}, &muxcore.Error{Code: muxcore.CodeUnsupported, Op: muxcore.OpPut, Key: key, Err: err}
	}
	if size > maxPart*s.maxParts {
		return muxcore.PutResult{}, &muxcore.Error{Code: muxcore.CodeTooLarge, Op: muxcore.OpPut, Key: key}
	}
	if err := p.look(ctx); err != nil {
		return muxcore.PutResult{}, err
	}
	if p.guard != nil {
		if err := s.checkHonours(ctx, muxcore.OpPut, key, kindPut); err != nil {
			return muxcore.PutResult{}, muxcore.At(muxcore.OpPut, key, err)
		}
	}
	p.body = wire.NewUpload(ctx, muxcore.CheckBody(src, size, opts.Digests), size)
	native, err := p.store(ctx)
	whole, bodyErr := p.body.Settle(ctx)
	switch {
	case bodyErr != nil && ctx.Err() == nil:
		return muxcore.PutResult{}, wire.UploaderFault(key, bodyErr)
	case err != nil && ctx.Err() != nil:
		return muxcore.PutResult{}, wire.Broke(ctx, muxcore.OpPut, key, err)
	case err != nil:
		return muxcore.PutResult{}, muxcore.At(muxcore.OpPut, key, err)
	case !whole:
		return muxcore.PutResult{}, wire.TooEarly(key)
	}
	info := muxcore.Info{Key: key, Size: p.sent, ETag: wire.ETag(native), Digests: opts.Digests, Attributes: opts.Attributes, ModTime: opts.ModTime}
	if opts.ETag != "" {
		info.ETag, info.ETagStored = opts.ETag, true
	}
	return muxcore.PutResult{Info: info, Existed: p.old != nil}, nil
}

// look finds what is at the key, decides the conditions on it, and makes the guard that holds the service to that. Without
// the right to list, a missing key is a 403: then nobody knows, and only conditions must.
func (p *put) look(ctx context.Context) error {
	f, err := p.s.head(ctx, muxcore.OpPut, p.key)
	cond := &p.opts.Conditions
	p.old, p.guard = nil, nil
	switch {
	case err == nil:
		p.old = &f
	case errors.Is(err, muxcore.ErrKeyNotFound):
	case muxcore.CodeOf(err) != muxcore.CodeDenied || !cond.Empty():
		return err
	}
	if cond.Empty() {
		return nil
	}
	if err := checkWrite(muxcore.OpPut, p.key, cond, p.old); err != nil {
		return err
	}
	p.guard = guardFor(p.old)
	return nil
}

// checkWrite decides the conditions of a write over what was found.
func checkWrite(op muxcore.Op, key string, cond *muxcore.Conditions, f *found) error {
	var info *muxcore.Info
	if f != nil {
		info = &f.info
	}
	if err := cond.CheckWrite(key, info); err != nil {
		return muxcore.At(op, key, err)
	}
	if f != nil && f.native == "" {
		return &muxcore.Error{Code: muxcore.CodeUnsupported, Op: op, Key: key, Err: errNoTag}
	}
	return nil
}

// header describes the object, with the digest if that is known.
func (p *put) header(sum []byte) (http.Header, error) {
	if sum != nil {
		p.opts.Digests.SHA256 = sum
	}
	return p.s.header(p.key, p.opts, p.size)
}

// store sends the body in the way that fits its size, and gives the service's own ETag. What is one request is read before
// it is sent, and signed: there are services that store the half of a body whose sender has died, unless its digest tells.
func (p *put) store(ctx context.Context) (native []string, err error) {
	size, small := p.s.partSizeFor(p.size), min(wire.SpoolSize, p.s.partSize)
	switch {
	case p.size < 0:
		head := make([]byte, small+1) // one more, to see the end
		n, err := p.body.Fill(ctx, head)
		if err != nil {
			return p.ended(ctx, head[:n], err)
		}
		if err := p.s.memory.wait(ctx, size); err != nil {
			return nil, err
		}
		return p.byParts(ctx, size, true, head)
	case p.size > small && size > p.s.partSize:
		return p.byParts(ctx, size, false, nil)
	case p.size > small:
		held, err := p.hold(ctx, min(p.size, size))
		if err != nil {
			return nil, err
		}
		if !held || p.size > size {
			return p.byParts(ctx, size, held, nil)
		}
		defer p.s.memory.giveBack(p.size)
	}
	all := make([]byte, p.size+1)
	n, err := p.body.Fill(ctx, all)
	return p.ended(ctx, all[:n], err)
}

// hold takes memory for a body, or for the first part of it. It is false if there is none, and the upload can do without.
func (p *put) hold(ctx context.Context, size int64) (bool, error) {
	switch {
	case p.s.memory.take(size, 0):
		return true, nil
	case p.guard == nil, p.size > size:
		return false, nil
	}
	// Who honours conditions of a PUT may not honour those of an upload by parts.
	return true, p.s.memory.wait(ctx, size)
}

// ended puts a body that was read whole, or says why it could not be.
func (p *put) ended(ctx context.Context, body []byte, err error) ([]string, error) {
	if errors.Is(err, io.EOF) {
		return p.whole(ctx, body)
	}
	return nil, err
}

// whole puts a body that is in memory.
func (p *put) whole(ctx context.Context, body []byte) ([]string, error) {
	sum := sumOf(body)
	raw, _ := hex.DecodeString(sum)
	p.size, p.sent = int64(len(body)), int64(len(body))
	header, err := p.header(raw)
	if err != nil {
		return nil, err
	}
	tag := p.s.tags.mark(header, body)
	return p.commit(ctx, true, func(guard http.Header) ([]string, error) {
		c := call{op: muxcore.OpPut, key: p.key, method: http.MethodPut, header: maps.Clone(header), body: body, sha: sum}
		maps.Copy(c.header, guard)
		answer, err := p.s.finish(ctx, &c)
		if err == nil {
			p.s.tags.learn(answer, tag)
		}
		return answer["Etag"], err
	})
}

// maxRaces is how often a conditional write starts again because somebody else was faster, and the condition holds still.
const maxRaces = 4

// commit sends what makes the object. Where a condition kept it from that, what is there now decides. again tells whether it can be
// sent once more after somebody else has won: an upload by parts is over then.
func (p *put) commit(ctx context.Context, again bool, send func(guard http.Header) ([]string, error)) ([]string, error) {
	for races := 1; ; races++ {
		native, err := send(p.guard)
		if err == nil || p.guard == nil || !raced(err) {
			return native, err
		}
		if err := p.look(ctx); err != nil {
			return nil, err
		}
		if races == maxRaces || !again && overtaken(err) {
			return nil, lost(muxcore.OpPut, p.key, p.old)
		}
	}
}

// raced tells whether a conditional write failed because what is there is not what was found.
func raced(err error) bool {
	code := muxcore.CodeOf(err)
	return overtaken(err) || code == muxcore.CodePreconditionFailed || code == muxcore.CodeKeyNotFound
}

// overtaken tells whether a conditional write failed because somebody else wrote at the same time.
func overtaken(err error) bool {
	switch codeOf(err) {
	case conditionalConflict, "OperationAborted":
		return true
	}
	return false
}

// lost is the error of a conditional write for which others were too fast.
func lost(op muxcore.Op, key string, f *found) error {
	e := &muxcore.Error{Code: muxcore.CodePreconditionFailed, Op: op, Key: key, Err: errFaster}
	if f != nil {
		e.Info = &f.info
	}
	return e
}

// Delete implements muxcore.Store. S3 does not tell whether there was anything to delete, so a look comes first; who has not
// the right to take it deletes all the same.
func (s *Store) Delete(ctx context.Context, key string, opts muxcore.DeleteOptions) (muxcore.DeleteResult, error) {
	if err := s.prefix.Begin(ctx, muxcore.OpDelete, key); err != nil {
		return muxcore.DeleteResult{}, err
	}
	for races := 1; ; races++ {
		f, err := s.head(ctx, muxcore.OpDelete, key)
		if err != nil && (muxcore.CodeOf(err) != muxcore.CodeDenied || !opts.Conditions.Empty()) {
			return muxcore.DeleteResult{}, err
		}
		c := call{op: muxcore.OpDelete, key: key, method: http.MethodDelete}
		if !opts.Conditions.Empty() {
			if err := checkWrite(muxcore.OpDelete, key, &opts.Conditions, &f); err != nil {
				return muxcore.DeleteResult{}, err
			}
			if err := s.checkHonours(ctx, muxcore.OpDelete, key, kindDelete); err != nil {
				return muxcore.DeleteResult{}, muxcore.At(muxcore.OpDelete, key, err)
			}
			c.header = guardFor(&f)
		}
		_, err = s.finish(ctx, &c)
		switch {
		case err == nil:
			return muxcore.DeleteResult{}, nil
		case c.header == nil || !raced(err):
			return muxcore.DeleteResult{}, err
		case races == maxRaces:
			return muxcore.DeleteResult{}, lost(muxcore.OpDelete, key, &f)
		}
	}
}

// brokeOff is the error of a call that waited until its time was over.
func brokeOff(ctx context.Context, op muxcore.Op, key string) error {
	return wire.Broke(ctx, op, key, fmt.Errorf("waiting: %w", ctx.Err()))
}
