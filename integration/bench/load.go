package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// load asks for one object over several connections, each of which asks again
// as soon as it has its answer. It speaks just enough HTTP/1.1 to cost little
// beside the server that is measured.
type load struct {
	addr   string
	object object
	conns  int
	span   time.Duration
}

// answerWithin bounds a measurement in which the server hangs.
const answerWithin = 30 * time.Second

// run returns how many answers came and how long that took.
func (l load) run() (int64, time.Duration, error) {
	if err := l.verify(); err != nil {
		return 0, 0, err
	}
	var (
		wg    sync.WaitGroup
		total atomic.Int64
		errs  = make(chan error, l.conns)
	)
	start := time.Now()
	for range l.conns {
		wg.Go(func() {
			n, err := l.ask(start.Add(l.span))
			total.Add(n)
			if err != nil {
				errs <- err
			}
		})
	}
	wg.Wait()
	took := time.Since(start)
	close(errs)
	return total.Load(), took, <-errs
}

// ask sends requests over one connection until the end.
func (l load) ask(end time.Time) (int64, error) {
	conn, err := net.Dial("tcp", l.addr)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(end.Add(answerWithin))
	requests, br := l.requests(), bufio.NewReaderSize(conn, 64<<10)
	var n int64
	for i := rand.IntN(len(requests)); time.Now().Before(end); i++ {
		if err := l.one(conn, br, requests[i%len(requests)]); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// one sends a request and takes its answer.
func (l load) one(conn net.Conn, br *bufio.Reader, request []byte) error {
	if _, err := conn.Write(request); err != nil {
		return err
	}
	length, err := readHeader(br)
	if err != nil {
		return err
	}
	if length != l.object.size {
		return fmt.Errorf("an answer of %d bytes, want %d", length, l.object.size)
	}
	_, err = br.Discard(length)
	return err
}

func (l load) requests() (all [][]byte) {
	paths := l.object.paths
	if len(paths) == 0 {
		paths = []string{l.object.path()}
	}
	for _, path := range paths {
		all = append(all, []byte("GET "+path+" HTTP/1.1\r\nHost: "+l.addr+"\r\n\r\n"))
	}
	return all
}

// verify makes sure that what is measured is the object.
func (l load) verify() error {
	if l.object.body == nil {
		return nil
	}
	conn, err := net.Dial("tcp", l.addr)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(answerWithin))
	if _, err := conn.Write(l.requests()[0]); err != nil {
		return err
	}
	br := bufio.NewReader(conn)
	length, err := readHeader(br)
	if err != nil {
		return err
	}
	body := make([]byte, length)
	if _, err := io.ReadFull(br, body); err != nil {
		return err
	}
	if !bytes.Equal(body, l.object.body) {
		return errors.New("the answer is another body")
	}
	return nil
}

// readHeader reads the head of a 200 answer and returns its Content-Length.
func readHeader(br *bufio.Reader) (int, error) {
	line, err := br.ReadSlice('\n')
	if err != nil {
		return 0, err
	}
	if !bytes.HasPrefix(line, []byte("HTTP/1.1 200 ")) {
		return 0, fmt.Errorf("the answer is %q", bytes.TrimSpace(line))
	}
	length := -1
	for {
		line, err := br.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			break
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		if len(name) == len("Content-Length") && bytes.EqualFold(name, []byte("Content-Length")) {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return 0, err
			}
		}
	}
	if length < 0 {
		return 0, errors.New("the answer has no Content-Length")
	}
	return length, nil
}
