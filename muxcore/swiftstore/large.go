package swiftstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/internal/wire"
)

const (
	maxManifest = 16 << 20 // the longest manifest that is read
	sweepers    = 4        // segments deleted at the same time
)

// manifest is what an answer's header says of a large object.
type manifest struct {
	static bool
	prefix string // of a dynamic one: container and prefix of its segments, as Swift has them
}

// largeOf reads whether an object is a large one.
func largeOf(h http.Header) (manifest, bool) {
	if strings.EqualFold(wire.First(h, "X-Static-Large-Object"), "true") {
		return manifest{static: true}, true
	}
	where := wire.First(h, "X-Object-Manifest")
	prefix, _ := url.PathUnescape(where) // "" for what cannot be read: it is a large one all the same, with segments nobody knows
	return manifest{prefix: prefix}, where != ""
}

// previous is what a write finds in its place.
type previous struct {
	there    bool
	static   bool
	segments []segment // of a large object, to be deleted when it is gone
}

// segment is an object that others are made of.
type segment struct {
	container, name string
	nested          bool // a static large object itself
}

// look tells what is at key before a write.
func (s *Store) look(ctx context.Context, op muxcore.Op, key string) (previous, error) {
	q := s.ask(op, http.MethodHead, key)
	resp, err := s.send(ctx, q) //nolint:bodyclose // drained below
	if err != nil {
		return previous{}, err
	}
	wire.Drain(resp)
	switch {
	case resp.StatusCode == http.StatusNotFound && op == muxcore.OpPut:
		return previous{}, nil
	case resp.StatusCode == http.StatusNotFound:
		return previous{}, s.missing(ctx, q, resp)
	case resp.StatusCode == http.StatusForbidden && op == muxcore.OpPut:
		return previous{}, nil // some may write what they may not read
	case resp.StatusCode >= 300:
		return previous{}, s.refused(q, resp)
	}
	m, large := largeOf(resp.Header)
	old := previous{there: true, static: m.static}
	switch {
	case !large:
	case !m.static:
		old.segments, err = s.dynamicSegments(ctx, q, m.prefix)
	case op == muxcore.OpPut: // Delete leaves it to Swift
		old.segments, err = s.staticSegments(ctx, q)
	}
	return old, err
}

// staticSegments reads a static manifest.
func (s *Store) staticSegments(ctx context.Context, about *question) ([]segment, error) {
	q := *about
	q.method, q.query = http.MethodGet, url.Values{"multipart-manifest": {"get"}}
	resp, err := s.send(ctx, &q) //nolint:bodyclose // drained below
	if err != nil {
		return nil, err
	}
	defer wire.Drain(resp)
	if resp.StatusCode != http.StatusOK {
		return nil, s.refused(&q, resp)
	}
	type part struct {
		Name   string `json:"name"`
		Nested bool   `json:"sub_slo"`
	}
	var segments []segment
	err = wire.EachEntry(io.LimitReader(resp.Body, maxManifest), func(p *part) {
		if container, name, ok := strings.Cut(strings.TrimPrefix(p.Name, "/"), "/"); ok {
			segments = append(segments, segment{container: container, name: name, nested: p.Nested})
		}
	})
	if err != nil {
		return nil, q.unread(ctx, "the manifest", err)
	}
	return segments, nil
}

var (
	errNoSegment    = errors.New("the list of the object's segments has others in it")
	errManySegments = errors.New("the list of the object's segments does not end")
)

// dynamicSegments lists the segments of a dynamic manifest, none where its prefix may take other objects with them.
func (s *Store) dynamicSegments(ctx context.Context, q *question, manifest string) ([]segment, error) {
	container, prefix, _ := strings.Cut(strings.TrimPrefix(manifest, "/"), "/")
	if prefix == "" || container == s.set.Container && !strings.HasSuffix(prefix, "/") {
		return nil, nil
	}
	var segments []segment
	for marker := ""; ; {
		page, err := s.page(ctx, &pageQuestion{op: q.op, key: q.key, container: container, prefix: prefix, marker: marker, limit: pageSize})
		if errors.Is(err, errNoSuchContainer) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		for _, e := range page {
			if !strings.HasPrefix(e.Name, prefix) { // what is listed here is deleted
				return nil, &muxcore.Error{Code: muxcore.CodeUnavailable, Op: q.op, Key: q.key, Err: errNoSegment}
			}
			segments = append(segments, segment{container: container, name: e.Name})
		}
		if len(page) < pageSize {
			return segments, nil
		}
		last := page[len(page)-1].Name
		if last <= marker || len(segments) > wire.MaxMembers {
			return nil, &muxcore.Error{Code: muxcore.CodeUnavailable, Op: q.op, Key: q.key, Err: errManySegments}
		}
		marker = last
	}
}

// sweep deletes the segments of an object that is no more. What has gone already is fine.
func (s *Store) sweep(ctx context.Context, key string, segments []segment) error {
	var (
		work = make(chan segment)
		wg   sync.WaitGroup
		mu   sync.Mutex
		errs []error
	)
	for range min(sweepers, len(segments)) {
		wg.Go(func() {
			for seg := range work {
				if err := s.sweepOne(ctx, key, seg); err != nil && !errors.Is(err, muxcore.ErrKeyNotFound) {
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
				}
			}
		})
	}
	for _, seg := range segments {
		if seg.container != s.set.Container || seg.name != s.prefix.Path(key) {
			work <- seg
		}
	}
	close(work)
	wg.Wait()
	if errs != nil {
		return &muxcore.Error{
			Code: muxcore.CodeUnavailable, Op: muxcore.OpDelete, Key: key,
			Err: fmt.Errorf("%d of %d segments of the object are left: %w", len(errs), len(segments), errs[0]),
		}
	}
	return nil
}

func (s *Store) sweepOne(ctx context.Context, key string, seg segment) error {
	q := &question{op: muxcore.OpDelete, key: key, method: http.MethodDelete, container: seg.container, object: seg.name}
	if seg.nested {
		return s.deleteStatic(ctx, q)
	}
	resp, err := s.send(ctx, q) //nolint:bodyclose // drained, or taken over
	if err != nil {
		return err
	}
	wire.Drain(resp)
	if resp.StatusCode >= 300 {
		return s.refused(q, resp)
	}
	return nil
}

// deleteStatic deletes a static large object with its segments. Swift does so one by one, the manifest last, and tells in
// the body of a 200 how it went.
func (s *Store) deleteStatic(ctx context.Context, about *question) error {
	q := *about
	q.query = url.Values{"multipart-manifest": {"delete"}}
	q.header = http.Header{"Accept": {"application/json"}}
	resp, err := s.send(ctx, &q) //nolint:bodyclose // drained, or taken over
	if err != nil {
		return err
	}
	defer wire.Drain(resp)
	switch {
	case resp.StatusCode == http.StatusNotFound:
		return s.missing(ctx, &q, resp)
	case resp.StatusCode == http.StatusNoContent:
		return nil
	case resp.StatusCode != http.StatusOK:
		return s.refused(&q, resp)
	}
	var report struct {
		Status string     `json:"Response Status"`
		Errors [][]string `json:"Errors"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxManifest)).Decode(&report); err != nil {
		return q.unread(ctx, "how the deletion of the segments went", err)
	}
	if !strings.HasPrefix(report.Status, "200") || len(report.Errors) > 0 {
		return &muxcore.Error{
			Code: muxcore.CodeUnavailable, Op: q.op, Key: q.key,
			Err: fmt.Errorf("the cluster could not delete all segments: %q, %d errors", wire.Clip(report.Status, 100), len(report.Errors)),
		}
	}
	return nil
}
