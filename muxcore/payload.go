package muxcore

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io"
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
	tape  *tape // of what follows small, nil if nothing is recorded
}

// newPayload takes the body of a Put. One that was told no digest gets one on its way, unless somebody above sees to that.
func newPayload(src io.Reader, size int64, want Digests) *payload {
	l := &payload{body: CheckBody(src, size, want)}
	if size < 0 || size > spoolSize {
		l.body.compute()
	}
	return l
}

// close gives back what was recorded.
func (l *payload) close() {
	if l.tape != nil {
		l.tape.lose()
		l.tape.reel.close()
	}
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

// record makes the body one that can be sent again, as long as spool has room for it, if others may be asked for whom
// that is of use.
func (l *payload) record(spool *Spool, others bool) {
	switch {
	case l.whole:
	case l.tape != nil:
		l.tape.off = l.tape.off || !others
	case others && spool.memory.max+spool.disk.max > 0 && l.replayable():
		l.tape = &tape{reel: spool.newReel()}
	}
}

// replayable tells whether the body can be sent once more: all that was taken of it is still there.
func (l *payload) replayable() bool {
	kept := int64(len(l.small))
	if l.tape != nil {
		kept += l.tape.n
	}
	return l.whole || l.body.Len() == kept
}

// attempt is the body for one backend.
func (l *payload) attempt() *attemptBody {
	b := &attemptBody{known: l.body}
	switch {
	case l.whole:
		b.src = bytes.NewReader(l.small)
	case l.tape != nil:
		b.src = io.MultiReader(bytes.NewReader(l.small), l.tape.reader(), io.TeeReader(l.body, l.tape))
	case len(l.small) > 0:
		b.src = io.MultiReader(bytes.NewReader(l.small), l.body)
	default:
		b.src = l.body
	}
	return b
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
		if opts.Digests.SHA256 = l.body.Digests().SHA256; opts.Digests.SHA256 == nil {
			sum := sha256.Sum256(l.small)
			opts.Digests.SHA256 = sum[:]
		}
	}
	if opts.ModTime.IsZero() {
		opts.ModTime = time.Now().Round(0) // whole, so that what somebody else changes within the second shows as later
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
	branch *branch      // src, where it is one of several
	known  *CheckedBody // what knows its digests; nil: nobody does

	mu       sync.Mutex
	src      io.Reader
	err      error
	ended    bool // all of it was read
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
	switch {
	case errors.Is(err, io.EOF):
		b.ended = true
	case err != nil && !errors.Is(err, errHeldUp):
		b.err = err
	}
	return n, err
}

// Digests implements what [DigestsOf] looks for.
func (b *attemptBody) Digests() Digests {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.ended || b.detached || b.known == nil {
		return Digests{}
	}
	return b.known.Digests()
}

// given tells whether the store had all of the write, so that it may have committed it, or may yet.
func (c *call) given() bool {
	b, ok := c.body.(*attemptBody)
	if !ok || c.size == 0 {
		return true // there is nothing to give
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ended
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
func (b *attemptBody) checked() bool { return true }
