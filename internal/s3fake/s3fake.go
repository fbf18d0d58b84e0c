// Package s3fake is a small S3 service in memory, for tests. It does what Amazon's documents say of the requests that
// s3store makes, as strictly: every request is signed with version 4 of the signature, which is checked here without the
// library that made it, and what is only a checksum trailer or a chunk signature away is refused. What a real server does is
// tested against versitygw.
package s3fake

import (
	"encoding/xml"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/suaveplan/caddy-storage-mux/internal/fake"
)

// What a client needs.
const (
	AccessKey = "AKIAFAKE"
	SecretKey = "fake/Secret+Key"
	Region    = "us-east-1"
)

// Service is a service with its buckets. It is safe for concurrent use.
type Service struct {
	fake.Server

	mu      sync.Mutex
	buckets map[string]map[string]*object
	uploads map[string]*upload
	made    int
	region  string
	tokens  map[string]bool // session tokens that are taken
	ignores map[string]bool // methods whose conditions are noise
	noList  bool
	minPart int
	fail    func(*http.Request) *Refusal
}

// New starts a service with buckets, until the test ends.
func New(tb testing.TB, buckets ...string) *Service {
	tb.Helper()
	s := &Service{
		buckets: make(map[string]map[string]*object), uploads: make(map[string]*upload), region: Region,
		tokens: map[string]bool{"": true}, ignores: make(map[string]bool), minPart: 5 << 20,
	}
	for _, name := range buckets {
		s.AddBucket(name)
	}
	s.Listen(tb, s)
	return s
}

// AddBucket makes a bucket.
func (s *Service) AddBucket(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buckets[name] = make(map[string]*object)
}

// Move puts the service into another region.
func (s *Service) Move(region string) { fake.Set(&s.mu, &s.region, region) }

// Tokens are the session tokens that are taken from now on, "" for requests without one.
func (s *Service) Tokens(tokens ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.tokens)
	for _, token := range tokens {
		s.tokens[token] = true
	}
}

// Ignore makes conditions noise in requests of these methods: PUT, POST (which completes an upload by parts), DELETE.
func (s *Service) Ignore(methods ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.ignores)
	for _, method := range methods {
		s.ignores[method] = true
	}
}

// NoList takes the right to list away: then nobody is told that a key is missing.
func (s *Service) NoList(on bool) { fake.Set(&s.mu, &s.noList, on) }

// MinPart is the least size of a part that is not the last. It is 5 MiB to begin with.
func (s *Service) MinPart(size int) { fake.Set(&s.mu, &s.minPart, size) }

// Fail answers requests for which f gives a refusal with that; nil ends it.
func (s *Service) Fail(f func(*http.Request) *Refusal) { fake.Set(&s.mu, &s.fail, f) }

// Uploads are the uploads by parts that were begun and have not ended.
func (s *Service) Uploads() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.uploads)
}

// Refusal is an error of the service.
type Refusal struct {
	XMLName xml.Name    `xml:"Error"`
	Status  int         `xml:"-"`
	Header  http.Header `xml:"-"`
	Code    string
	Message string
	Region  string `xml:",omitempty"`
}

// Refuse makes a refusal.
func Refuse(status int, code, message string) *Refusal {
	return &Refusal{Status: status, Code: code, Message: message}
}

func (r *Refusal) write(w http.ResponseWriter) {
	maps.Copy(w.Header(), r.Header)
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(r.Status)
	text, _ := xml.Marshal(r)
	_, _ = fmt.Fprintf(w, "%s%s", xml.Header, text)
}

// ServeHTTP implements http.Handler.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.Note(r)
	s.mu.Lock()
	fail := s.fail
	s.mu.Unlock()
	if fail != nil {
		if refusal := fail(r); refusal != nil {
			refusal.write(w)
			return
		}
	}
	if refusal := s.serve(w, r); refusal != nil {
		refusal.write(w)
	}
}

// serve checks what is common to all requests, and finds out what is asked for.
func (s *Service) serve(w http.ResponseWriter, r *http.Request) *Refusal {
	if refusal := s.admit(r); refusal != nil {
		return refusal
	}
	bucket, key := s.place(r)
	s.mu.Lock()
	objects, ok := s.buckets[bucket]
	s.mu.Unlock()
	if !ok {
		return Refuse(http.StatusNotFound, "NoSuchBucket", "The specified bucket does not exist")
	}
	q := r.URL.Query()
	switch {
	case key == "" && r.Method == http.MethodHead:
		return nil
	case key == "" && r.Method == http.MethodGet:
		return s.list(w, q, objects)
	case key == "":
		return Refuse(http.StatusMethodNotAllowed, "MethodNotAllowed", "The specified method is not allowed against this resource.")
	case len(key) > 1024:
		return Refuse(http.StatusBadRequest, "KeyTooLongError", "Your key is too long.")
	case q.Has("uploads"), q.Has("uploadId"):
		return s.byParts(w, r, objects, bucket, key)
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		return s.get(w, r, objects, key)
	case http.MethodPut:
		return s.put(w, r, objects, key)
	case http.MethodDelete:
		return s.delete(w, r, objects, key)
	}
	return Refuse(http.StatusMethodNotAllowed, "MethodNotAllowed", "The specified method is not allowed against this resource.")
}

// place finds the bucket, in the name of the host or in the path, and the key.
func (s *Service) place(r *http.Request) (bucket, key string) {
	path := strings.TrimPrefix(r.URL.Path, "/")
	if bucket, ok := strings.CutSuffix(r.Host, "."+strings.TrimPrefix(s.URL, "http://")); ok {
		return bucket, path
	}
	bucket, key, _ = strings.Cut(path, "/")
	return bucket, key
}

// now is the time in a field.
func now() time.Time { return time.Now().UTC().Truncate(time.Second) }
