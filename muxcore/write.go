package muxcore

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"
)

// spoolSize is the largest body that is read before a backend is asked, so that it can be sent again and named by its digest.
const spoolSize = 64 << 10

// payload is the body of a Put on its way to backends.
type payload struct {
	body  *CheckedBody
	small []byte // the whole body, if it was read; then body is not used any more
	whole bool
}

// Put implements [Store]. Outside the modes that fan out it goes to one backend, chosen as for a read.
func (m *Mux) Put(ctx context.Context, key string, src io.Reader, size int64, opts PutOptions) (PutResult, error) {
	if err := m.CheckKey(key); err != nil {
		return PutResult{}, err
	}
	ctx, span := m.startSpan(ctx, OpPut, key)
	defer endSpan(span)
	o := m.begin(OpPut, key)
	defer o.end()
	if err := m.canPut(ctx, o, &opts); err != nil {
		return PutResult{}, err
	}
	load := &payload{body: CheckBody(src, size, opts.Digests)}
	if err := load.spool(size); err != nil {
		return PutResult{}, err
	}
	if load.whole {
		size = int64(len(load.small))
	}
	load.identify(&opts)
	o.call.put, o.call.size = opts, size
	if m.mode.fanout {
		return m.putAll(ctx, o, load)
	}
	return m.putOne(ctx, o, load)
}

// canPut refuses what no backend could take, before the body is asked for.
func (m *Mux) canPut(ctx context.Context, o *operation, opts *PutOptions) error {
	if !o.view.canWrite {
		return &Error{Code: CodeReadOnly, Op: OpPut, Key: o.call.key}
	}
	if !opts.Conditions.Empty() {
		o.walk.p = conditional(o.walk.p)
		if len(o.walk.p.members) == 0 {
			return &Error{Code: CodeUnsupported, Op: OpPut, Key: o.call.key, Err: errNoConditions}
		}
		o.walk.inOrder = m.set.Mode != StickyByKey // there, the key's own backend decides
	}
	if m.mode.fanout {
		return m.canFanOut(ctx, o)
	}
	if len(o.walk.p.ready)+len(o.walk.p.backups) == 0 && !m.set.LastResort {
		return m.exhausted(ctx, o)
	}
	return nil
}

// canFanOut refuses a Put that cannot reach its quorum, or whose decider is away.
func (m *Mux) canFanOut(ctx context.Context, o *operation) error {
	up, now := 0, m.set.Now()
	for _, b := range o.view.writers {
		if b.writes.eligible(now) {
			up++
		}
	}
	origin := o.view.all[0]
	switch {
	case m.mode.origin && !origin.writable():
		return originReadOnly(o)
	case m.mode.origin && origin.drain.out(), len(o.view.writers) == 0:
		return m.exhausted(ctx, o)
	case m.set.LastResort:
		return nil
	case up == 0, m.mode.origin && !origin.writes.eligible(now):
		return m.exhausted(ctx, o)
	case up < m.quorum(o):
		return &Error{
			Code: CodeWriteFanoutPartial, Op: OpPut, Key: o.call.key,
			Err: fmt.Errorf("write_quorum: %d backends are needed, %d are up", m.quorum(o), up),
		}
	}
	return nil
}

var errNoConditions = errors.New("no backend can write conditionally")

// originReadOnly is the error of a write to a shield whose origin takes none.
func originReadOnly(o *operation) error {
	return &Error{Code: CodeReadOnly, Op: o.call.op, Key: o.call.key, Backend: o.view.all[0].Name, Err: errOriginReadOnly}
}

var errOriginReadOnly = errors.New("the origin of a shield takes no writes")

// conditional is the part of p that can write conditionally.
func conditional(p *pool) *pool {
	only := func(all []*backend) (some []*backend) {
		for _, b := range all {
			if b.abilities().ConditionalWrite {
				some = append(some, b)
			}
		}
		return some
	}
	return &pool{members: only(p.members), ready: only(p.ready), backups: only(p.backups)}
}

// putOne puts to one backend, the first that takes it. Another is asked only with the whole body.
func (m *Mux) putOne(ctx context.Context, o *operation, load *payload) (PutResult, error) {
	var t tally
	turn := turn{locks: &m.commits, key: o.call.key}
	defer turn.end()
	if load.whole && turn.take(ctx) != nil {
		return PutResult{}, m.aborted(ctx, &o.call, 0)
	}
	for b, p := m.nextReader(ctx, o); b != nil; b, p = m.nextReader(ctx, o) {
		body := load.attempt()
		body.src = turn.before(ctx, body.src)
		o.call.body = body
		class := m.try(ctx, o, b, p)
		m.release(b)
		body.detach()
		if class == ClassOK {
			return m.putDone(o, b, &t), nil
		}
		if err := body.failed(); err != nil {
			if ctx.Err() != nil {
				return PutResult{}, m.aborted(ctx, &o.call, o.attempts)
			}
			return PutResult{}, bodyError(err)
		}
		if !m.goesOn(o, b, class) {
			return PutResult{}, m.final(ctx, o, b, class)
		}
		if !load.replayable() {
			return PutResult{}, m.annotate(o.answer.err, &o.call, b, o.attempts)
		}
		t.missed = append(t.missed, b.Name)
		t.causes = append(t.causes, o.answer.err)
	}
	return PutResult{}, m.exhausted(ctx, o)
}

