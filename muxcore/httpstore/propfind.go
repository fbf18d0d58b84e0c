package httpstore

import (
	"context"
	"io"
	"maps"
	"net/http"
	"strings"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/internal/wire"
)

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
	resp, err := s.exchange(ctx, op, key, req) //nolint:bodyclose // drained, or taken over
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusMultiStatus {
		s.dav.set(true, s.now())
		return newMultistatus(ctx, op, key, resp), nil
	}
	wire.Drain(resp)
	if resp.StatusCode < 300 {
		return nil, &muxcore.Error{Code: muxcore.CodeUnsupported, Op: op, Key: key, Status: resp.StatusCode}
	}
	return nil, s.refused(op, key, resp)
}
