package integration_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"time"

	"github.com/suaveplan/caddy-storage-mux/integration/origin"
	"github.com/suaveplan/caddy-storage-mux/integration/rig"
)

// question is one request.
type question struct {
	method, key, rng, ifRange string
}

func (s *storm) question(r *rand.Rand) question {
	q := question{method: http.MethodGet, key: s.keys[r.IntN(len(s.keys))]}
	obj := s.objects[q.key][0]
	switch r.IntN(8) {
	case 0:
		q.method = http.MethodHead
	case 1, 2:
		from := r.IntN(len(obj.body) + 1)
		q.rng = fmt.Sprintf("bytes=%d-%d", from, from+r.IntN(len(obj.body)+1))
	case 3:
		q.rng = fmt.Sprintf("bytes=-%d", 1+r.IntN(len(obj.body)+1))
	case 4:
		third := len(obj.body)/3 + 1
		q.rng = fmt.Sprintf("bytes=%d-%d,%d-%d", r.IntN(third), third+r.IntN(third), 2*third, 2*third+r.IntN(third))
	}
	if q.rng != "" && r.IntN(3) == 0 {
		q.ifRange = obj.etag
	}
	return q
}

// exchange sends a request and checks every byte of the answer. how tells why it did not come whole; an error is an
// answer that is wrong.
func (s *storm) exchange(client *http.Client, url string, q question) (how string, err error) {
	req, err := http.NewRequestWithContext(context.Background(), q.method, url+q.key, nil)
	if err != nil {
		return "", err
	}
	if q.rng != "" {
		req.Header.Set("Range", q.rng)
	}
	if q.ifRange != "" {
		req.Header.Set("If-Range", q.ifRange)
	}
	began := time.Now()
	resp, err := client.Do(req)
	if err != nil {
		return s.unanswered(err, began), nil
	}
	defer resp.Body.Close()
	body, broke := io.ReadAll(resp.Body)
	switch {
	case resp.StatusCode >= 500:
		return fmt.Sprint(resp.StatusCode), nil
	case resp.StatusCode == http.StatusRequestedRangeNotSatisfiable:
		for _, obj := range s.objects[q.key] {
			if q.oracle(obj).StatusCode == resp.StatusCode {
				return "", nil
			}
		}
		return "", errors.New("416, which no version is")
	}
	for _, obj := range s.objects[q.key] {
		if obj.etag != resp.Header.Get("Etag") {
			continue
		}
		how, err = q.judge(obj, resp, body, broke)
		if how != "" && obj.etag != s.objects[q.key][0].etag {
			how = stormGone
		}
		return how, err
	}
	return "", fmt.Errorf("%d with ETag %q, which no version has", resp.StatusCode, resp.Header.Get("Etag"))
}

// unanswered tells why there is not even a head: what a lie breaks off early may take with it the head that still waits
// to be sent.
func (s *storm) unanswered(err error, began time.Time) string {
	var late net.Error
	if errors.As(err, &late) && late.Timeout() || errors.Is(err, syscall.ECONNREFUSED) || !s.liedTo(began) {
		return fmt.Sprintf("no answer: %.60s", stormPorts.ReplaceAllString(err.Error(), "-"))
	}
	return stormLied
}

// oracle is the answer that net/http would give.
func (q question) oracle(obj stormObject) *http.Response {
	r := httptest.NewRequest(q.method, q.key, nil)
	if q.rng != "" {
		r.Header.Set("Range", q.rng)
	}
	if q.ifRange != "" {
		r.Header.Set("If-Range", q.ifRange)
	}
	w := httptest.NewRecorder()
	w.Header().Set("Etag", obj.etag)
	w.Header().Set("Content-Type", stormType)
	http.ServeContent(w, r, q.key, origin.Epoch, bytes.NewReader(obj.body))
	return w.Result()
}

const (
	stormLied = "broken off after a lie"
	stormGone = "broken off with its version gone" // only origins in the storm ever had it
	stormType = "application/octet-stream"
	stormLie  = 1000 // the most that an origin declares too much
)

// judge compares an answer that claims to be of obj. A range may be answered by the whole; a length that is too large may
// be an origin's lie, if the answer then breaks off.
func (q question) judge(obj stormObject, resp *http.Response, body []byte, broke error) (how string, err error) {
	if q.method == http.MethodHead {
		if len(body) > 0 || resp.StatusCode/100 != 2 {
			return "", fmt.Errorf("HEAD is %d with a body of %d", resp.StatusCode, len(body))
		}
		return "", nil
	}
	want, lie := obj.body, 0
	switch resp.StatusCode {
	case http.StatusOK:
		lie = stormLie
	case http.StatusPartialContent:
		oracle := q.oracle(obj)
		if want, err = io.ReadAll(oracle.Body); err != nil {
			return "", err
		}
		ours, theirs := boundaryOf(resp), boundaryOf(oracle)
		if want = bytes.ReplaceAll(want, []byte(theirs), []byte(ours)); theirs == "" {
			want = bytes.Clone(want)
		}
		if oracle.StatusCode != resp.StatusCode || oracle.Header.Get("Content-Range") != resp.Header.Get("Content-Range") || (ours == "") != (theirs == "") {
			return "", fmt.Errorf("206 %q, want %d %q", resp.Header.Get("Content-Range"), oracle.StatusCode, oracle.Header.Get("Content-Range"))
		}
	default:
		return "", fmt.Errorf("status %d", resp.StatusCode)
	}
	if n := resp.ContentLength; n >= 0 && (n < int64(len(want)) || n > int64(len(want)+lie)) {
		return "", fmt.Errorf("Content-Length %d, want %d", n, len(want))
	}
	if broke != nil {
		if err := rig.Same(body, want[:min(len(want), len(body))]); err != nil {
			return "", fmt.Errorf("before it broke off: %w", err)
		}
		if resp.ContentLength != int64(len(want)) {
			return stormLied, nil
		}
		return "broken off", nil
	}
	return "", rig.Same(body, want)
}

// boundaryOf is the boundary of a multipart answer, or "".
func boundaryOf(resp *http.Response) string {
	_, boundary, _ := strings.Cut(resp.Header.Get("Content-Type"), "multipart/byteranges; boundary=")
	return boundary
}
