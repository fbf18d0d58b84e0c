package muxcore

import "io"

// tape records a body while it is sent to one backend, so that it can be sent to another from its beginning. It is not
// safe for concurrent use.
type tape struct {
	reel   *reel
	blocks []*block
	n      int64 // bytes recorded
	off    bool  // nothing more is recorded
}

// Write implements io.Writer. Where there is no room left, the tape is lost.
func (t *tape) Write(p []byte) (int, error) {
	written := len(p)
	for len(p) > 0 && !t.off {
		if t.n%blockSize == 0 {
			t.blocks = append(t.blocks, t.reel.block())
		}
		b := t.blocks[len(t.blocks)-1]
		n := copy(b.data[b.n:], p)
		b.n += n
		t.n += int64(n)
		p = p[n:]
		if b.n < blockSize {
			break
		}
		slot, ok := t.reel.keep(b)
		if !ok {
			t.lose()
		} else if slot != noSlot {
			b.slot = slot
			t.reel.forget(b, false)
		}
	}
	return written, nil
}

// lose gives up the tape.
func (t *tape) lose() {
	t.off = true
	for _, b := range t.blocks {
		t.reel.drop(b, false)
	}
	t.blocks, t.n = nil, 0
}

// reader reads the tape from its beginning.
func (t *tape) reader() io.Reader { return &tapeReader{t: t} }

type tapeReader struct {
	t   *tape
	i   int // block
	off int
}

// Read implements io.Reader. What is recorded meanwhile is not read.
func (r *tapeReader) Read(p []byte) (int, error) {
	for r.i < len(r.t.blocks) && r.off == r.t.blocks[r.i].n {
		r.i, r.off = r.i+1, 0
	}
	if r.i >= len(r.t.blocks) {
		return 0, io.EOF
	}
	b := r.t.blocks[r.i]
	n, err := r.t.reel.read(p, b.place(), r.off)
	r.off += n
	return n, err
}
