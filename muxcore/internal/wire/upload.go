package wire

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// SpoolSize is the largest body that is read before the origin is asked.
const SpoolSize = 64 << 10

// patience is how long a Put that is over waits for a read of its body that is under way.
const patience = 250 * time.Millisecond

var errTakenBack = errors.New("the body was taken back")

// Upload lends the body of a Put to the transport, which may go on reading after it has answered, and takes it back.
type Upload struct {
	ctx  context.Context // of the Put: once it has ended, the origin must not get the rest, and commit, after all
	body *muxcore.CheckedBody
	size int64

	turn  chan struct{} // holds one token: whoever has it may touch body and what follows
	all   []byte        // the whole body, once it was read
	loans int           // how often it was lent to a request

	gone     chan struct{} // closed when the body was taken back
	goneOnce sync.Once
}

// NewUpload lends a body of size bytes, -1 unknown.
func NewUpload(ctx context.Context, body *muxcore.CheckedBody, size int64) *Upload {
	u := &Upload{ctx: ctx, body: body, size: size, turn: make(chan struct{}, 1), gone: make(chan struct{})}
	u.turn <- struct{}{}
	return u
}

// take waits for the turn.
func (u *Upload) take() error {
	select {
	case <-u.gone:
		return errTakenBack
	default:
	}
	select {
	case <-u.turn:
		return nil
	case <-u.gone:
		return errTakenBack
	}
}

// Read implements io.Reader.
func (u *Upload) Read(p []byte) (int, error) { return u.read(p, nil) }

// read reads for a loan, or without one.
func (u *Upload) read(p []byte, l *loan) (int, error) {
	if err := u.take(); err != nil {
		return 0, err
	}
	if l != nil && l.n != u.loans {
		u.turn <- struct{}{}
		return 0, errTakenBack
	}
	n, err := u.body.Read(p)
	u.turn <- struct{}{}
	if ended := u.ctx.Err(); ended != nil {
		return 0, ended
	}
	return n, err
}

// loan is the body for one request. It ends when the body is lent to another one, so that what is left of the first cannot
// take bytes from the second.
type loan struct {
	u *Upload
	n int
}

// Read implements io.Reader for the transport.
func (l *loan) Read(p []byte) (int, error) { return l.u.read(p, l) }

// Close implements io.Closer. The body is not the transport's to close.
func (l *loan) Close() error { return nil }

// lend makes the body that of a new request.
func (u *Upload) lend() (*loan, error) {
	if err := u.take(); err != nil {
		return nil, err
	}
	defer func() { u.turn <- struct{}{} }()
	u.loans++
	return &loan{u, u.loans}, nil
}

// Rewinds tells whether the body can be sent, or sent again: it is at hand whole, or nobody has read of it yet. Then the
// request that has it now gets nothing of it any more.
func (u *Upload) Rewinds() bool {
	select {
	case <-u.turn:
	default:
		return false // it is being read
	}
	defer func() { u.turn <- struct{}{} }()
	if u.all == nil && u.body.Len() > 0 {
		return false
	}
	u.loans++
	return true
}

// Settle takes the body back when the Put is over: see [Upload.takeBack]. Once ctx has ended it waits less.
func (u *Upload) Settle(ctx context.Context) (whole bool, err error) {
	wait := patience
	if ctx.Err() != nil {
		wait /= 5
	}
	return u.takeBack(wait)
}

// Over ends the exchange of a Put that was answered with resp or ended with err: the body is taken back (see [Upload.Settle]), the answer
// drained, and the error is the uploader's if that is whose fault it was.
func (u *Upload) Over(ctx context.Context, key string, resp *http.Response, err error) (whole bool, _ error) {
	whole, bodyErr := u.Settle(ctx)
	if err == nil {
		Drain(resp)
	}
	if bodyErr != nil && ctx.Err() == nil {
		err = UploaderFault(key, bodyErr)
	}
	return whole, err
}

