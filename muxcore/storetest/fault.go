package storetest

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// Fault is something that goes wrong in a call. Several can be given together; where they exclude each other, the last
// one counts. The functions below make faults.
type Fault struct {
	err         error // in place of the call
	late        error // after it has done its work
	panics      any
	stall       stall
	delay       time.Duration
	ignoreRange bool
	info        []func(*muxcore.Info)
	object      []func(*muxcore.Object)

	cut     bool // the body ends at cutAt, with cutErr
	cutAt   int64
	cutErr  error
	stallAt int64 // the body stalls here, if bodyStall is set
	inBody  stall
	chunk   int           // the body yields at most so much at once,
	pause   time.Duration // after a pause
	extra   string        // the body goes on with this
	flip    int64         // the byte here is wrong, if flips is set
	flips   bool
}

type stall uint8

const (
	noStall       stall = iota
	untilContext        // ends with its context
	untilReleased       // does not notice it
)

// Fail makes the call return err without doing anything.
func Fail(err error) Fault { return Fault{err: err} }

// FailCode makes the call return an error with this code without doing anything.
func FailCode(code muxcore.Code) Fault {
	return Fail(&muxcore.Error{Code: code, Err: errors.New("by script")})
}

// FailLate makes the call do its work and then return err, as when an answer gets lost. A list yields err at its end.
func FailLate(err error) Fault { return Fault{late: err} }

// Panic makes the call panic with v.
func Panic(v any) Fault { return Fault{panics: v} }

// Stall makes the call wait, before it does anything, until its context ends or [Faulty.Release].
func Stall() Fault { return Fault{stall: untilContext} }

// Hang is a Stall that does not notice the end of its context: what an unbounded store may do.
func Hang() Fault { return Fault{stall: untilReleased} }

// Delay makes the call take its time, before it does anything.
func Delay(d time.Duration) Fault { return Fault{delay: d} }

// Cut makes the body fail with err at byte n: of a Get as it is read, of a Put as the store reads it (the store then
// fails with err and keeps what it had), of a List at entry n. A nil err is io.ErrUnexpectedEOF.
func Cut(n int64, err error) Fault {
	if err == nil {
		err = io.ErrUnexpectedEOF
	}
	return Fault{cut: true, cutAt: n, cutErr: err}
}

// CutClean lets the body end at byte n as if it were whole. A store must never do that; this one lies.
func CutClean(n int64) Fault { return Fault{cut: true, cutAt: n, cutErr: io.EOF} }

// StallBody lets the body wait at byte n until its context ends, its Close or [Faulty.Release].
func StallBody(n int64) Fault { return Fault{inBody: untilContext, stallAt: n} }

// HangBody is a StallBody that does not notice the end of its context, only its Close and Release.
func HangBody(n int64) Fault { return Fault{inBody: untilReleased, stallAt: n} }

// Drip lets the body come in pieces of at most n bytes, each after a pause.
func Drip(n int, pause time.Duration) Fault { return Fault{chunk: n, pause: pause} }

// Extra lets the body go on with more bytes than it should have. The store lies.
func Extra(more string) Fault { return Fault{extra: more} }

// Flip changes the byte at n of the body. The store lies.
func Flip(n int64) Fault { return Fault{flips: true, flip: n} }

// IgnoreRange makes a Get open the whole object, and say so.
func IgnoreRange() Fault { return Fault{ignoreRange: true} }

// WrongOffset makes a Get say that its body begins d bytes later than it does. The store lies.
func WrongOffset(d int64) Fault {
	return Answer(func(o *muxcore.Object) { o.Offset += d })
}

// WrongSize makes the store say another size than the object has, and a Get open as much more. The store lies.
func WrongSize(size int64) Fault {
	f := Answer(func(o *muxcore.Object) { o.Length += size - o.Size })
	f.info = []func(*muxcore.Info){func(i *muxcore.Info) { i.Size = size }}
	f.object[0] = func(o *muxcore.Object) { o.Length = max(0, size-o.Offset) }
	return f
}

