package s3fake

import (
	"crypto/md5" // S3's ETag
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/suaveplan/caddy-storage-mux/internal/fake"
)

// object is an object.
type object struct {
	body   []byte
	header http.Header
	tag    string
	at     time.Time
}

const (
	storageClass = "X-Amz-Storage-Class"
	metaPrefix   = "X-Amz-Meta-"
	metaLimit    = 2 << 10
)

// Put makes an object, as somebody else would.
func (s *Service) Put(bucket, key, body string, header http.Header) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buckets[bucket][key] = &object{body: []byte(body), header: header, tag: tagOf([]byte(body)), at: now()}
}

// Header is what is kept with an object, nil if there is none.
func (s *Service) Header(bucket, key string) http.Header {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.buckets[bucket][key]; o != nil {
		return o.header
	}
	return nil
}

// Keys lists a bucket.
func (s *Service) Keys(bucket string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.buckets[bucket]))
}

func tagOf(body []byte) string {
	sum := md5.Sum(body)
	return `"` + hex.EncodeToString(sum[:]) + `"`
}

// described is what a request says about the object that it makes.
func described(r *http.Request) (http.Header, *Refusal) {
	h, size := make(http.Header), 0
	for name, values := range r.Header {
		if rest, ok := strings.CutPrefix(name, metaPrefix); ok {
			h[name] = []string{strings.Join(values, ",")}
			size += len(rest) + len(h[name][0])
		}
	}
	if size > metaLimit {
		return nil, Refuse(http.StatusBadRequest, "MetadataTooLarge", "Your metadata headers exceed the maximum allowed metadata size")
	}
	fake.Keep(h, r.Header)
	if class := r.Header.Get(storageClass); class != "" {
		h[storageClass] = []string{class}
	}
	return h, nil
}

// meets decides the conditions of a write, nil if they hold. It must be called with s.mu held.
func (s *Service) meets(r *http.Request, o *object) *Refusal {
	if s.ignores[r.Method] {
		return nil
	}
	if v := r.Header.Get("If-None-Match"); v != "" {
		switch {
		case v != "*" || r.Method == http.MethodDelete:
			return Refuse(http.StatusNotImplemented, "NotImplemented", "A header you provided implies functionality that is not implemented")
		case o != nil:
			return Refuse(http.StatusPreconditionFailed, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold")
		}
	}
	if v := r.Header.Get("If-Match"); v != "" {
		switch {
		case o == nil:
			return missing()
		case v != o.tag:
			return Refuse(http.StatusPreconditionFailed, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold")
		}
	}
	return nil
}

func missing() *Refusal {
	return Refuse(http.StatusNotFound, "NoSuchKey", "The specified key does not exist.")
}

func (s *Service) put(w http.ResponseWriter, r *http.Request, objects map[string]*object, key string) *Refusal {
	header, refusal := described(r)
	if refusal != nil {
		return refusal
	}
	s.mu.Lock()
	refusal = s.meets(r, objects[key])
	s.mu.Unlock()
	if refusal != nil {
		return refusal
	}
	body, refusal := whole(r)
	if refusal != nil {
		return refusal
	}
	made := &object{body: body, header: header, tag: tagOf(body), at: now()}
	s.mu.Lock()
	defer s.mu.Unlock()
	if refusal := s.meets(r, objects[key]); refusal != nil {
		return refusal
	}
	objects[key] = made
	w.Header()["ETag"] = []string{made.tag}
	return nil
}

func (s *Service) get(w http.ResponseWriter, r *http.Request, objects map[string]*object, key string) *Refusal {
	s.mu.Lock()
	o, noList := objects[key], s.noList
	s.mu.Unlock()
	if o == nil {
		if noList {
			return denied("AccessDenied", "Access Denied")
		}
		return missing()
	}
	maps.Copy(w.Header(), o.header)
	w.Header()["Etag"] = []string{o.tag}
	if len(o.body) == 0 && r.Header.Get("Range") != "" {
		w.Header().Set("Content-Range", "bytes */0")
		return Refuse(http.StatusRequestedRangeNotSatisfiable, "InvalidRange", "The requested range is not satisfiable")
	}
	fake.Content(w, r, o.at, o.body)
	return nil
}

func (s *Service) delete(w http.ResponseWriter, r *http.Request, objects map[string]*object, key string) *Refusal {
	s.mu.Lock()
	defer s.mu.Unlock()
	if refusal := s.meets(r, objects[key]); refusal != nil {
		return refusal
	}
	delete(objects, key)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func count(n int, of []byte) string {
	sum := md5.Sum(of)
	return fmt.Sprintf(`"%x-%d"`, sum, n)
}