// putDone is the result of a Put that b has taken. Those that should have had it are told of: who was asked before, and in
// failover who stands before b and was left alone.
func (m *Mux) putDone(o *operation, b *backend, t *tally) PutResult {
	if m.set.Mode == Failover {
		for _, before := range o.walk.p.members[:slices.Index(o.walk.p.members, b)] {
			if !slices.Contains(t.missed, before.Name) {
				t.missed = append(t.missed, before.Name)
				t.causes = append(t.causes, m.whyNot(before, OpPut))
			}
		}
	}
	t.inside(b, o.answer.missed)
	m.tellPartial(o, t)
	info := o.answer.info
	info.Via = Via{Backend: b.dotted(info.Via.Backend), Attempts: o.attempts}
	return PutResult{Info: info, Existed: o.answer.existed, Missed: t.missed}
}

// bodyError is the error of a write whose body failed: the uploader's, whatever the reader said.
func bodyError(err error) error {
	if errors.Is(err, ErrBodyMismatch) || CodeOf(err) != "" {
		return err
	}
	return &Error{Code: CodeBodyMismatch, Op: OpPut, Err: err}
}

// spool reads the body if it is small: all of it if it ends within spoolSize.
func (l *payload) spool(size int64) error {
	if size > spoolSize {
		return nil
	}
	room := int64(spoolSize)
	if size >= 0 {
		room = size
	}
	buf := bytes.NewBuffer(make([]byte, 0, min(room, 4<<10)))
	_, err := io.CopyN(buf, l.body, room)
	l.small = buf.Bytes()
	switch {
	case err == nil && size < 0:
		return l.endsHere()
	case err == nil || errors.Is(err, io.EOF):
		return l.complete()
	}
	return bodyError(err)
}

// complete checks the end of a body that was read whole.
func (l *payload) complete() error {
	if _, err := l.body.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		return bodyError(err)
	}
	l.whole = true
	return nil
}

// endsHere tells a body of unknown length that just fits from one that goes on.
func (l *payload) endsHere() error {
	var one [1]byte
	n, err := io.ReadFull(l.body, one[:])
	l.small = append(l.small, one[:n]...)
	l.whole = errors.Is(err, io.EOF)
	if err != nil && !l.whole {
		return bodyError(err)
	}
	return nil
}

// replayable tells whether the body can be sent once more: nobody was given more of it than was read before.
func (l *payload) replayable() bool { return l.whole || l.body.Len() == int64(len(l.small)) }

// attempt is the body for one backend.
func (l *payload) attempt() *attemptBody {
	if l.whole {
		return &attemptBody{src: bytes.NewReader(l.small)}
	}
	if len(l.small) > 0 {
		return &attemptBody{src: io.MultiReader(bytes.NewReader(l.small), l.body)}
	}
	return &attemptBody{src: l.body}
}

// stream is the body, from its beginning, for all backends together.
func (l *payload) stream() *CheckedBody {
	switch {
	case l.whole:
		return CheckBody(bytes.NewReader(l.small), int64(len(l.small)), Digests{})
	case len(l.small) > 0:
		return CheckBody(io.MultiReader(bytes.NewReader(l.small), l.body), -1, Digests{})
	}
	return l.body
}

// identify gives the object its identity before its first byte reaches a backend: the declared digest, or that of a body
// at hand, else a random token of 128 bits.
func (l *payload) identify(opts *PutOptions) {
	if l.whole && opts.Digests.SHA256 == nil {
		sum := sha256.Sum256(l.small)
		opts.Digests.SHA256 = sum[:]
	}
	if opts.ModTime.IsZero() {
		opts.ModTime = time.Now().Truncate(time.Second)
	}
	if opts.ETag != "" {
		return
	}
	var name string
	switch d := &opts.Digests; {
	case d.SHA256 != nil:
		name = base64.RawURLEncoding.EncodeToString(d.SHA256)
	case d.SHA512 != nil:
		name = base64.RawURLEncoding.EncodeToString(d.SHA512)
	case d.MD5 != nil:
		name = hex.EncodeToString(d.MD5)
	default:
		var token [16]byte
		_, _ = rand.Read(token[:]) // never fails
		name = hex.EncodeToString(token[:])
	}
	opts.ETag = `"` + name + `"`
}

// attemptBody is a body as one backend sees it: it ends for that backend when the attempt does, and its reads are the
// uploader's time.
type attemptBody struct {
	watch  *watch
	branch *branch // src, where it is one of several

	mu       sync.Mutex
	src      io.Reader
	err      error
	detached bool
}

var errDetached = errors.New("read of a body after the attempt has ended")

// Read implements io.Reader.
func (b *attemptBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.detached {
		return 0, errDetached
	}
	if b.watch != nil {
		b.watch.pause()
		defer b.watch.wait()
	}
	n, err := b.src.Read(p)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, errHeldUp) {
		b.err = err
	}
	return n, err
}

// failed is the error with which the body itself ended.
func (b *attemptBody) failed() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}

// detach ends the body for a backend that is still reading. It returns when no read is under way.
func (b *attemptBody) detach() {
	if b.branch != nil {
		b.branch.leave()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.detached = true
}

// checked says that the mux verifies the digests already.
func (b *attemptBody) checked() {}
