package s3store

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/internal/wire"
)

const (
	inFlight = 4 // parts of one upload at a time

	createTime = 30 * time.Second // an upload that begins is waited for, so that it can be taken back

	noSuchUpload = "NoSuchUpload"
)

var errManyParts = errors.New("a body of unknown length that is larger than all parts together")

// multipart is an upload by parts.
type multipart struct {
	s   *Store
	op  muxcore.Op
	key string
	id  string

	free chan []byte // buffers of this upload that are not in use
	have int         // its buffers

	mu    sync.Mutex
	parts []part // by number, from 1
	err   error  // of the first part that failed
}

// part is a part as the service wants to hear of it.
type part struct {
	Number int    `xml:"PartNumber"`
	ETag   string `xml:"ETag"`
}

// byParts puts a body by parts of size bytes: in memory, which has been taken for one of them, or as they come. head is what was
// read of it already.
func (p *put) byParts(ctx context.Context, size int64, inMemory bool, head []byte) ([]string, error) {
	m := multipart{s: p.s, op: muxcore.OpPut, key: p.key, free: make(chan []byte, inFlight)}
	if inMemory {
		m.own()
		defer m.giveBack()
	}
	if p.guard != nil {
		if err := p.s.checkHonours(ctx, muxcore.OpPut, p.key, kindMultipart); err != nil {
			return nil, err
		}
	}
	header, err := p.header(nil)
	if err != nil {
		return nil, err
	}
	if err := m.create(ctx, header); err != nil {
		return nil, err
	}
	if inMemory {
		err = p.sendParts(ctx, &m, head)
	} else {
		err = p.streamParts(ctx, &m, size)
	}
	m.giveBack()
	if err == nil {
		var native []string
		native, err = p.commit(ctx, false, func(guard http.Header) ([]string, error) { return m.complete(ctx, guard) })
		if err == nil {
			return native, nil
		}
	}
	m.abort(ctx)
	return nil, err
}

// partSizeFor is the size of the parts of a body of size bytes: all but the last have the same, as some services want it.
func (s *Store) partSizeFor(size int64) int64 {
	least := (size + s.maxParts - 1) / s.maxParts
	if least <= s.partSize {
		return s.partSize
	}
	return min((least+s.partSize-1)/s.partSize*s.partSize, maxPart)
}

// sendParts reads parts into memory and sends some at a time.
func (p *put) sendParts(ctx context.Context, m *multipart, head []byte) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var sending sync.WaitGroup
	err := p.fillParts(ctx, m, head, func(number int, buf []byte, n int) {
		sending.Go(func() {
			c := call{body: buf[:n], loan: new(loan), sha: unsigned}
			if err := m.sendPart(ctx, &c, number); err != nil {
				m.fail(err)
				cancel()
			}
			c.loan.callIn()
			m.free <- buf
		})
	})
	if err != nil {
		cancel()
	}
	sending.Wait()
	if m.err != nil && (err == nil || errors.Is(err, context.Canceled)) {
		return m.err // which is why the rest was given up
	}
	return err
}

// fillParts hands on the parts of a body.
func (p *put) fillParts(ctx context.Context, m *multipart, head []byte, send func(number int, buf []byte, n int)) error {
	for number := 1; ; number++ {
		buf, err := m.buffer(ctx)
		if err != nil {
			return err
		}
		n := copy(buf, head)
		head = head[n:]
		more := 0
		if n < len(buf) {
			more, err = p.body.Fill(ctx, buf[n:])
		}
		if err != nil && !errors.Is(err, io.EOF) {
			m.have-- // it may still be written to: nobody gets it any more
			m.s.memory.giveBack(m.s.partSize)
			return err
		}
		n += more
		p.sent += int64(n)
		last := err != nil || p.sent == p.size
		switch {
		case n == 0 && number > 1:
			m.free <- buf
		case int64(number) > m.s.maxParts:
			m.free <- buf
			return &muxcore.Error{Code: muxcore.CodeTooLarge, Err: errManyParts}
		default:
			send(number, buf, n)
		}
		if last {
			return nil
		}
	}
}

// streamParts sends parts that are not to be in memory, one after the other, as they come.
func (p *put) streamParts(ctx context.Context, m *multipart, size int64) error {
	for number := 1; p.sent < p.size; number++ {
		n := min(size, p.size-p.sent)
		body := wire.NewUpload(ctx, muxcore.CheckBody(io.LimitReader(p.body, n), n, muxcore.Digests{}), n)
		err := m.sendPart(ctx, &call{up: body}, number)
		whole, bodyErr := body.Settle(ctx)
		switch {
		case err == nil && bodyErr != nil:
			err = bodyErr
		case err == nil && !whole:
			err = wire.ErrTooEarly
		}
		if err != nil {
			m.fail(err)
			return err
		}
		p.sent += n
	}
	return nil
}