// takeBack ends the transport's reading. whole tells whether all of the body was read and found right; err is what else
// ended it. A read that is still under way after the time given is left to itself: nothing is known then.
func (u *Upload) takeBack(wait time.Duration) (whole bool, err error) {
	u.goneOnce.Do(func() { close(u.gone) })
	select {
	case <-u.turn:
	default:
		late := time.NewTimer(wait)
		defer late.Stop()
		select {
		case <-u.turn:
		case <-late.C:
			return false, nil
		}
	}
	defer func() { u.turn <- struct{}{} }()
	return u.body.Complete(), u.body.Err()
}

// Replays tells whether the body can be sent again.
func (u *Upload) Replays() bool { return u.all != nil }

// Digests that are known of a body that is complete.
func (u *Upload) Digests() muxcore.Digests { return u.body.Digests() }

// Len of a body that is complete.
func (u *Upload) Len() int64 { return u.body.Len() }

// spool reads a small body whole.
func (u *Upload) spool() error {
	if u.all != nil {
		return nil
	}
	if err := u.take(); err != nil {
		return err
	}
	defer func() { u.turn <- struct{}{} }()
	all := make([]byte, u.size, u.size+1)
	_, err := io.ReadFull(u.body, all)
	if err == nil {
		_, err = u.body.Read(all[u.size : u.size+1]) // an empty one is not found right before it was read
	}
	if !u.body.Complete() {
		return err
	}
	u.all = all
	return nil
}

// Fill reads p full, or to the end of the body, which is io.EOF and comes with what was read. After any other error p may
// still be written to.
func (u *Upload) Fill(ctx context.Context, p []byte) (int, error) {
	type filled struct {
		n   int
		err error
	}
	done := make(chan filled, 1)
	go func() {
		n, err := io.ReadFull(u, p)
		if errors.Is(err, io.ErrUnexpectedEOF) && u.complete() {
			err = io.EOF
		}
		done <- filled{n, err}
	}()
	select {
	case r := <-done:
		return r.n, r.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// complete tells whether the whole body was read and found right.
func (u *Upload) complete() bool {
	if u.take() != nil {
		return false
	}
	defer func() { u.turn <- struct{}{} }()
	return u.body.Complete()
}

// through sends req with the body.
func (u *Upload) through(t http.RoundTripper, req *http.Request) (*http.Response, error) {
	req.ContentLength = u.size
	if u.size < 0 || u.size > SpoolSize {
		lent, err := u.lend()
		if err != nil {
			return nil, err
		}
		req.Body = lent
		return t.RoundTrip(req)
	}
	if err := u.spool(); err != nil {
		return nil, err
	}
	req.Body = http.NoBody
	if u.size > 0 {
		req.Body = io.NopCloser(bytes.NewReader(u.all))
	}
	return t.RoundTrip(req)
}

// sent is what became of a request.
type sent struct {
	resp *http.Response
	err  error
}

// Send sends req with the body, for a Put of key. It does so on a goroutine, because the transport does not come back while
// it hangs in a read of the body, whatever becomes of ctx.
func (u *Upload) Send(ctx context.Context, key string, t http.RoundTripper, req *http.Request) (*http.Response, error) {
	done := make(chan sent, 1)
	var settled atomic.Bool // whoever sets it decides: the answer was in time, or it was abandoned
	go func() {
		var r sent
		r.resp, r.err = u.through(t, req) //nolint:bodyclose // by whoever takes it
		if settled.Swap(true) {
			if r.resp != nil {
				_ = r.resp.Body.Close()
			}
			return
		}
		done <- r
	}()
	var r sent
	select {
	case r = <-done:
	case <-ctx.Done():
		_, _ = u.takeBack(0)
		late := time.NewTimer(patience)
		defer late.Stop()
		select {
		case r = <-done:
		case <-late.C:
			if !settled.Swap(true) {
				return nil, Broke(ctx, muxcore.OpPut, key, ctx.Err())
			}
			r = <-done
		}
	}
	if r.err != nil {
		return nil, Broke(ctx, muxcore.OpPut, key, r.err)
	}
	return r.resp, nil
}
