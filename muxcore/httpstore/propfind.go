package httpstore

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// maxResource is how much XML may describe one resource.
const maxResource = 1 << 20

const propfindBody = `<?xml version="1.0" encoding="utf-8"?><propfind xmlns="DAV:"><prop><resourcetype/><getcontentlength/>` +
	`<getlastmodified/><getetag/><getcontenttype/></prop></propfind>`

// propfind asks a WebDAV origin what stands at path, a key or a collection with its slash, and with depth "1" for its
// members. The answer must be closed.
func (s *Store) propfind(ctx context.Context, op muxcore.Op, key, path, depth string) (*multistatus, error) {
	header := maps.Clone(s.traced(ctx, s.header))
	header["Depth"] = []string{depth}
	header["Content-Type"] = []string{"application/xml; charset=utf-8"}
	header["Idempotency-Key"] = []string{} // not sent: lets the transport repeat it on a connection that had just died
	req := s.request(ctx, "PROPFIND", s.base.of(path), header)
	req.ContentLength = int64(len(propfindBody))
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(propfindBody)), nil }
	req.Body, _ = req.GetBody()
	resp, err := s.exchange(ctx, op, key, req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusMultiStatus {
		s.dav.set(true, s.now())
		return newMultistatus(ctx, op, key, resp), nil
	}
	drain(resp)
	if resp.StatusCode < 300 {
		return nil, &muxcore.Error{Code: muxcore.CodeUnsupported, Op: op, Key: key, Status: resp.StatusCode}
	}
	return nil, s.refused(op, key, resp)
}

// resource is what a WebDAV origin says of one.
type resource struct {
	path       string // decoded, as long as raw has no encoded slash
	raw        string // as it came, without host
	collection bool
	info       muxcore.Info // without key
}

// multistatus reads the resources out of an answer one by one, in bounded memory.
type multistatus struct {
	ctx  context.Context // of the request: only to tell whose fault an error is
	op   muxcore.Op
	key  string
	resp *http.Response
	xml  *xml.Decoder
	in   metered
	root bool // its start was seen
}

func newMultistatus(ctx context.Context, op muxcore.Op, key string, resp *http.Response) *multistatus {
	m := &multistatus{ctx: ctx, op: op, key: key, resp: resp, in: metered{src: resp.Body}}
	m.xml = xml.NewDecoder(&m.in)
	return m
}

func (m *multistatus) close() { drain(m.resp) }

// next gives the next resource, io.EOF after the last. Resources that are said to be gone are left out.
func (m *multistatus) next() (*resource, error) {
	for {
		m.in.left = maxResource
		token, err := m.xml.Token()
		if err != nil {
			return nil, m.fault(err)
		}
		switch t := token.(type) {
		case xml.StartElement:
			if !m.root {
				if t.Name != (xml.Name{Space: "DAV:", Local: "multistatus"}) {
					return nil, m.fault(fmt.Errorf("<%s> in place of <multistatus>", t.Name.Local))
				}
				m.root = true
				continue
			}
			if t.Name != (xml.Name{Space: "DAV:", Local: "response"}) {
				if err := m.xml.Skip(); err != nil {
					return nil, m.fault(err)
				}
				continue
			}
			var e element
			if err := m.xml.DecodeElement(&e, &t); err != nil {
				return nil, m.fault(err)
			}
			if r, err := e.resource(); err != nil || r != nil {
				return r, m.fault(err)
			}
		case xml.EndElement:
			return nil, io.EOF // of the root: the others were consumed with their starts
		}
	}
}

// fault is the error of an answer that is cut or wrong.
func (m *multistatus) fault(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return broke(m.ctx, m.op, m.key, fmt.Errorf("reading the multistatus answer: %w", err))
}

// metered refuses to read more than is left.
type metered struct {
	src  io.Reader
	left int
}

func (m *metered) Read(p []byte) (int, error) {
	if m.left <= 0 {
		return 0, fmt.Errorf("more than %d bytes for one resource", maxResource)
	}
	if len(p) > m.left {
		p = p[:m.left]
	}
	n, err := m.src.Read(p)
	m.left -= n
	return n, err
}

// element is a response element of RFC 4918.
type element struct {
	Href     string `xml:"DAV: href"`
	Status   string `xml:"DAV: status"`
	Propstat []struct {
		Status string `xml:"DAV: status"`
		Prop   struct {
			Length   string `xml:"DAV: getcontentlength"`
			Modified string `xml:"DAV: getlastmodified"`
			ETag     string `xml:"DAV: getetag"`
			Type     string `xml:"DAV: getcontenttype"`
			Kind     struct {
				Collection *struct{} `xml:"DAV: collection"`
			} `xml:"DAV: resourcetype"`
		} `xml:"DAV: prop"`
	} `xml:"DAV: propstat"`
}

// resource reads what is known of it; nil if there is none.
func (e *element) resource() (*resource, error) {
	if !isFine(e.Status) {
		return nil, nil
	}
	raw, err := pathOf(strings.TrimSpace(e.Href))
	if err != nil {
		return nil, err
	}
	r := &resource{raw: raw, info: muxcore.Info{Size: -1}}
	if r.path, err = url.PathUnescape(raw); err != nil {
		return nil, fmt.Errorf("href %q: %w", e.Href, err)
	}
	r.collection = strings.HasSuffix(raw, "/")
	for i := range e.Propstat {
		if !isFine(e.Propstat[i].Status) {
			continue
		}
		p := &e.Propstat[i].Prop
		r.collection = r.collection || p.Kind.Collection != nil
		if size, ok := parsePosition(strings.TrimSpace(p.Length)); ok {
			r.info.Size = size
		}
		if p.ETag != "" {
			r.info.ETag = etagOf([]string{p.ETag})
		}
		if p.Modified != "" {
			r.info.ModTime = timeOf(strings.TrimSpace(p.Modified))
		}
		if p.Type != "" {
			r.info.ContentType = strings.TrimSpace(p.Type)
		}
	}
	return r, nil
}

// isFine tells whether a status line, if there is one, is a success.
func isFine(line string) bool {
	fields := strings.Fields(line)
	if len(fields) < 2 {
		return true
	}
	status, err := strconv.Atoi(fields[1])
	return err != nil || status < 300
}

// pathOf is the path of a href, which is a URL or an absolute path.
func pathOf(href string) (string, error) {
	path := href
	if _, rest, ok := strings.Cut(href, "://"); ok && !strings.HasPrefix(href, "/") {
		i := strings.IndexByte(rest, '/')
		if i < 0 {
			return "/", nil
		}
		path = rest[i:]
	}
	if i := strings.IndexAny(path, "?#"); i >= 0 {
		path = path[:i]
	}
	if !strings.HasPrefix(path, "/") {
		return "", fmt.Errorf("href %q is not an absolute path", href)
	}
	return path, nil
}
