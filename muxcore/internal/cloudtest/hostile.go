package cloudtest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/muxcore/internal/wire"
)

const (
	// Between stands between the answers of a hostile service's script.
	Between = "\n====\n"

	mostAsked = 100      // requests to one hostile service
	mostTaken = 40 << 20 // bytes of one answer that does not end
)

var errAskedEnough = errors.New("the service was asked often enough")

// Hostile is a service that plays a script in place of answering: the nth request gets the nth text, byte for byte, and all
// after the last get the last. Endless ones go on with their last bytes for as long as anybody reads.
//
// It listens nowhere: what it says passes through the transport that stores have, over connections in memory.
type Hostile struct {
	*http.Transport

	// Context is what to call the store with. It ends when the service was asked too often.
	Context context.Context

	cancel  context.CancelCauseFunc
	answers [][]byte
	endless bool
	asked   atomic.Int64
	taken   atomic.Int64 // the most of one answer
	serving sync.WaitGroup
}

// NewHostile makes one. It must be closed when nothing uses it any more.
func NewHostile(tb testing.TB, script []byte, endless bool) *Hostile {
	h := &Hostile{answers: bytes.Split(script, []byte(Between)), endless: endless}
	h.Context, h.cancel = context.WithCancelCause(tb.Context())
	h.Transport = wire.NewTransportOver(h.dial, nil)
	h.Proxy = nil
	return h
}

// Close waits until all connections have ended.
func (h *Hostile) Close() {
	h.CloseIdleConnections()
	h.cancel(nil)
	h.serving.Wait()
}

// AskedEnough tells whether the script was played until nobody listened any more.
func (h *Hostile) AskedEnough() bool { return errors.Is(context.Cause(h.Context), errAskedEnough) }

// Flooded tells whether somebody read on and on in an answer that does not end.
func (h *Hostile) Flooded() bool { return h.taken.Load() >= mostTaken }

func (h *Hostile) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	ours, theirs := net.Pipe()
	h.serving.Go(func() { h.serve(ours) })
	return theirs, nil
}

// serve plays an answer for each request of a connection, until one of the two hangs up.
func (h *Hostile) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(h.Context, func() { _ = conn.Close() })
	defer stop()
	in := bufio.NewReader(conn)
	for {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		n := h.asked.Add(1)
		if n > mostAsked {
			h.cancel(errAskedEnough)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		if !h.play(conn, h.answers[min(int(n), len(h.answers))-1]) {
			return
		}
	}
}

// play writes an answer, and tells whether to listen on. One whose length nobody can tell ends with the connection.
func (h *Hostile) play(conn net.Conn, answer []byte) bool {
	if _, err := conn.Write(answer); err != nil {
		return false
	}
	if !h.endless || len(answer) == 0 {
		return bytes.Contains(answer, []byte("keep-alive"))
	}
	tail := bytes.Repeat(answer[max(0, len(answer)-40):], 1000)
	for sent := int64(len(answer)); sent < mostTaken; sent += int64(len(tail)) {
		if _, err := conn.Write(tail); err != nil {
			return false
		}
		h.taken.Store(max(h.taken.Load(), sent+int64(len(tail))))
	}
	return false
}
