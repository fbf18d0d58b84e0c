package httpstore_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/webdav"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/httpstore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/storetest"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // a good part of what the suites cost is collecting short-lived bodies
	log.SetOutput(solicited{os.Stderr})
	goleak.VerifyTestMain(m)
}

// solicited leaves out of a log what net/http tells of bytes beyond an answer, which thousands of answers here have.
type solicited struct{ io.Writer }

func (s solicited) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("Unsolicited response received on idle HTTP channel")) {
		return len(line), nil
	}
	return s.Writer.Write(line)
}

// serve runs h until the test ends.
func serve(tb testing.TB, h http.Handler) string {
	tb.Helper()
	srv := httptest.NewServer(h)
	tb.Cleanup(srv.Close)
	return srv.URL
}

// open makes a store of settings.
func open(tb testing.TB, set httpstore.Settings) *httpstore.Store {
	tb.Helper()
	s, err := httpstore.New(set)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { s.Close() })
	return s
}

// origin is a small origin as RFC 9110 has them: GET, HEAD, PUT and DELETE, whole or not at all, under conditions.
type origin struct {
	mu      sync.Mutex
	objects map[string]*stored
}

type stored struct {
	body   []byte
	header http.Header
	at     time.Time
}

var keptFields = []string{"Content-Type", "Cache-Control", "Content-Disposition", "Content-Encoding", "Content-Language", "Expires"}

func (o *origin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := r.URL.EscapedPath()
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		o.mu.Lock()
		obj := o.objects[path]
		o.mu.Unlock()
		if obj == nil {
			http.NotFound(w, r)
			return
		}
		maps.Copy(w.Header(), obj.header)
		http.ServeContent(w, r, "", obj.at, bytes.NewReader(obj.body))
	case http.MethodPut:
		body, err := io.ReadAll(r.Body)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		o.put(w, r, path, body)
	case http.MethodDelete:
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.objects[path] == nil {
			http.NotFound(w, r)
			return
		}
		if !o.met(w, r, path) {
			return
		}
		delete(o.objects, path)
		w.WriteHeader(http.StatusNoContent)
	default:
		w.WriteHeader(http.StatusMethodNotAllowed)
	}
}

func (o *origin) put(w http.ResponseWriter, r *http.Request, path string, body []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.met(w, r, path) {
		return
	}
	sum := sha256.Sum256(body)
	obj := &stored{body: body, header: http.Header{"Etag": {`"` + hex.EncodeToString(sum[:8]) + `"`}}, at: time.Now()}
	for name, values := range r.Header {
		for _, kept := range keptFields {
			if name == kept || strings.HasPrefix(name, "X-Meta-") {
				obj.header[name] = values
			}
		}
	}
	status := http.StatusNoContent
	if o.objects[path] == nil {
		status = http.StatusCreated
	}
	if o.objects == nil {
		o.objects = make(map[string]*stored)
	}
	o.objects[path] = obj
	w.Header()["Etag"] = obj.header["Etag"]
	w.WriteHeader(status)
}

// met decides the conditions of a write.
func (o *origin) met(w http.ResponseWriter, r *http.Request, path string) bool {
	cond := muxcore.Conditions{IfMatch: r.Header.Get("If-Match"), IfNoneMatch: r.Header.Get("If-None-Match")}
	var info *muxcore.Info
	if obj := o.objects[path]; obj != nil {
		info = &muxcore.Info{ETag: obj.header.Get("Etag")}
	}
	if cond.CheckWrite(path, info) != nil {
		w.WriteHeader(http.StatusPreconditionFailed)
		return false
	}
	return true
}

// davFront makes golang.org/x/net/webdav an origin that keeps a PUT whole, answers 204 over an object as RFC 4918 says,
// and gives out one version of it: the handler writes in place, and answers 201 to every PUT. It keeps what it said to
// PROPFIND until something is written: the suite lists one tree thousands of times.
type davFront struct {
	dav webdav.Handler

	mu   sync.Mutex
	said map[string]*httptest.ResponseRecorder
}

func newDAV() *davFront {
	return &davFront{dav: webdav.Handler{FileSystem: webdav.NewMemFS(), LockSystem: webdav.NewMemLS()}}
}

func (f *davFront) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	f.mu.Lock()
	answer := f.answer(r)
	f.mu.Unlock()
	maps.Copy(w.Header(), answer.Header())
	w.WriteHeader(answer.Code)
	if answer.Code != http.StatusNoContent && answer.Code != http.StatusNotModified {
		_, _ = w.Write(answer.Body.Bytes())
	}
}

// answer must be called with f.mu held.
func (f *davFront) answer(r *http.Request) *httptest.ResponseRecorder {
	question := r.Header.Get("Depth") + " " + r.URL.Path
	if r.Method == "PROPFIND" && f.said[question] != nil {
		return f.said[question]
	}
	answer := httptest.NewRecorder()
	_, err := f.dav.FileSystem.Stat(r.Context(), r.URL.Path)
	f.dav.ServeHTTP(answer, r)
	switch r.Method {
	case "PROPFIND":
		if f.said == nil {
			f.said = make(map[string]*httptest.ResponseRecorder)
		}
		f.said[question] = answer
	case http.MethodGet, http.MethodHead, http.MethodOptions:
	default:
		f.said = nil
		if r.Method == http.MethodPut && answer.Code == http.StatusCreated && err == nil {
			answer.Code = http.StatusNoContent
		}
	}
	return answer
}

// village is one server for many origins, told apart by their hosts. A server that is closed waits for half a second if a
// request to it was broken off, and most checks break some off.
type village struct {
	url string

	mu    sync.Mutex
	hosts map[string]http.Handler
}

func newVillage(tb testing.TB) *village {
	tb.Helper()
	v := &village{hosts: make(map[string]http.Handler)}
	v.url = serve(tb, v)
	return v
}

func (v *village) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v.mu.Lock()
	h := v.hosts[r.Host]
	v.mu.Unlock()
	h.ServeHTTP(w, r)
}

// settle adds an origin, and gives the settings of a store for it.
func (v *village) settle(h http.Handler) httpstore.Settings {
	v.mu.Lock()
	defer v.mu.Unlock()
	host := fmt.Sprintf("origin-%d.example", len(v.hosts))
	v.hosts[host] = h
	return httpstore.Settings{BaseURL: v.url, Header: http.Header{"Host": {host}}}
}

func TestConformanceOnAnOrigin(t *testing.T) {
	t.Parallel()
	origins := newVillage(t)
	storetest.Run(t, storetest.Harness{
		TimeResolution: time.Second,
		Timeout:        3 * time.Minute, // for the race detector on a busy machine
		Parallel:       true,
		New: func(tb testing.TB) muxcore.Store {
			set := origins.settle(new(origin))
			set.BaseURL += "/a%20base"
			set.ConditionalWrite = true
			s := open(tb, set)
			for _, err := range s.List(tb.Context(), muxcore.ListOptions{}) { // makes it known that it cannot
				if !errors.Is(err, errors.ErrUnsupported) {
					tb.Errorf("List of an origin without PROPFIND = %v, want one that is not supported", err)
				}
			}
			return s
		},
	})
}

func TestConformanceOnWebDAV(t *testing.T) {
	t.Parallel()
	origins := newVillage(t)
	storetest.Run(t, storetest.Harness{
		TimeResolution: time.Second,
		Timeout:        3 * time.Minute, // for the race detector on a busy machine
		Parallel:       true,
		New:            func(tb testing.TB) muxcore.Store { return open(tb, origins.settle(newDAV())) },
	})
}
