package httpstore

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/internal/wire"
)

const (
	maxResource = 1 << 20  // bytes of XML that may describe one resource
	maxText     = 16 << 10 // bytes of one property
	maxShown    = 300      // bytes of what came, in an error
)

var errText = fmt.Errorf("a property of more than %d bytes", maxText)

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
	in   wire.Metered
	root bool // its start was seen
}

func newMultistatus(ctx context.Context, op muxcore.Op, key string, resp *http.Response) *multistatus {
	m := &multistatus{ctx: ctx, op: op, key: key, resp: resp, in: wire.Metered{Src: resp.Body, Most: maxResource}}
	m.xml = xml.NewDecoder(&m.in)
	return m
}

func (m *multistatus) close() { wire.Drain(m.resp) }

// next gives the next resource, io.EOF after the last. Resources that are said to be gone are left out.
func (m *multistatus) next() (*resource, error) {
	for {
		m.in.Again()
		token, err := m.xml.Token()
		if err != nil {
			return nil, m.fault(err)
		}
		switch t := token.(type) {
		case xml.StartElement:
			if !m.root {
				if t.Name != (xml.Name{Space: "DAV:", Local: "multistatus"}) {
					return nil, m.fault(fmt.Errorf("<%s> in place of <multistatus>", wire.Clip(t.Name.Local, maxShown)))
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
			e, err := m.element()
			if err != nil {
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
	return wire.Broke(m.ctx, m.op, m.key, fmt.Errorf("reading the multistatus answer: %w", err))
}

// element is a response element of RFC 4918: what it says that we asked for.
type element struct {
	href   string
	status string
	known  props // of a propstat that is fine
	one    props // of the propstat at hand
	text   *string
	level  int // 1 in the response, 2 in its propstat, 3 in the prop of that, 4 in the resourcetype
}

type props struct {
	status, length, modified, etag, contentType string
	collection                                  bool
}

// element reads the response whose start was read. Elements that we do not know, or know elsewhere, are skipped.
func (m *multistatus) element() (*element, error) {
	e := &element{level: 1}
	for {
		token, err := m.xml.Token()
		if err != nil {
			return nil, err
		}
		switch t := token.(type) {
		case xml.StartElement:
			if t.Name.Space != "DAV:" || !e.enter(t.Name.Local) {
				if err := m.xml.Skip(); err != nil {
					return nil, err
				}
			}
		case xml.CharData:
			if e.text == nil {
				continue
			}
			if len(*e.text)+len(t) > maxText {
				return nil, errText
			}
			*e.text += string(t)
		case xml.EndElement:
			if e.leave() {
				return e, nil
			}
		}
	}
}

// enter tells whether the element of that name means something here.
func (e *element) enter(name string) bool {
	if e.text != nil {
		return false
	}
	switch {
	case e.level == 1 && name == "href":
		e.href, e.text = "", &e.href
	case e.level == 1 && name == "status":
		e.text = &e.status
	case e.level == 1 && name == "propstat":
		e.one, e.level = props{}, 2
	case e.level == 2 && name == "status":
		e.text = &e.one.status
	case e.level == 2 && name == "prop":
		e.level = 3
	case e.level == 3 && name == "getcontentlength":
		e.text = &e.one.length
	case e.level == 3 && name == "getlastmodified":
		e.text = &e.one.modified
	case e.level == 3 && name == "getetag":
		e.text = &e.one.etag
	case e.level == 3 && name == "getcontenttype":
		e.text = &e.one.contentType
	case e.level == 3 && name == "resourcetype":
		e.level = 4
	case e.level == 4 && name == "collection":
		e.one.collection = true
		return false // there is nothing in it
	default:
		return false
	}
	return true
}

// leave ends the innermost element that was entered, and tells whether that was the response.
func (e *element) leave() bool {
	if e.text != nil {
		e.text = nil
		return false
	}
	if e.level == 2 && isFine(e.one.status) {
		e.known.merge(&e.one)
	}
	e.level--
	return e.level == 0
}

func (p *props) merge(more *props) {
	for _, f := range []struct{ to, from *string }{
		{&p.length, &more.length}, {&p.modified, &more.modified}, {&p.etag, &more.etag}, {&p.contentType, &more.contentType},
	} {
		if *f.from != "" {
			*f.to = *f.from
		}
	}
	p.collection = p.collection || more.collection
}

// resource reads what is known of it; nil if there is none.
func (e *element) resource() (*resource, error) {
	if !isFine(e.status) {
		return nil, nil
	}
	raw, err := pathOf(strings.TrimSpace(e.href))
	if err != nil {
		return nil, err
	}
	r := &resource{raw: raw, collection: e.known.collection || strings.HasSuffix(raw, "/"), info: muxcore.Info{Size: -1}}
	if r.path, err = url.PathUnescape(raw); err != nil {
		return nil, fmt.Errorf("href %q: %w", wire.Clip(e.href, maxShown), err)
	}
	if size, ok := wire.ParsePosition(strings.TrimSpace(e.known.length)); ok {
		r.info.Size = size
	}
	r.info.ETag = wire.ETag([]string{e.known.etag})
	r.info.ModTime = wire.Time(strings.TrimSpace(e.known.modified))
	r.info.ContentType = strings.TrimSpace(e.known.contentType)
	wire.Fields(&r.info.Attributes)
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
		return "", fmt.Errorf("href %q is not an absolute path", wire.Clip(href, maxShown))
	}
	return path, nil
}
