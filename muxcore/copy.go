package muxcore

import (
	"context"
	"errors"
	"fmt"
)

var (
	// errChanged is why a copy was given up that would have been out of date.
	errChanged = errors.New("the object has changed meanwhile")

	// errCorrupt is why a copy was given up whose source is not what its own record says.
	errCorrupt = errors.New("the bytes do not match what is recorded of them")
)

// copyRules say what must hold for a copy between two backends. The zero value copies what is there over what is there.
type copyRules struct {
	source *Info      // the version to copy, as the source described it; nil: whatever it holds
	target Conditions // what the target must hold, decided by itself
	force  bool       // ask backends in their cooldown as well

	// still is asked under the lock of the key, when the whole body is there and right and before the target may
	// commit. An error ends the copy, and changes nothing. nil: nothing is asked.
	still func(ctx context.Context, copied *Info) error

	// lock takes the lock under which still and the commit run. nil: that of the key's commits.
	lock func(ctx context.Context) (unlock func(), err error)
}

// copyTo copies the object at key from one backend to another, as it is: attributes, identity where the source's was
// stored, modification time, and digests, which are verified on the way, as its length is. The body streams. The calls count for the health
// of both backends like any other, with their timeouts. An error tells by its Op whose it is: OpGet the source's, OpPut the
// target's; those of still come as they are. The caller must not hold the lock of the key.
func (m *Mux) copyTo(ctx context.Context, key string, from, to *backend, rules copyRules) (PutResult, error) {
	c := &copying{m: m, key: key, from: from, to: to, rules: rules}
	defer c.end()
	if err := c.open(ctx); err != nil {
		return PutResult{}, err
	}
	return c.put(ctx)
}

// copying is one copy under way.
type copying struct {
	m        *Mux
	key      string
	from, to *backend
	rules    copyRules

	opened bool
	info   Info
	src    source
	head   head
	body   *CheckedBody // of src

	taken  bool // it is the copy's turn, or cannot be
	stop   error
	unlock func()
}

// open opens the object at the source.
func (c *copying) open(ctx context.Context) error {
	p, ok := c.m.admit(c.from, OpGet, c.rules.force)
	if !ok {
		return c.fault(OpGet, c.from, c.m.whyNot(c.from, OpGet))
	}
	o := c.m.aside(OpGet, c.key)
	if c.m.try(ctx, o, c.from, p) != ClassOK {
		c.m.release(c.from)
		return c.fault(OpGet, c.from, o.answer.err)
	}
	obj := o.answer.obj
	c.opened, c.info, c.head = true, obj.Info, o.answer.head
	c.src = newSource(c.from, o.answer.stream, nil)
	switch {
	case obj.Offset != 0, obj.Size >= 0 && obj.Length != obj.Size:
		return c.fault(OpGet, c.from, &Error{Code: CodeUnavailable, Err: errors.New("a part came in place of the whole")})
	case c.rules.source != nil && !sameVersion(c.rules.source, &obj.Info):
		return errChanged
	}
	c.body = CheckBody(readerFunc(c.read), obj.Length, obj.Digests)
	return nil
}

// put stores the object at the target.
func (c *copying) put(ctx context.Context) (PutResult, error) {
	p, ok := c.m.admit(c.to, OpPut, c.rules.force)
	if !ok {
		return PutResult{}, c.fault(OpPut, c.to, c.m.whyNot(c.to, OpPut))
	}
	defer c.m.release(c.to)
	if c.body.size == 0 { // a store may not look at a body that it knows to be empty
		if err := c.turn(ctx); err != nil {
			c.m.settle(c.to, OpPut, p, ClassAbort, err)
			return PutResult{}, err
		}
	}
	o := c.m.aside(OpPut, c.key)
	o.call.size = c.body.size
	o.call.put = PutOptions{Attributes: c.info.Attributes, ModTime: c.info.ModTime, Digests: c.info.Digests, Conditions: c.rules.target}
	if c.info.ETagStored {
		o.call.put.ETag = c.info.ETag
	}
	body := &attemptBody{src: readerFunc(func(p []byte) (int, error) { return c.pour(ctx, p) })}
	o.call.body = body
	class := c.m.try(ctx, o, c.to, p)
	body.detach()
	switch {
	case class == ClassOK:
		return PutResult{Info: o.answer.info, Existed: o.answer.existed, Missed: o.answer.missed}, nil
	case ctx.Err() != nil:
		return PutResult{}, c.m.aborted(ctx, &o.call, o.attempts)
	case c.stop != nil:
		return PutResult{}, c.stop
	case c.body.Err() != nil:
		return PutResult{}, c.broken(ctx)
	}
	return PutResult{}, c.fault(OpPut, c.to, o.answer.err)
}

