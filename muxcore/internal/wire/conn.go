package wire

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// hearing is how long a connection that cannot be written to any more is still listened to.
const hearing = 50 * time.Millisecond

// conn is a connection to an origin. An origin that refuses an upload may answer and hang up at once; net/http takes
// whichever comes first, the answer or the failure to write. So the failure is held back for a moment, or until the
// connection is given up for another reason.
type conn struct {
	net.Conn
	closed    chan struct{}
	closeOnce sync.Once
}

// dial makes a dialer's connections such ones.
func dial(d *net.Dialer) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := d.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &conn{Conn: c, closed: make(chan struct{})}, nil
	}
}

// Write implements net.Conn.
func (c *conn) Write(p []byte) (int, error) {
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