// create begins an upload. If ctx ends meanwhile, what may have begun is taken back.
func (m *multipart) create(ctx context.Context, header http.Header) error {
	created := make(chan error)                    // taken, or nobody has the upload
	own := multipart{s: m.s, op: m.op, key: m.key} // m is the caller's again as soon as ctx has ended
	detached, cancel := context.WithTimeout(context.WithoutCancel(ctx), createTime)
	m.s.work.Go(func() {
		defer cancel()
		err := own.begin(detached, header)
		select {
		case created <- err:
		case <-ctx.Done():
			if err == nil {
				own.abort(ctx)
			}
		}
	})
	select {
	case err := <-created:
		m.id = own.id
		return err
	case <-ctx.Done():
		return brokeOff(ctx, m.op, m.key)
	}
}

// begin begins an upload.
func (m *multipart) begin(ctx context.Context, header http.Header) error {
	c := call{op: m.op, key: m.key, method: http.MethodPost, query: url.Values{"uploads": {""}}, header: header}
	var answer struct {
		XMLName xml.Name `xml:"InitiateMultipartUploadResult"`
		ID      string   `xml:"UploadId"`
	}
	err := m.s.ask(ctx, &c, &answer)
	if err == nil && answer.ID == "" {
		err = wrongAnswer(m.op, m.key, "it has no UploadId")
	}
	m.id = answer.ID
	return err
}

// sendPart sends a part.
func (m *multipart) sendPart(ctx context.Context, c *call, number int) error {
	c.op, c.key, c.method = m.op, m.key, http.MethodPut
	c.query = url.Values{"uploadId": {m.id}, "partNumber": {strconv.Itoa(number)}}
	answer, err := m.s.finish(ctx, c)
	if err != nil {
		return err
	}
	tag := wire.First(answer, "Etag")
	if tag == "" {
		return wrongAnswer(m.op, m.key, "a part has no ETag")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for len(m.parts) < number {
		m.parts = append(m.parts, part{Number: len(m.parts) + 1})
	}
	m.parts[number-1].ETag = tag
	return nil
}

// fail remembers the first error of a part.
func (m *multipart) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err == nil {
		m.err = err
	}
}

// complete makes the object of its parts. An answer of 200 may be an error all the same: the service has begun it before
// it knew.
func (m *multipart) complete(ctx context.Context, guard http.Header) ([]string, error) {
	text, err := xml.Marshal(struct {
		XMLName xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ CompleteMultipartUpload"`
		Parts   []part   `xml:"Part"`
	}{Parts: m.parts})
	if err != nil {
		return nil, err
	}
	header := http.Header{"Content-Type": {"application/xml"}}
	maps.Copy(header, guard)
	c := call{op: m.op, key: m.key, method: http.MethodPost, query: url.Values{"uploadId": {m.id}}, header: header, body: text}
	var answer struct {
		XMLName xml.Name `xml:"CompleteMultipartUploadResult"`
		ETag    string   `xml:"ETag"`
	}
	if err := m.s.ask(ctx, &c, &answer); err != nil {
		return nil, err
	}
	return []string{answer.ETag}, nil
}

// ask sends a call that is answered by a document.
func (s *Store) ask(ctx context.Context, c *call, into any) error {
	resp, err := s.do(ctx, c) //nolint:bodyclose // drained below
	if err != nil {
		return err
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxPage))
	wire.Drain(resp)
	if err != nil {
		return wire.Broke(ctx, c.op, c.key, fmt.Errorf("reading an answer: %w", err))
	}
	if err := wire.UnmarshalXML(bytes.TrimSpace(text), into); err != nil {
		if r := (&refusal{status: http.StatusInternalServerError, header: resp.Header}); r.parse(text) {
			if creds, err := s.keys.get(ctx); err == nil {
				r.redact(&creds)
			}
			return s.refused(c, r)
		}
		return wrongAnswer(c.op, c.key, err.Error())
	}
	return nil
}

// abort takes an upload back, with all its parts. One that was left with parts under way may store one after that.
func (m *multipart) abort(ctx context.Context) {
	c := call{op: muxcore.OpPut, key: m.key, method: http.MethodDelete, query: url.Values{"uploadId": {m.id}}}
	m.s.clear(ctx, c, m.err != nil)
}

// own makes the first buffer, the memory for which has been taken.
func (m *multipart) own() {
	m.have++
	m.free <- *m.s.buffers.Get().(*[]byte)
}

// buffer gives a buffer for a part, and waits for one if there are enough of them. Uploads that have one leave a quarter of the memory
// to those that have none.
func (m *multipart) buffer(ctx context.Context) ([]byte, error) {
	select {
	case buf := <-m.free:
		return buf, nil
	default:
	}
	if m.have < inFlight && m.s.memory.take(m.s.partSize, m.s.memory.most/4) {
		m.own()
	}
	select {
	case buf := <-m.free:
		return buf, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// giveBack gives the buffers back when all parts have been sent.
func (m *multipart) giveBack() {
	for ; m.have > 0; m.have-- {
		buf := <-m.free
		m.s.buffers.Put(&buf)
		m.s.memory.giveBack(m.s.partSize)
	}
}

// wrongAnswer is the error of an answer that cannot be true.
func wrongAnswer(op muxcore.Op, key, why string) error {
	return &muxcore.Error{Code: muxcore.CodeUnavailable, Op: op, Key: key, Err: fmt.Errorf("the answer is wrong: %s", why)}
}
