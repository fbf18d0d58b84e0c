package muxcore

import (
	"bytes"
	"crypto/md5" // Content-MD5 is what clients declare, not what anything is secured by
	"crypto/sha256"
	"crypto/sha512"
	"errors"
	"fmt"
	"hash"
	"io"
)

// maxEmptyReads is how often a body may come with neither bytes nor an end where its end is due.
const maxEmptyReads = 100

var (
	errBodyShort = errors.New("body is shorter than declared")
	errBodyLong  = errors.New("body is longer than declared")
)

// CheckedBody reads the body of a Put and holds back its end until it is known to be right: with a known length the
// last bytes come only when the digests match and nothing follows, with an unknown one io.EOF does. So a store that
// commits at the end of a body never commits a wrong one. It is not safe for concurrent use.
type CheckedBody struct {
	src  io.Reader
	size int64 // declared, -1 unknown
	n    int64 // read so far
	sums []sum
	err  error // what ended it

	beside *[largeSize]byte // what is being summed while the reader goes on
	summed chan struct{}    // closed when that is done; nil: there is none
}

type sum struct {
	name string
	hash hash.Hash
	want []byte // nil: only computed
}

// CheckBody makes body check itself against what was declared. A [*CheckedBody] is returned as it is: it
// checks already. nil is an empty body.
func CheckBody(body io.Reader, size int64, want Digests) *CheckedBody {
	if c, ok := body.(*CheckedBody); ok {
		return c
	}
	if body == nil {
		body = bytes.NewReader(nil)
	}
	c := &CheckedBody{src: body, size: size}
	if isChecked(body) {
		return c // a mux has the digests verified: the length alone is left
	}
	if want.MD5 != nil {
		c.sums = append(c.sums, sum{"MD5", md5.New(), want.MD5})
	}
	if want.SHA256 != nil {
		c.sums = append(c.sums, sum{"SHA-256", sha256.New(), want.SHA256})
	}
	if want.SHA512 != nil {
		c.sums = append(c.sums, sum{"SHA-512", sha512.New(), want.SHA512})
	}
	return c
}

// Read implements io.Reader. Errors of the source come through as they are and are kept for [CheckedBody.Err]; a body
// that is not what was declared is an [*Error] with CodeBodyMismatch.
func (c *CheckedBody) Read(p []byte) (int, error) {
	if c.err != nil {
		return 0, c.err
	}
	if c.size >= 0 && int64(len(p)) > c.size-c.n {
		p = p[:c.size-c.n]
	}
	if len(c.sums) > 0 {
		p = p[:min(len(p), largeSize)]
	}
	n, err := 0, error(nil)
	if len(p) > 0 {
		n, err = c.src.Read(p)
	}
	c.n += int64(n)
	atEnd := c.size >= 0 && c.n == c.size
	c.sum(p[:n], !atEnd && err == nil)
	switch {
	case atEnd && (err == nil || errors.Is(err, io.EOF)):
		err = c.finish(err == nil)
	case errors.Is(err, io.EOF) && c.size < 0:
		err = c.finish(false)
	case errors.Is(err, io.EOF):
		err = mismatch(errBodyShort)
	}
	if err == nil {
		return n, nil
	}
	c.endWith(err)
	if atEnd && !errors.Is(err, io.EOF) {
		n = 0 // the last bytes of a wrong body stay here
	}
	return n, err
}

// besideSize is from how many bytes on it is worth a copy and a goroutine to sum them while the caller writes and reads on.
const besideSize = 32 << 10

// sum adds p to the sums, beside what the caller does next if there is more to come. No goroutine outlives its piece.
func (c *CheckedBody) sum(p []byte, more bool) {
	if len(c.sums) == 0 {
		return
	}
	c.catchUp()
	if !more || len(p) < besideSize {
		c.write(p)
		return
	}
	if c.beside == nil {
		c.beside = larges.Get().(*[largeSize]byte)
	}
	piece, summed := c.beside[:copy(c.beside[:], p)], make(chan struct{})
	c.summed = summed
	go func() {
		defer close(summed)
		c.write(piece)
	}()
}

// catchUp waits until the sums have all that was read.
func (c *CheckedBody) catchUp() {
	if c.summed != nil {
		<-c.summed
		c.summed = nil
	}
}

// endWith keeps what ended the body, and gives back what it used.
func (c *CheckedBody) endWith(err error) {
	c.err = err
	c.catchUp()
	if c.beside != nil {
		larges.Put(c.beside)
		c.beside = nil
	}
}

func (c *CheckedBody) write(p []byte) {
	for _, s := range c.sums {
		s.hash.Write(p)
	}
}

// finish looks for bytes past the end and compares the digests; io.EOF means that all is well.
func (c *CheckedBody) finish(lookPast bool) error {
	for tries := 0; lookPast; tries++ {
		if tries == maxEmptyReads {
			return io.ErrNoProgress
		}
		var one [1]byte
		n, err := c.src.Read(one[:])
		if n > 0 {
			return mismatch(errBodyLong)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
	}
	c.catchUp()
	for _, s := range c.sums {
		if got := s.hash.Sum(nil); s.want != nil && !bytes.Equal(got, s.want) {
			return mismatch(fmt.Errorf("%s of the body is %x, declared was %x", s.name, got, s.want))
		}
	}
	return io.EOF
}

// Err is what ended the body other than its end: the uploader's fault or departure, never the store's.
func (c *CheckedBody) Err() error {
	if c.err == nil || errors.Is(c.err, io.EOF) {
		return nil
	}
	return c.err
}

// isChecked tells whether somebody above verifies the digests of a body already.
func isChecked(body io.Reader) bool {
	c, ok := body.(interface{ checked() bool })
	return ok && c.checked()
}

// compute has the SHA-256 found out while the body is read, where no digest is asked for that could stand for it and
// nobody above computes one.
func (c *CheckedBody) compute() {
	if !isChecked(c.src) && len(c.sums) == 0 && c.n == 0 {
		c.sums = append(c.sums, sum{"SHA-256", sha256.New(), nil})
	}
}

// Digests are those that are known of the body: none before it is complete.
func (c *CheckedBody) Digests() Digests {
	if !c.Complete() {
		return Digests{}
	}
	d := DigestsOf(c.src)
	for _, s := range c.sums {
		switch got := s.hash.Sum(nil); s.name {
		case "MD5":
			d.MD5 = got
		case "SHA-256":
			d.SHA256 = got
		case "SHA-512":
			d.SHA512 = got
		}
	}
	return d
}

// DigestsOf asks the body of a Put, after its end was read, for what is known of its digests, so that a store can record
// them without computing any: a mux finds out the SHA-256 of whatever it sends, once for all backends. What was declared
// is in PutOptions.Digests as well.
func DigestsOf(body io.Reader) Digests {
	if d, ok := body.(interface{ Digests() Digests }); ok {
		return d.Digests()
	}
	return Digests{}
}

// Len is the number of bytes read so far.
func (c *CheckedBody) Len() int64 { return c.n }

// Complete tells whether the whole body was read and found right.
func (c *CheckedBody) Complete() bool { return errors.Is(c.err, io.EOF) }

func mismatch(reason error) error { return &Error{Code: CodeBodyMismatch, Err: reason} }
