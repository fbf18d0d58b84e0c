package wire

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"
)

var errWrite = errors.New("broken pipe")

// brokenConn fails to write after some bytes.
type brokenConn struct {
	net.Conn // nil
	written  bytes.Buffer
	room     int
}

func (c *brokenConn) Write(p []byte) (int, error) {
	n := min(len(p), c.room-c.written.Len())
	c.written.Write(p[:n])
	if n < len(p) {
		return n, errWrite
	}
	return n, nil
}

func (c *brokenConn) Close() error { return nil }

func TestAFailureToWriteIsHeldBackForTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, giveUp := range map[string]time.Duration{"and then told": time.Hour, "until the connection is given up": hearing / 2} {
			c := newConn(&brokenConn{room: 3})
			timer := time.AfterFunc(giveUp, func() { c.Close() })
			begun := time.Now()
			n, err := c.ReadFrom(iotest.OneByteReader(strings.NewReader("abcdef")))
			if n != 3 || !errors.Is(err, errWrite) {
				t.Errorf("ReadFrom = %d, %v, want 3, %v", n, err, errWrite)
			}
			if took, want := time.Since(begun), min(giveUp, hearing); took != want {
				t.Errorf("the failure is held back %s for %v, want %v", name, took, want)
			}
			timer.Stop()
			c.Close()
		}
	})
}

func TestReadFromSendsAllAndSaysWhatFailed(t *testing.T) {
	errRead := errors.New("uploader gone")
	c := newConn(&brokenConn{room: 1 << 20})
	if n, err := c.ReadFrom(strings.NewReader(strings.Repeat("x", 200_000))); n != 200_000 || err != nil {
		t.Errorf("ReadFrom = %d, %v, want 200000, nil", n, err)
	}
	if n, err := c.ReadFrom(io.MultiReader(strings.NewReader("abc"), iotest.ErrReader(errRead))); n != 3 || !errors.Is(err, errRead) {
		t.Errorf("ReadFrom of what fails = %d, %v, want 3, %v", n, err, errRead)
	}
}
