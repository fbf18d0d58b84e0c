package origin

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// tagSerial makes the changing entity tags of all origins differ.
var tagSerial atomic.Int64

// ServeHTTP answers one request as the faults of the moment say.
func (o *Origin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	entry, f, changed := o.record(r)
	over := waiter{done: []<-chan struct{}{r.Context().Done(), changed, o.closed}}
	if f.Delay > 0 {
		over.pause(f.Delay)
	}
	switch {
	case f.Drop:
		reset(w)
	case f.Hang:
		over.wait()
		panic(http.ErrAbortHandler)
	case f.Early != 0:
		w.Header().Set("Connection", "close")
		w.WriteHeader(f.Early)
		return
	}
	for name, values := range f.Header {
		w.Header()[name] = slices.Clone(values)
	}
	switch {
	case f.Redirect != "":
		http.Redirect(w, r, f.Redirect, http.StatusFound)
	case f.Status != 0:
		_, _ = o.readBody(r, entry)
		w.WriteHeader(f.Status)
		_, _ = io.WriteString(w, f.Body)
	default:
		o.serveObject(&faultyWriter{ResponseWriter: w, f: &f, over: over}, r, &f, entry)
	}
}

// serveObject does what the method asks for.
func (o *Origin) serveObject(w *faultyWriter, r *http.Request, f *Faults, entry *Request) {
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		o.read(w, r, f)
	case http.MethodPut:
		o.write(w, r, entry)
	case http.MethodDelete:
		o.mu.Lock()
		_, had := o.objects[r.URL.Path]
		delete(o.objects, r.URL.Path)
		o.mu.Unlock()
		if !had {
			http.NotFound(w, r)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	default:
		w.Header().Set("Allow", "GET, HEAD, PUT, DELETE")
		w.WriteHeader(http.StatusMethodNotAllowed)
	}
}

// read serves an object; net/http decides about ranges and preconditions.
func (o *Origin) read(w *faultyWriter, r *http.Request, f *Faults) {
	obj, ok := o.Object(r.URL.Path)
	if !ok {
		http.NotFound(w, r)
		return
	}
	h := w.Header()
	for name, values := range obj.Header {
		h[name] = slices.Clone(values)
	}
	if tag := f.ETag.of(obj.ETag); tag != "" {
		h.Set("ETag", tag)
	}
	modTime := obj.ModTime
	if f.NoLastModified {
		modTime = time.Time{}
	}
	body := obj.Body
	if f.Gzip {
		body = zipped(body)
		h.Set("Content-Encoding", "gzip")
		h.Set("Content-Length", strconv.Itoa(len(body)))
		r.Header.Del("Range")
	}
	if f.IgnoreRange {
		r.Header.Del("Range")
	}
	if f.Shift != 0 && r.Header.Get("Range") != "" {
		serveShifted(w, r, body, f.Shift)
		return
	}
	http.ServeContent(w, r, r.URL.Path, modTime, bytes.NewReader(body))
}

// of returns the entity tag to send for an object's own.
func (m ETagMode) of(tag string) string {
	switch m {
	case ETagChanging:
		return fmt.Sprintf(`"changing-%d"`, tagSerial.Add(1))
	case ETagWeak:
		return "W/" + tag
	case ETagUnquoted:
		return strings.Trim(tag, `"`)
	case ETagNone:
		return ""
	default:
		return tag
	}
}

// serveShifted answers "bytes=a-" and "bytes=a-b" from a later offset than asked.
func serveShifted(w http.ResponseWriter, r *http.Request, body []byte, shift int64) {
	first, _, _ := strings.Cut(strings.TrimPrefix(r.Header.Get("Range"), "bytes="), "-")
	start, err := strconv.ParseInt(first, 10, 64)
	size := int64(len(body))
	if err != nil || start+shift < 0 || start+shift >= size {
		w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
		return
	}
	start += shift
	w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", start, size-1, size))
	w.Header().Set("Content-Length", strconv.FormatInt(size-start, 10))
	w.WriteHeader(http.StatusPartialContent)
	_, _ = w.Write(body[start:])
}

// write stores a whole body; what breaks off leaves nothing behind.
func (o *Origin) write(w http.ResponseWriter, r *http.Request, entry *Request) {
	old, had := o.Object(r.URL.Path)
	if inm := r.Header.Get("If-None-Match"); had && (inm == "*" || inm == old.ETag) {
		w.WriteHeader(http.StatusPreconditionFailed)
		return
	}
	if im := r.Header.Get("If-Match"); im != "" && (!had || (im != "*" && im != old.ETag)) {
		w.WriteHeader(http.StatusPreconditionFailed)
		return
	}
	body, err := o.readBody(r, entry)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	obj := Object{Body: body, ModTime: time.Now().UTC().Truncate(time.Second), Header: stored(r.Header)}
	o.Put(r.URL.Path, obj)
	w.Header().Set("ETag", Tag(body))
	if had {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	w.WriteHeader(http.StatusCreated)
}

// stored picks the headers that are kept with an object.
func stored(h http.Header) http.Header {
	kept := make(http.Header)
	for name, values := range h {
		switch name {
		case "Content-Type", "Cache-Control", "Content-Disposition", "Content-Encoding", "Content-Language", "Expires":
			kept[name] = slices.Clone(values)
		default:
			if strings.HasPrefix(name, "X-Meta-") {
				kept[name] = slices.Clone(values)
			}
		}
	}
	return kept
}

// zipped returns b gzip-coded.
func zipped(b []byte) []byte {
	var buf bytes.Buffer
	z := gzip.NewWriter(&buf)
	_, _ = z.Write(b)
	_ = z.Close()
	return buf.Bytes()
}

// reset ends the connection with an RST and the handler with it.
func reset(w http.ResponseWriter) {
	if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
		if c, ok := conn.(interface{ SetLinger(sec int) error }); ok {
			_ = c.SetLinger(0)
		}
		_ = conn.Close()
	}
	panic(http.ErrAbortHandler)
}
