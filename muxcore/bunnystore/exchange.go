package bunnystore

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/internal/wire"
)

const (
	methodDescribe = "DESCRIBE"
	maxDescription = 64 << 10
)

// question is a request to the zone.
type question struct {
	op     muxcore.Op
	key    string // for errors
	method string
	path   string // below the zone; a folder's ends in a slash
	header http.Header
	body   *wire.Upload
}

// ask is a question about the object at key.
func (s *Store) ask(op muxcore.Op, method, key string) *question {
	return &question{op: op, key: key, method: method, path: s.prefix.Path(key)}
}

// send sends q, once.
func (s *Store) send(ctx context.Context, q *question) (*http.Response, error) {
	u := *s.base
	path := "/" + s.set.Zone + "/" + q.path
	u.Path, u.RawPath = s.base.Path+path, s.base.RawPath+wire.EscapePath(path)
	header := http.Header{"Accesskey": {s.set.AccessKey}, "User-Agent": {wire.UserAgent}, "Accept-Encoding": {"identity"}}
	maps.Copy(header, q.header)
	req := wire.Request(ctx, q.method, &u, u.Host, header)
	if q.body != nil {
		return q.body.Send(ctx, q.key, s.home, req)
	}
	resp, err := s.home.RoundTrip(req)
	if err != nil {
		return nil, wire.Broke(ctx, q.op, q.key, err)
	}
	return resp, nil
}

// refused is the error that an answer's status means.
func (s *Store) refused(op muxcore.Op, key string, resp *http.Response) error {
	e := &muxcore.Error{
		Code: muxcore.CodeUnavailable, Op: op, Key: key, Status: resp.StatusCode, RetryAfter: wire.RetryAfter(resp.Header, s.set.Now),
	}
	switch resp.StatusCode {
	case http.StatusUnauthorized:
		e.Code, e.Err = muxcore.CodeDenied, s.likelyCause()
	case http.StatusForbidden, http.StatusProxyAuthRequired:
		e.Code = muxcore.CodeDenied
	case http.StatusNotFound, http.StatusGone:
		e.Code = muxcore.CodeKeyNotFound
	case http.StatusRequestURITooLong:
		e.Code = muxcore.CodeInvalidKey
	case http.StatusRequestEntityTooLarge:
		e.Code = muxcore.CodeTooLarge
	case http.StatusLengthRequired, http.StatusNotImplemented, http.StatusMethodNotAllowed:
		e.Code = muxcore.CodeUnsupported
	}
	if resp.StatusCode < 400 {
		e.Status, e.Err = 0, fmt.Errorf("answer %d is wrong here", resp.StatusCode)
	}
	return e
}

// likelyCause is what mostly stands behind a 401 of Bunny's, which says nothing itself.
func (s *Store) likelyCause() error {
	return fmt.Errorf("the key is refused at %s: access_key must be the password of zone %q (not the key of the account), and region its main region",
		s.base.Host, s.set.Zone)
}

// description is what Bunny says of an object or a folder.
type description struct {
	GUID        string `json:"Guid"`
	Name        string `json:"ObjectName"`
	Length      int64  `json:"Length"`
	LastChanged string `json:"LastChanged"`
	Directory   bool   `json:"IsDirectory"`
	Checksum    string `json:"Checksum"`
	ContentType string `json:"ContentType"`
}

// same tells whether two descriptions are of the same version.
func (d *description) same(other *description) bool {
	return d.GUID == other.GUID && d.Length == other.Length && d.LastChanged == other.LastChanged && d.Checksum == other.Checksum
}

// untyped is the type under which an object is stored that was put without one: a zone gives a type to all. The parameter, by which
// RFC 2046 has the kind of data told, tells it from one that was given.
const untyped = octets + "; type=unknown"

const octets = "application/octet-stream"

// typeOf is the type that an object was put with.
func typeOf(stored string) string {
	if media, params, err := mime.ParseMediaType(stored); err == nil && media == octets && len(params) == 1 && params["type"] == "unknown" {
		return ""
	}
	return stored
}

// sum is the SHA-256, nil where Bunny has none.
func (d *description) sum() []byte {
	sum, err := hex.DecodeString(d.Checksum)
	if err != nil || len(sum) != sha256.Size {
		return nil
	}
	return sum
}

// info describes the object at key.
func (d *description) info(key string) muxcore.Info {
	info := muxcore.Info{Key: key, Size: max(d.Length, -1), ModTime: timeOf(d.LastChanged)}
	info.ContentType = typeOf(d.ContentType)
	wire.Fields(&info.Attributes)
	if sum := d.sum(); sum != nil {
		info.ETag, info.Digests.SHA256 = tagOf(sum), sum
	}
	return info
}

// tagOf is the ETag of a body, in the form in which a mux names one by its digest.
func tagOf(sum []byte) string { return `"` + base64.RawURLEncoding.EncodeToString(sum) + `"` }

// timeOf reads a time of Bunny's, which has no zone and is UTC; zero where it is none.
func timeOf(text string) time.Time {
	for _, layout := range []string{"2006-01-02T15:04:05.999999999", time.RFC3339Nano} {
		if t, err := time.Parse(layout, text); err == nil {
			return t.UTC()
		}
	}
	return time.Time{}
}

var errFolder = errors.New("it is a folder")

// describe asks for the description of the object at key. A folder is none.
func (s *Store) describe(ctx context.Context, op muxcore.Op, key string) (*description, error) {
	d, err := s.look(ctx, op, key)
	if err == nil && d.Directory {
		return nil, &muxcore.Error{Code: muxcore.CodeKeyNotFound, Op: op, Key: key, Err: errFolder}
	}
	return d, err
}

// look asks for the description of whatever is at key.
func (s *Store) look(ctx context.Context, op muxcore.Op, key string) (*description, error) {
	q := s.ask(op, methodDescribe, key)
	q.header = http.Header{"Accept": {"application/json"}}
	resp, err := s.send(ctx, q) //nolint:bodyclose // drained below
	if err != nil {
		return nil, err
	}
	defer wire.Drain(resp)
	if resp.StatusCode != http.StatusOK {
		return nil, s.refused(op, key, resp)
	}
	d := new(description)
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxDescription)).Decode(d); err != nil {
		return nil, wire.Broke(ctx, op, key, fmt.Errorf("reading the description of the object: %w", err))
	}
	return d, nil
}