// ETag makes the store give this ETag for what it has, as another version or another backend would.
func ETag(tag string) Fault {
	return Describe(func(i *muxcore.Info) { i.ETag, i.ETagStored = tag, false })
}

// Describe changes what the store says of the object.
func Describe(change func(*muxcore.Info)) Fault {
	return Fault{info: []func(*muxcore.Info){change}}
}

// Answer changes what Get says of what it opened.
func Answer(change func(*muxcore.Object)) Fault {
	return Fault{object: []func(*muxcore.Object){change}}
}

// together makes one fault of several.
func together(faults []Fault) Fault {
	var t Fault
	for _, f := range faults {
		t.joinCall(&f)
		t.joinBody(&f)
	}
	return t
}

func (t *Fault) joinCall(f *Fault) {
	if f.err != nil {
		t.err = f.err
	}
	if f.late != nil {
		t.late = f.late
	}
	if f.panics != nil {
		t.panics = f.panics
	}
	t.stall = max(t.stall, f.stall)
	t.delay += f.delay
	t.ignoreRange = t.ignoreRange || f.ignoreRange
	t.info = append(t.info, f.info...)
	t.object = append(t.object, f.object...)
}

func (t *Fault) joinBody(f *Fault) {
	if f.cut {
		t.cut, t.cutAt, t.cutErr = true, f.cutAt, f.cutErr
	}
	if f.inBody != noStall {
		t.inBody, t.stallAt = f.inBody, f.stallAt
	}
	if f.chunk > 0 {
		t.chunk, t.pause = f.chunk, f.pause
	}
	if f.flips {
		t.flips, t.flip = true, f.flip
	}
	t.extra += f.extra
}

// before is what happens before a call does anything.
func (t *Fault) before(ctx context.Context, f *Faulty) error {
	if t.delay > 0 {
		if err := pause(ctx, t.delay, nil); err != nil {
			return unavailable(err)
		}
	}
	if t.stall != noStall {
		if err := f.wait(ctx, t.stall, nil); err != nil {
			return unavailable(err)
		}
	}
	if t.panics != nil {
		panic(t.panics)
	}
	return t.err
}

// at is what happens to a list before entry n. io.EOF ends it as if it were whole.
func (t *Fault) at(ctx context.Context, f *Faulty, n int64) error {
	if t.cut && n >= t.cutAt {
		return t.cutErr
	}
	if t.chunk > 0 && n%int64(t.chunk) == 0 {
		if err := pause(ctx, t.pause, nil); err != nil {
			return unavailable(err)
		}
	}
	if t.inBody != noStall && n == t.stallAt {
		if err := f.wait(ctx, t.inBody, nil); err != nil {
			return unavailable(err)
		}
	}
	return nil
}

// shapesBody tells whether a body is not just what it is.
func (t *Fault) shapesBody() bool {
	return t.cut || t.inBody != noStall || t.chunk > 0 || t.extra != "" || t.flips
}

func unavailable(err error) error { return &muxcore.Error{Code: muxcore.CodeUnavailable, Err: err} }

// pause waits for d, the end of ctx or of closed.
func pause(ctx context.Context, d time.Duration, closed <-chan struct{}) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-closed:
		return io.ErrClosedPipe
	case <-ctx.Done():
		return ctx.Err()
	}
}

// wait stalls until Release, closed, or the end of ctx unless it is not noticed.
func (f *Faulty) wait(ctx context.Context, s stall, closed <-chan struct{}) error {
	f.mu.Lock()
	released := f.released
	f.stalled++
	f.notify()
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.stalled--
		f.notify()
	}()
	done := ctx.Done()
	if s == untilReleased {
		done = nil
	}
	select {
	case <-released:
		return nil
	case <-closed:
		return io.ErrClosedPipe
	case <-done:
		return ctx.Err()
	}
}
