package rig

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// AnswerWithin is how long a request may take; generous, so that only a hang meets it.
const AnswerWithin = 3 * time.Minute

// Request is a request to send.
type Request struct {
	Method string   // Default: GET.
	Path   string   // as it goes onto the wire, with its query
	Header []string // names and values in turns
	Body   io.Reader
	Length int64 // declared length of Body; -1: chunked. Default: that of Body, if it is known.
	Port   string
	Within time.Duration // Default: AnswerWithin.
}

// Response is an answer with its whole body.
type Response struct {
	Status int
	Header http.Header
	Length int64 // declared; -1: none
	Body   []byte
	Err    error // what ended the body early; nil when it came whole
}

// Cause is Err, or why a body that seems whole is not: its length is not the declared one.
func (r Response) Cause() error {
	if r.Err == nil && r.Length >= 0 && r.Length != int64(len(r.Body)) {
		return fmt.Errorf("%d bytes came, %d were declared", len(r.Body), r.Length)
	}
	return r.Err
}

func newClient() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DisableCompression:    true,
			ExpectContinueTimeout: AnswerWithin,
			MaxIdleConnsPerHost:   8,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Do sends a request and fails the test when no answer comes.
func (c *Caddy) Do(r Request) Response {
	c.tb.Helper()
	resp, err := c.Try(r)
	if err != nil {
		c.tb.Fatalf("%s %s: %v", r.Method, r.Path, err)
	}
	return resp
}

// Try sends a request and returns the answer, or why none came.
func (c *Caddy) Try(r Request) (Response, error) {
	c.tb.Helper()
	within := r.Within
	if within == 0 {
		within = AnswerWithin
	}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	resp, err := c.Open(ctx, r)
	if err != nil {
		return Response{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if method := resp.Request.Method; method == http.MethodHead {
		resp.ContentLength = -1
	}
	return Response{Status: resp.StatusCode, Header: resp.Header, Length: resp.ContentLength, Body: body, Err: err}, nil
}

// Open sends a request and returns the answer with its body unread, for the caller to close.
func (c *Caddy) Open(ctx context.Context, r Request) (*http.Response, error) {
	c.tb.Helper()
	port := r.Port
	if port == "" {
		port = "PORT"
	}
	method := r.Method
	if method == "" {
		method = http.MethodGet
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://127.0.0.1:"+c.env[port]+r.Path, r.Body)
	if err != nil {
		c.tb.Fatalf("%s %s: %v", method, r.Path, err)
	}
	for i := 0; i+1 < len(r.Header); i += 2 {
		req.Header.Add(r.Header[i], r.Header[i+1])
	}
	if host := req.Header.Get("Host"); host != "" {
		req.Host = host
	}
	if r.Length != 0 {
		req.ContentLength = r.Length
	}
	return c.client.Do(req)
}

// Get reads a path; header is names and values in turns.
func (c *Caddy) Get(path string, header ...string) Response {
	c.tb.Helper()
	return c.Do(Request{Method: http.MethodGet, Path: path, Header: header})
}

// Head asks for the headers of a path.
func (c *Caddy) Head(path string, header ...string) Response {
	c.tb.Helper()
	return c.Do(Request{Method: http.MethodHead, Path: path, Header: header})
}

// Put writes a body of known length to a path.
func (c *Caddy) Put(path, body string, header ...string) Response {
	c.tb.Helper()
	return c.Do(Request{Method: http.MethodPut, Path: path, Header: header, Body: strings.NewReader(body)})
}

// Delete removes a path.
func (c *Caddy) Delete(path string, header ...string) Response {
	c.tb.Helper()
	return c.Do(Request{Method: http.MethodDelete, Path: path, Header: header})
}

// Raw sends bytes as they are to the site on {$PORT}, ends its side of the
// connection if half is set, and reads one answer.
func (c *Caddy) Raw(request string, half bool) (Response, error) {
	c.tb.Helper()
	conn, err := net.DialTimeout("tcp", c.Addr(), AnswerWithin)
	if err != nil {
		return Response{}, fmt.Errorf("connecting: %w", err) // as happens while the server of an old config closes
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(AnswerWithin))
	if _, err := io.WriteString(conn, request); err != nil {
		return Response{}, fmt.Errorf("sending: %w", err)
	}
	if half {
		_ = conn.(*net.TCPConn).CloseWrite() // fails if the server has answered and left already
	}
	return readResponse(bufio.NewReader(conn), request)
}

// readResponse reads one final answer to a request.
func readResponse(br *bufio.Reader, request string) (Response, error) {
	method, _, _ := strings.Cut(request, " ")
	for {
		resp, err := http.ReadResponse(br, &http.Request{Method: method})
		if err != nil {
			return Response{}, fmt.Errorf("reading the answer: %w", err)
		}
		if resp.StatusCode < 200 {
			continue
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		return Response{Status: resp.StatusCode, Header: resp.Header, Length: resp.ContentLength, Body: body, Err: err}, nil
	}
}

// Aborted tells whether an exchange ended by a broken connection, before the
// answer or inside its body, rather than with a whole answer.
func Aborted(r Response, err error) bool {
	return err != nil || r.Cause() != nil
}

// Same compares a body without printing it whole.
func Same(got, want []byte) error {
	if bytes.Equal(got, want) {
		return nil
	}
	at := 0
	for at < len(got) && at < len(want) && got[at] == want[at] {
		at++
	}
	return fmt.Errorf("%d bytes, want %d; the first difference is at %d", len(got), len(want), at)
}

// CloseIdle closes the connections that are kept for the next request.
func (c *Caddy) CloseIdle() { c.client.CloseIdleConnections() }
