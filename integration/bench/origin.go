package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
)

// origin serves the objects to the sites that proxy them: over HTTP/1.1, with
// as little work as may be, and in this process, so that what is measured in
// Caddy is what Caddy does.
type origin struct {
	ln      net.Listener
	answers map[string][]byte // by path: the head, and the body unless it is of zeros
	zeros   map[string]int64  // bytes of such a body
	wg      sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]bool
}

func newOrigin(objects []object) (*origin, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	o := &origin{ln: ln, answers: make(map[string][]byte), zeros: make(map[string]int64), conns: make(map[net.Conn]bool)}
	for _, one := range objects {
		head := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nETag: \"%s\"\r\n"+
			"Last-Modified: Mon, 30 Nov 2026 00:00:00 GMT\r\nAccept-Ranges: bytes\r\nContent-Length: %d\r\n\r\n", one.name, one.size)
		o.answers[one.path()] = append([]byte(head), one.body...)
		if one.body == nil {
			o.zeros[one.path()] = int64(one.size)
		}
	}
	o.wg.Go(o.accept)
	return o, nil
}

func (o *origin) addr() string { return o.ln.Addr().String() }

func (o *origin) accept() {
	for {
		conn, err := o.ln.Accept()
		if err != nil {
			return
		}
		o.mu.Lock()
		o.conns[conn] = true
		o.mu.Unlock()
		o.wg.Go(func() { _ = o.serve(conn) })
	}
}

func (o *origin) stop() {
	_ = o.ln.Close()
	o.mu.Lock()
	for conn := range o.conns {
		_ = conn.Close()
	}
	o.mu.Unlock()
	o.wg.Wait()
}

var errNoGet = errors.New("no GET of an object")

// serve answers one request after the other.
func (o *origin) serve(conn net.Conn) error {
	defer func() {
		_ = conn.Close()
		o.mu.Lock()
		delete(o.conns, conn)
		o.mu.Unlock()
	}()
	for br := bufio.NewReaderSize(conn, 16<<10); ; {
		path, err := readRequest(br)
		if err != nil {
			return err
		}
		answer, ok := o.answers[path]
		if !ok {
			return errNoGet
		}
		if _, err := conn.Write(answer); err != nil {
			return err
		}
		if n := o.zeros[path]; n > 0 {
			if _, err := io.CopyN(conn, zeros{}, n); err != nil {
				return err
			}
		}
	}
}

// readRequest reads the head of a GET and returns its path.
func readRequest(br *bufio.Reader) (string, error) {
	line, err := br.ReadSlice('\n')
	if err != nil {
		return "", err
	}
	words := bytes.Fields(line)
	if len(words) != 3 || string(words[0]) != "GET" {
		return "", errNoGet
	}
	path := string(words[1])
	for {
		line, err := br.ReadSlice('\n')
		if err != nil {
			return "", err
		}
		if len(bytes.TrimRight(line, "\r\n")) == 0 {
			return path, nil
		}
	}
}

// zeros never ends.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
