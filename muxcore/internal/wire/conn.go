package wire

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// hearing is how long a connection that cannot be written to any more is still listened to.
	hearing = 50 * time.Millisecond

	// settling is how long a connection that is used again may have something in it that was not read.
	settling = time.Second
)

var errUnasked = errors.New("the origin sent what it was not asked for")

// conn is a connection to an origin. An origin that refuses an upload may answer and hang up at once; net/http takes
// whichever comes first, the answer or the failure to write. So the failure is held back for a moment, or until the
// connection is given up for another reason.
//
// What an origin sends beyond its answer (a body to HEAD, more bytes than it announced) net/http may take for the answer to
// the next request on that connection. So a connection is used again only once all that came in was read: see settle.
type conn struct {
	net.Conn
	closed    chan struct{}
	closeOnce sync.Once

	reading atomic.Bool   // somebody waits for what comes in, and all before it was read
	waited  chan struct{} // holds a token when that has begun
	quiet   atomic.Bool   // between an answer and the next request: nothing may come in
}

func newConn(c net.Conn) *conn {
	return &conn{Conn: c, closed: make(chan struct{}), waited: make(chan struct{}, 1)}
}

// heard makes the connections that dial opens such ones.
func heard(dial Dial) Dial {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return newConn(c), nil
	}
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	c.reading.Store(true)
	select {
	case c.waited <- struct{}{}:
	default:
	}
	n, err := c.Conn.Read(p)
	c.reading.Store(false)
	if n > 0 && c.quiet.Load() {
		return 0, errUnasked
	}
	return n, err
}

// settle waits until all that came in was read, which is when somebody waits for more. If anything is left, net/http finds
// it meanwhile, closes the connection, and asks on another one; so it does if anything comes in before the next request.
func (c *conn) settle() {
	c.quiet.Store(true)
	if c.reading.Load() {
		return
	}
	late := time.NewTimer(settling)
	defer late.Stop()
	for !c.reading.Load() {
		select {
		case <-c.waited:
		case <-c.closed:
			return
		case <-late.C:
			_ = c.Close()
			return
		}
	}
}

// Write implements net.Conn.
func (c *conn) Write(p []byte) (int, error) {
	c.quiet.Store(false)
	n, err := c.Conn.Write(p)
	if err != nil {
		c.listen()
	}
	return n, err
}

// ReadFrom implements io.ReaderFrom: net/http sends bodies through it, and would allocate a buffer for each.
func (c *conn) ReadFrom(r io.Reader) (sent int64, err error) {
	buf := copyBuffers.Get().(*[copySize]byte)
	defer copyBuffers.Put(buf)
	for {
		n, err := r.Read(buf[:])
		if n > 0 {
			m, werr := c.Write(buf[:n])
			sent += int64(m)
			if werr != nil {
				return sent, werr
			}
		}
		if errors.Is(err, io.EOF) {
			return sent, nil
		}
		if err != nil {
			return sent, err
		}
	}
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.closeOnce.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// listen waits until the connection is closed, but no longer than a moment.
func (c *conn) listen() {
	late := time.NewTimer(hearing)
	defer late.Stop()
	select {
	case <-c.closed:
	case <-late.C:
	}
}
