package s3store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/signer"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/internal/wire"
)

const (
	unsigned   = "UNSIGNED-PAYLOAD"
	emptySHA   = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	errorLimit = 64 << 10
)

// call is a request to be.
type call struct {
	op     muxcore.Op
	key    string // "" the bucket
	method string
	query  url.Values
	header http.Header // not changed

	body []byte       // in memory: it can be sent again
	loan *loan        // of body, if its memory is used again after the call
	up   *wire.Upload // in place of body: sent as it comes
	sha  string       // of the body, hexadecimal, or unsigned; "" that of body, and of up unsigned
}

const (
	// folderThere is what versitygw says to a PUT where a folder is, and also while somebody else removes the last object in the
	// one that it writes to, which goes with it. The first stays.
	folderThere = "ExistingObjectIsDirectory"
	folderTries = 4
	folderPause = 10 * time.Millisecond
)

// do sends a call: once, and once more if the service named the region to sign for, or said that the credentials have
// expired, and the body can be sent again. Answers of 300 and more are errors.
func (s *Store) do(ctx context.Context, c *call) (*http.Response, error) {
	for again, folders := true, 1; ; {
		creds, err := s.keys.get(ctx)
		if err != nil {
			if muxcore.CodeOf(err) != "" {
				return nil, muxcore.At(c.op, c.key, err)
			}
			return nil, wire.Broke(ctx, c.op, c.key, err)
		}
		region := s.region.get()
		resp, err := s.send(ctx, c, creds, region)
		if err != nil {
			return nil, err
		}
		if resp.StatusCode < 300 {
			s.seen.Store(s.now().Unix())
			return resp, nil
		}
		r := read(ctx, resp)
		gone := r.explain(ctx, s, c, creds, region)
		r.redact(&creds)
		if r.code == noSuchKey {
			s.seen.Store(s.now().Unix())
		}
		if r.code == folderThere && c.repeats() && folders < folderTries && pause(ctx, folderPause<<folders) {
			folders++
			continue
		}
		learnt := s.region.learn(r.region, region)
		news := r.expired() && s.keys.expire(creds) || learnt || gone
		if !again || !news || c.up != nil && !c.up.Rewinds() {
			return nil, s.refused(c, r)
		}
		again = false
	}
}

// repeats tells whether a call is a PUT that may be sent once more although it was answered.
func (c *call) repeats() bool { return c.method == http.MethodPut && c.up == nil && c.query == nil }

// pause waits, and tells whether ctx went on that long.
func pause(ctx context.Context, d time.Duration) bool {
	late := time.NewTimer(d)
	defer late.Stop()
	select {
	case <-late.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// finish sends a call whose answer's body nobody needs.
func (s *Store) finish(ctx context.Context, c *call) (http.Header, error) {
	resp, err := s.do(ctx, c) //nolint:bodyclose // drained below
	if err != nil {
		return nil, err
	}
	wire.Drain(resp)
	return resp.Header, nil
}

// send signs a call for a region, and sends it.
func (s *Store) send(ctx context.Context, c *call, creds credentials.Value, region string) (*http.Response, error) {
	full := ""
	if c.key != "" {
		full = s.prefix.Path(c.key)
	}
	u := s.place.url(region, full, c.query)
	header := maps.Clone(c.header)
	if header == nil {
		header = make(http.Header, 8)
	}
	header["User-Agent"] = []string{wire.UserAgent}
	header["Accept-Encoding"] = []string{s.encoding}
	req := (&http.Request{
		Method: c.method, URL: u, Host: u.Host, Header: header, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(wire.Settled(ctx))
	header["X-Amz-Content-Sha256"] = []string{c.load(req)}
	req = signer.SignV4(*req, creds.AccessKeyID, creds.SecretAccessKey, creds.SessionToken, region)
	if c.up != nil {
		req.Header["Expect"] = []string{"100-continue"} // what stands in between may take it away: it is not signed
		return c.up.Send(ctx, c.key, s.transport, req)
	}
	resp, err := s.transport.RoundTrip(req)
	if err != nil {
		return nil, wire.Broke(ctx, c.op, c.key, err)
	}
	return resp, nil
}

// load gives req its body, if that is in memory, and tells what to sign for it.
func (c *call) load(req *http.Request) string {
	switch {
	case c.up != nil:
		if c.sha == "" {
			return unsigned
		}
	case len(c.body) > 0:
		req.ContentLength = int64(len(c.body))
		req.GetBody = func() (io.ReadCloser, error) { return c.reader(), nil }
		req.Body, _ = req.GetBody()
		if c.sha == "" {
			c.sha = sumOf(c.body)
		}
	default:
		req.Body = http.NoBody
		return emptySHA
	}
	return c.sha
}

// reader reads a body that is in memory.
func (c *call) reader() io.ReadCloser {
	if c.loan != nil {
		return &lent{loan: c.loan, left: c.body}
	}
	return io.NopCloser(bytes.NewReader(c.body))
}

// loan is memory that a transport may read in. It may do so after it has answered or given up, so that the memory must be called in
// before it is another's.
type loan struct {
	mu   sync.Mutex
	over bool
}

var errCalledIn = errors.New("read of a body after the call has ended")

func (l *loan) callIn() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
}

// lent reads what is lent.
type lent struct {
	loan *loan
	left []byte
}

// Read implements io.Reader.
func (b *lent) Read(p []byte) (int, error) {
	b.loan.mu.Lock()
	defer b.loan.mu.Unlock()
	if b.loan.over {
		return 0, errCalledIn
	}
	if len(b.left) == 0 {
		return 0, io.EOF
	}
	n := copy(p, b.left)
	b.left = b.left[n:]
	return n, nil
}

// Close implements io.Closer.
func (*lent) Close() error { return nil }

func sumOf(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}
