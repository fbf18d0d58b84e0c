package caddymux

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

const (
	defaultListLimit = 1000

	// maxListLimit bounds what one answer holds; a larger limit is answered with this many, and with where to go on.
	maxListLimit = 10000
)

// listAnswer is the answer to GET ?list.
type listAnswer struct {
	Objects  []listObject `json:"objects"`
	Prefixes []string     `json:"prefixes"`
	Next     string       `json:"next,omitempty"`
	Degraded []string     `json:"degraded"`

	last string // shown; a hidden one must not be where to go on from
}

type listObject struct {
	Key          string     `json:"key"`
	Size         *int64     `json:"size,omitempty"`
	ETag         string     `json:"etag,omitempty"`
	LastModified *time.Time `json:"last_modified,omitempty"`
	ContentType  string     `json:"content_type,omitempty"`
}

// wantsList tells whether the request asks for a list.
func (x *exchange) wantsList() bool {
	return !x.plain && strings.Contains(x.r.URL.RawQuery, "list") && x.r.URL.Query().Has("list")
}

// list answers GET ?list. The answer is bounded, and made before its first byte goes out, so that an error still is one.
func (x *exchange) list() error {
	prefix, err := x.prefix()
	if err != nil {
		return x.fail(err)
	}
	folder, err := x.readKey()
	if err != nil {
		return x.fail(err)
	}
	if folder != "" && !strings.HasSuffix(folder, "/") {
		return x.refuse(http.StatusBadRequest, "list: the path is the prefix, and must end in a slash")
	}
	limit, opts, err := listOptions(x.r.URL.Query(), prefix)
	if err != nil {
		return x.refuse(http.StatusBadRequest, "list: %w", err)
	}
	opts.Prefix, opts.Details, opts.Limit = folder, true, limit+1
	answer := listAnswer{Objects: []listObject{}, Prefixes: []string{}, Degraded: []string{}}
	opts.OnDegraded = func(backend string, _ error) { answer.Degraded = append(answer.Degraded, backend) }
	if err := x.collect(&answer, opts, limit, prefix); err != nil {
		return x.fail(err)
	}
	slices.Sort(answer.Degraded)
	answer.Degraded = slices.Compact(answer.Degraded)
	x.answered(muxcore.Via{})
	return x.sendJSON(&answer)
}

// listOptions reads the query.
func listOptions(query url.Values, prefix string) (limit int, opts muxcore.ListOptions, err error) {
	limit = defaultListLimit
	if word := query.Get("limit"); word != "" || query.Has("limit") {
		limit, err = strconv.Atoi(word)
		if err != nil || limit < 1 {
			return 0, opts, fmt.Errorf("limit: must be a number >= 1, got %q", word)
		}
		limit = min(limit, maxListLimit)
	}
	opts.Delimiter = query.Get("delimiter")
	if err := muxcore.CheckPrefix("x" + opts.Delimiter + "x"); opts.Delimiter != "" && err != nil {
		return 0, opts, fmt.Errorf("delimiter: %q cannot be in a key", opts.Delimiter)
	}
	if after := query.Get("after"); after != "" {
		if err := muxcore.CheckPrefix(strings.TrimSuffix(after, "/")); err != nil {
			return 0, opts, fmt.Errorf("after: %w", err)
		}
		opts.After = prefix + after
	}
	return limit, opts, nil
}

// collect fills the answer with what is not hidden, up to limit entries. It asks for no more than that, and again where
// something was hidden.
func (x *exchange) collect(answer *listAnswer, opts muxcore.ListOptions, limit int, prefix string) error {
	for more := true; more && answer.Next == ""; {
		seen := 0
		err := x.page(answer, &opts, limit, prefix, &seen)
		if err != nil {
			return err
		}
		more = seen == opts.Limit
	}
	return nil
}

// page takes one list of the tree into the answer, and leaves opts where the next one begins.
func (x *exchange) page(answer *listAnswer, opts *muxcore.ListOptions, limit int, prefix string, seen *int) error {
	last := opts.After
	defer func() { opts.After = last }()
	for entry, err := range x.t.store.List(x.r.Context(), *opts) {
		if err != nil {
			return err
		}
		*seen++
		last = entry.Key
		if x.hides(entry.Key) {
			continue
		}
		if len(answer.Objects)+len(answer.Prefixes) == limit {
			answer.Next = answer.last
			return nil
		}
		key := strings.TrimPrefix(entry.Key, prefix)
		answer.last = key
		if entry.IsPrefix {
			answer.Prefixes = append(answer.Prefixes, key)
			continue
		}
		answer.Objects = append(answer.Objects, describeEntry(&entry.Info, key))
	}
	return nil
}

func describeEntry(info *muxcore.Info, key string) listObject {
	o := listObject{Key: key, ETag: info.ETag, ContentType: info.ContentType}
	if info.Size >= 0 {
		size := info.Size
		o.Size = &size
	}
	if usefulModTime(info.ModTime) {
		at := info.ModTime.UTC().Truncate(time.Second)
		o.LastModified = &at
	}
	return o
}

// sendJSON answers with a value. Keys stay raw UTF-8.
func (x *exchange) sendJSON(value any) error {
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(value); err != nil {
		return x.fail(err)
	}
	h := x.w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(body.Len()))
	x.w.WriteHeader(http.StatusOK)
	if x.method == http.MethodHead {
		return nil
	}
	if _, err := body.WriteTo(x.w); err != nil {
		x.sink.gone = true
		x.abort(err)
	}
	return nil
}
