package muxcore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"path"
	"slices"
	"sync"
)

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
	load := newPayload(src, size, opts.Digests)
	defer load.close()
	if err := load.spool(size); err != nil {
		return PutResult{}, err
	}
	if load.whole {
		size = int64(len(load.small))
	}
	load.identify(&opts)
	if opts.ContentType == "" { // or each backend would have its own idea of it
		opts.ContentType = mime.TypeByExtension(path.Ext(key))
	}
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
		if err := m.askDeciders(o); err != nil {
			return err
		}
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

// originReadOnly is the error of a write to a shield whose origin takes none.
func originReadOnly(o *operation) error {
	return &Error{Code: CodeReadOnly, Op: o.call.op, Key: o.call.key, Backend: o.view.all[0].Name, Err: errOriginReadOnly}
}

var errOriginReadOnly = errors.New("the origin of a shield takes no writes")

// putOne puts to one backend, the first that takes it. Another is asked only with the whole body.
func (m *Mux) putOne(ctx context.Context, o *operation, load *payload) (PutResult, error) {
	var t tally
	turn := turn{locks: m.commits, key: o.call.key}
	defer turn.end()
	if load.whole && turn.take(ctx) != nil {
		return PutResult{}, m.aborted(ctx, &o.call, 0)
	}
	n := m.memo(o)
	defer func() {
		if n != nil && len(n.done) == 0 {
			_ = n.close() // nobody has it
		}
	}()
	for b, p := m.nextReader(ctx, o); b != nil; b, p = m.nextReader(ctx, o) {
		missed := m.passed(o, b, &t)
		begin := sync.OnceValue(func() error {
			if err := m.heldBefore(ctx, o, b); err != nil {
				return err
			}
			return n.begin([]string{b.Name}, missed)
		})
		first := begin
		if !load.whole {
			first = func() error { return m.heldBefore(ctx, o, b) } // what stands against it already need not wait for the body's end
		}
		if err := first(); err != nil {
			m.settle(b, OpPut, p, ClassAbort, err)
			m.release(b)
			return PutResult{}, err
		}
		load.record(m.set.Spool, o.walk.left() > 0)
		body := load.attempt()
		body.src = turn.before(ctx, body.src, begin)
		o.call.body = body
		class := m.try(ctx, o, b, p)
		m.release(b)
		body.detach()
		if class == ClassOK {
			return m.putDone(o, b, &t, n, missed)
		}
		n.left(b, class, &o.call)
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

// passed are all that should have what b is asked to take: who was asked before, and who would have been, were it well.
func (m *Mux) passed(o *operation, b *backend, t *tally) []string {
	missed := slices.Clone(t.missed)
	for _, before := range m.preferred(o, b) {
		if !slices.Contains(missed, before.Name) {
			missed = append(missed, before.Name)
		}
	}
	return missed
}

// putDone is the result of a Put that b has taken. Those that should have had it are told of, unless they are well and the
// mode alone has passed them over.
func (m *Mux) putDone(o *operation, b *backend, t *tally, n *memo, missed []string) (PutResult, error) {
	for _, before := range m.preferred(o, b) {
		if !slices.Contains(t.missed, before.Name) && (m.set.Mode == Failover || before.drain.out() || before.writes.down.Load()) {
			t.missed = append(t.missed, before.Name)
			t.causes = append(t.causes, m.whyNot(before, OpPut))
		}
	}
	if n != nil {
		n.done, n.missed = []string{b.Name}, missed
	}
	forgot := n.close()
	t.inside(b, o.answer.missed)
	m.tellPartial(o, t)
	if forgot != nil {
		return PutResult{}, forgot
	}
	info := o.answer.info
	info.Via = Via{Backend: b.dotted(info.Via.Backend), Attempts: o.attempts}
	return PutResult{Info: info, Existed: o.answer.existed && !n.stale(b), Missed: t.missed}, nil
}

// bodyError is the error of a write whose body failed: the uploader's, whatever the reader said.
func bodyError(err error) error {
	if errors.Is(err, ErrBodyMismatch) || CodeOf(err) != "" {
		return err
	}
	return &Error{Code: CodeBodyMismatch, Op: OpPut, Err: err}
}