// read reads from the source.
func (c *copying) read(p []byte) (int, error) {
	if c.head.left() > 0 {
		n := copy(p, c.head.buf[c.head.off:c.head.n])
		c.head.off += n
		return n, nil
	}
	return c.src.read(p)
}

// pour gives the body to the target, and its end only when it is the copy's turn.
func (c *copying) pour(ctx context.Context, p []byte) (int, error) {
	n, err := c.body.Read(p)
	if c.body.Complete() {
		if stop := c.turn(ctx); stop != nil {
			return 0, stop
		}
	}
	return n, err
}

// turn waits for the key's lock and asks whether the copy is still what it should be.
func (c *copying) turn(ctx context.Context) error {
	if c.taken {
		return c.stop
	}
	c.taken = true
	lock := c.rules.lock
	if lock == nil {
		lock = func(ctx context.Context) (func(), error) { return c.m.commits.lock(ctx, c.key) }
	}
	if c.unlock, c.stop = lock(ctx); c.stop == nil && c.rules.still != nil {
		c.stop = c.rules.still(ctx, &c.info)
	}
	return c.stop
}

// broken is the error of a copy whose source broke off.
func (c *copying) broken(ctx context.Context) error {
	err := c.body.Err()
	if errors.Is(err, ErrBodyMismatch) && !errors.Is(err, errBodyShort) && !errors.Is(err, errBodyLong) {
		return c.fault(OpGet, c.from, &Error{Code: CodeBodyMismatch, Err: fmt.Errorf("%w: %w", errCorrupt, err)})
	}
	if errors.Is(err, ErrBodyMismatch) {
		err = &Error{Code: CodeUnavailable, Err: err} // the source's, not an uploader's
	}
	c.src.blame(ctx, c.m, err)
	return c.fault(OpGet, c.from, err)
}

// end closes what is open.
func (c *copying) end() {
	if c.unlock != nil {
		c.unlock()
	}
	if c.opened {
		c.src.end(c.m)
		c.head.drop()
	}
}

// fault says whose error it is.
func (c *copying) fault(op Op, b *backend, err error) error {
	return c.m.annotate(err, &call{op: op, key: c.key}, b, 1)
}

// aside is an operation on backends that were chosen otherwise than by the mode.
func (m *Mux) aside(op Op, key string) *operation {
	return &operation{call: call{op: op, key: key}, walk: walk{m: m, p: &pool{}}}
}

// statOn asks one backend for the object. The error is the backend's, annotated.
func (m *Mux) statOn(ctx context.Context, b *backend, key string, force bool) (Info, error) {
	o := m.aside(OpStat, key)
	if err := m.ask(ctx, o, b, force); err != nil {
		return Info{}, err
	}
	return o.answer.info, nil
}

// deleteOn deletes the object on one backend.
func (m *Mux) deleteOn(ctx context.Context, b *backend, key string, cond Conditions, force bool) error {
	o := m.aside(OpDelete, key)
	o.call.del.Conditions = cond
	return m.ask(ctx, o, b, force)
}

// ask makes the operation's call on one backend.
func (m *Mux) ask(ctx context.Context, o *operation, b *backend, force bool) error {
	p, ok := m.admit(b, o.call.op, force)
	if !ok {
		return m.annotate(m.whyNot(b, o.call.op), &o.call, b, 0)
	}
	defer m.release(b)
	switch class := m.try(ctx, o, b, p); class { //nolint:exhaustive // all others are errors
	case ClassOK:
		return nil
	case ClassAbort:
		return m.aborted(ctx, &o.call, o.attempts)
	}
	return m.annotate(o.answer.err, &o.call, b, o.attempts)
}

// sameVersion tells whether two looks at an object of one backend saw the same, as far as both tell.
func sameVersion(a, b *Info) bool {
	switch {
	case a.Size >= 0 && b.Size >= 0 && a.Size != b.Size, a.ETag != "" && b.ETag != "" && a.ETag != b.ETag:
		return false
	case a.ModTime.IsZero() || b.ModTime.IsZero():
		return true
	}
	return a.ModTime.Unix() == b.ModTime.Unix()
}
