package origin

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"log"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/suaveplan/caddy-storage-mux/integration/rig"
)

// Object is what an origin holds under a path.
type Object struct {
	Body    []byte
	ETag    string // with its quotes
	ModTime time.Time
	Header  http.Header // sent with the object, Content-Type included
}

// Request is one request as the origin saw it.
type Request struct {
	Line   string // the request line as it came, such as "GET /a%20b HTTP/1.1"
	Method string
	Target string // the request target as it came
	Path   string // decoded once
	Host   string
	Header http.Header
	Body   int64 // how many bytes of body were read
	Whole  bool  // the body was read to its end
}

// Origin is a running origin. It is safe for concurrent use.
type Origin struct {
	tb     testing.TB
	srv    *http.Server
	gate   *gate
	closed chan struct{}

	mu      sync.Mutex
	faults  Faults
	used    int           // requests that met the faults
	changed chan struct{} // closed when the faults change: ends hangs and stalls
	objects map[string]Object
	log     []*Request
}

// New starts an origin on a free port of the loopback interface. It ends with the test.
func New(tb testing.TB) *Origin {
	tb.Helper()
	o := &Origin{
		tb:      tb,
		closed:  make(chan struct{}),
		changed: make(chan struct{}),
		objects: make(map[string]Object),
	}
	o.srv = &http.Server{
		Handler:           o,
		ErrorLog:          log.New(io.Discard, "", 0),
		ReadHeaderTimeout: time.Minute,
	}
	g, err := listen(o.srv, rig.FreeAddress(tb))
	if err != nil {
		tb.Fatalf("starting an origin: %v", err)
	}
	o.gate = g
	tb.Cleanup(func() {
		close(o.closed)
		o.gate.shut()
		_ = o.srv.Close()
	})
	return o
}

// Addr returns the origin's host and port.
func (o *Origin) Addr() string { return o.gate.addr }

// URL returns the origin's base URL, without a slash at its end.
func (o *Origin) URL() string { return "http://" + o.gate.addr }

// Script replaces the faults. Hanging and stalled answers that the old ones
// caused end, as do those that Heal ends, by a broken connection.
func (o *Origin) Script(f Faults) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.faults, o.used = f, 0
	close(o.changed)
	o.changed = make(chan struct{})
}

// Heal makes the origin well: no faults, and a listener that answers.
func (o *Origin) Heal() {
	o.tb.Helper()
	o.Script(Faults{})
	if err := o.gate.open(); err != nil {
		o.tb.Errorf("an origin could not listen on its address again: %v", err)
	}
}

// Refuse closes the listener and every connection: new ones are refused.
func (o *Origin) Refuse() { o.gate.refuse() }

// Blackhole closes every connection; new ones are accepted and never answered.
func (o *Origin) Blackhole() { o.gate.swallow() }

// Put stores an object under a path. A missing ETag is made from the body, a
// missing time is a fixed one, so that equal bodies have equal validators.
func (o *Origin) Put(path string, obj Object) {
	if obj.ETag == "" {
		obj.ETag = Tag(obj.Body)
	}
	if obj.ModTime.IsZero() {
		obj.ModTime = Epoch
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.objects[path] = obj
}

// Epoch is the modification time of objects that name none.
var Epoch = time.Date(2026, time.January, 2, 3, 4, 5, 0, time.UTC)

// Tag returns the strong entity tag of a body.
func Tag(body []byte) string {
	sum := sha256.Sum256(body)
	return `"` + hex.EncodeToString(sum[:8]) + `"`
}

// Object returns what is stored under a path.
func (o *Origin) Object(path string) (Object, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	obj, ok := o.objects[path]
	return obj, ok
}

// Remove removes what is stored under a path.
func (o *Origin) Remove(path string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.objects, path)
}

// Paths returns the stored paths, sorted.
func (o *Origin) Paths() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	paths := make([]string, 0, len(o.objects))
	for path := range o.objects {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	return paths
}

// Log returns the requests so far, in the order they came.
func (o *Origin) Log() []Request {
	o.mu.Lock()
	defer o.mu.Unlock()
	requests := make([]Request, len(o.log))
	for i, r := range o.log {
		requests[i] = *r
	}
	return requests
}

// Hits returns how many requests came, or how many with one of the methods.
func (o *Origin) Hits(methods ...string) int {
	n := 0
	for _, r := range o.Log() {
		if len(methods) == 0 || slices.Contains(methods, r.Method) {
			n++
		}
	}
	return n
}

// Forget empties the log.
func (o *Origin) Forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.log = nil
}

// record logs a request and returns the faults it meets, and a channel that
// closes when these are over.
func (o *Origin) record(r *http.Request) (*Request, Faults, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	entry := &Request{
		Line:   r.Method + " " + r.RequestURI + " " + r.Proto,
		Method: r.Method,
		Target: r.RequestURI,
		Path:   r.URL.Path,
		Host:   r.Host,
		Header: r.Header.Clone(),
	}
	o.log = append(o.log, entry)
	if !o.faults.applies(r, o.used) {
		return entry, Faults{}, o.changed
	}
	o.used++
	return entry, o.faults, o.changed
}

// readBody reads the request's body and notes in the log how far it came.
func (o *Origin) readBody(r *http.Request, entry *Request) ([]byte, error) {
	body, err := io.ReadAll(r.Body)
	o.mu.Lock()
	defer o.mu.Unlock()
	entry.Body, entry.Whole = int64(len(body)), err == nil
	return body, err
}
