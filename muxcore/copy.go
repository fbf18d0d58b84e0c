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

	// errAltered is why a repair leaves alone what nobody has a copy of that was not altered.
	errAltered = errors.New("altered without asking us, and no other copy is known to be good: name the backend to go by as the truth")
)

// copyRules say what must hold for a copy between two backends. The zero value copies what is there over what is there.
type copyRules struct {
	source *Info      // the version to copy, as the source described it; nil: whatever it holds
	target Conditions // what the target must hold, decided by itself
	force  bool       // ask backends in their cooldown as well
	intact bool       // a source that was altered since it was put is not copied

	// still is asked under the lock of the key, when the whole body is there and right and before the target may
	// commit. An error ends the copy, and changes nothing. nil: nothing is asked.
	still func(ctx context.Context, copied *Info) error

	// late is called where the target was given all of the object, and did not say what became of it. nil: nothing is.
	late func()

	// stored is called under the same lock, once the target has committed. nil: nothing is.
	stored func()

	// lock takes the lock under which still and the commit run. nil: that of the target's commits.
	lock func(ctx context.Context, key string) (unlock func(), err error)
}

// copyTo copies the object at key from one backend to another, as it is: attributes, identity where the source's was
// stored, modification time, and digests, which are verified on the way, as its length is. The body streams. The calls
// count for the health of both backends like any other, with their timeouts. An error tells by its Op whose it is: OpGet
// the source's, OpPut the target's; those of still come as they are. The caller must not hold the lock of the key.
func (m *Mux) copyTo(ctx context.Context, key string, from, to *backend, rules copyRules) (PutResult, error) {
	return copyObject(ctx, key, &seat{m: m, b: from}, &seat{m: m, b: to}, rules)
}

// copyObject is copyTo between backends anywhere in a tree.
func copyObject(ctx context.Context, key string, from, to *seat, rules copyRules) (PutResult, error) {
	c := &copying{key: key, from: from, to: to, rules: rules}
	defer c.end()
	if err := c.open(ctx); err != nil {
		return PutResult{}, err
	}
	return c.put(ctx)
}

// copying is one copy under way.
type copying struct {
	key      string
	from, to *seat
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
	p, err := c.from.admit(ctx, OpGet, c.key, c.rules.force)
	if err != nil {
		return err
	}
	o := c.from.m.aside(OpGet, c.key)
	if c.from.m.try(ctx, o, c.from.b, p) != ClassOK {
		c.from.release()
		if c.rules.source != nil && isMiss(o.answer.err) {
			return errChanged
		}
		return c.fault(ctx, c.from, o, o.answer.err)
	}
	obj := o.answer.obj
	c.opened, c.info, c.head = true, obj.Info, o.answer.head
	c.src = newSource(o.answer.stream, nil)
	switch {
	case obj.Offset != 0, obj.Size >= 0 && obj.Length != obj.Size:
		return c.from.fault(OpGet, c.key, &Error{Code: CodeUnavailable, Err: errors.New("a part came in place of the whole")})
	case c.rules.source != nil && !sameVersion(c.rules.source, &obj.Info):
		return errChanged
	case c.rules.intact && obj.resized():
		return c.from.fault(OpGet, c.key, &Error{Code: CodeBodyMismatch, Err: errCorrupt})
	}
	want := obj.Digests
	if r := obj.Record; r != nil && (c.rules.intact || !r.Noticed) {
		want = want.Or(r.Digests)
	}
	c.body = CheckBody(readerFunc(c.read), obj.Length, want)
	return nil
}

// put stores the object at the target.
func (c *copying) put(ctx context.Context) (PutResult, error) {
	p, err := c.to.admit(ctx, OpPut, c.key, c.rules.force)
	if err != nil {
		return PutResult{}, err
	}
	defer c.to.release()
	if c.body.size == 0 { // a store may not look at a body that it knows to be empty
		if err := c.turn(ctx); err != nil {
			c.to.m.settle(c.to.b, OpPut, p, ClassAbort, err)
			return PutResult{}, err
		}
	}
	o := c.to.m.aside(OpPut, c.key)
	o.call.size = c.body.size
	as := &c.info
	if r := as.Record; r != nil && !r.Noticed && !r.Digests.Empty() { // it is what is recorded, or the copy fails
		as = &r.Info
	}
	o.call.put = PutOptions{Attributes: as.Attributes, ModTime: as.ModTime, Digests: as.Digests, Conditions: c.rules.target}
	if as.ETagStored {
		o.call.put.ETag = as.ETag
	}
	c.body.compute() // or nobody could tell later whether it was altered
	body := &attemptBody{src: readerFunc(func(p []byte) (int, error) { return c.pour(ctx, p) }), known: c.body}
	o.call.body = body
	class := c.to.m.try(ctx, o, c.to.b, p)
	body.detach()
	switch {
	case class == ClassOK:
		if c.rules.stored != nil {
			c.rules.stored()
		}
		return PutResult{Info: o.answer.info, Existed: o.answer.existed, Missed: o.answer.missed}, nil
	case c.rules.late != nil && class.leavesOpen() && c.taken && c.stop == nil:
		c.rules.late()
	}
	switch {
	case ctx.Err() == nil && c.stop != nil:
		return PutResult{}, c.stop
	case ctx.Err() == nil && c.body.Err() != nil:
		return PutResult{}, c.broken(ctx)
	}
	return PutResult{}, c.fault(ctx, c.to, o, o.answer.err)
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
	if late := c.to.m.pace.wait(ctx, n); late != nil {
		return 0, late
	}
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
		lock = c.to.lock
	}
	if c.unlock, c.stop = lock(ctx, c.key); c.stop == nil && c.rules.still != nil {
		c.stop = c.rules.still(ctx, &c.info)
	}
	return c.stop
}

// broken is the error of a copy whose source broke off.
func (c *copying) broken(ctx context.Context) error {
	err := c.body.Err()
	switch {
	case errors.Is(err, errBodyShort), errors.Is(err, errBodyLong):
		err = &Error{Code: CodeUnavailable, Err: err} // the source's, not an uploader's
	case errors.Is(err, ErrBodyMismatch):
		return c.from.fault(OpGet, c.key, &Error{Code: CodeBodyMismatch, Err: fmt.Errorf("%w: %w", errCorrupt, err)})
	}
	c.src.blame(ctx, c.from.m, err)
	return c.from.fault(OpGet, c.key, err)
}

// end closes what is open.
func (c *copying) end() {
	if c.unlock != nil {
		c.unlock()
	}
	if c.opened {
		c.src.end(c.from.m)
		c.head.drop()
		c.from.leave()
	}
}

// fault says whose error it is, unless the caller gave up.
func (c *copying) fault(ctx context.Context, s *seat, o *operation, err error) error {
	if ctx.Err() != nil {
		return s.m.aborted(ctx, &o.call, o.attempts)
	}
	return s.fault(o.call.op, c.key, err)
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
