package httpstore_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/httpstore"
)

// coder is an origin that keeps codings, or loses them, and may refuse names that begin with a dot.
type coder struct {
	origin
	tb testing.TB

	mu     sync.Mutex
	loses  bool
	noDots bool
	asked  []string // methods, and how the path goes on
}

func (c *coder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	loses, noDots := c.loses, c.noDots
	what := r.Method
	if strings.HasPrefix(r.URL.Path, "/.") {
		what += " of its own"
	}
	c.asked = append(c.asked, what)
	c.mu.Unlock()
	if noDots && strings.HasPrefix(r.URL.Path, "/.") {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	if r.Method == http.MethodPut && strings.HasPrefix(r.URL.Path, "/.") {
		body, _ := io.ReadAll(r.Body)
		unpack, err := gzip.NewReader(bytes.NewReader(body))
		if err == nil {
			_, err = io.Copy(io.Discard, unpack)
		}
		if err != nil {
			c.tb.Errorf("the body that the origin is tried with is no gzip: %v", err)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	if loses {
		r.Header.Del("Content-Encoding")
	}
	c.origin.ServeHTTP(w, r)
}

func (c *coder) set(loses, noDots bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.loses, c.noDots = loses, noDots
}

// since tells what was asked since it was last asked, but for the look whether it is a WebDAV origin.
func (c *coder) since() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	asked := slices.DeleteFunc(c.asked, func(what string) bool { return what == http.MethodOptions })
	c.asked = nil
	return asked
}

func (c *coder) paths() []string {
	c.origin.mu.Lock()
	defer c.origin.mu.Unlock()
	return slices.Sorted(maps.Keys(c.objects))
}

func newCoder(tb testing.TB) (*coder, *httpstore.Store, func(time.Duration)) {
	tb.Helper()
	var mu sync.Mutex
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	c := &coder{tb: tb}
	s := open(tb, httpstore.Settings{BaseURL: serve(tb, c), Now: func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return now
	}})
	return c, s, func(d time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		now = now.Add(d)
	}
}

func putCoded(tb testing.TB, s muxcore.Store, key, body string) error {
	tb.Helper()
	_, err := s.Put(tb.Context(), key, strings.NewReader(body), int64(len(body)), muxcore.PutOptions{Attributes: muxcore.Attributes{ContentEncoding: "br"}})
	return err
}

func wantCoding(tb testing.TB, s muxcore.Store, key, body, coding string) {
	tb.Helper()
	o, err := s.Get(tb.Context(), key, muxcore.GetOptions{})
	if err != nil {
		tb.Errorf("Get = %v", err)
		return
	}
	defer o.Body.Close()
	if got, err := io.ReadAll(o.Body); err != nil || string(got) != body || o.ContentEncoding != coding {
		tb.Errorf("Get = %q with coding %q, %v; want %q with %q", got, o.ContentEncoding, err, body, coding)
	}
}

var tried = []string{"PUT of its own", "HEAD of its own", "DELETE of its own"}

// An origin that keeps codings is tried once, for all who wait, and nothing of that is left.
func TestAnOriginThatKeepsCodingsIsTriedOnce(t *testing.T) {
	c, s, _ := newCoder(t)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := putCoded(t, s, "k", "packed"); err != nil {
				t.Errorf("Put = %v", err)
			}
		})
	}
	wg.Wait()
	asked := c.since()
	slices.Sort(asked)
	want := append(slices.Repeat([]string{"PUT"}, 8), tried...)
	slices.Sort(want)
	if !slices.Equal(asked, want) {
		t.Errorf("asked %q, want %q", asked, want)
	}
	wantCoding(t, s, "k", "packed", "br")
	if paths := c.paths(); !slices.Equal(paths, []string{"/k"}) {
		t.Errorf("the origin has %q", paths)
	}
}

// One that loses them gets no coded body, keeps what it had, and is tried again after a while.
func TestAnOriginThatLosesCodingsGetsNone(t *testing.T) {
	c, s, wait := newCoder(t)
	c.set(true, false)
	if _, err := s.Put(t.Context(), "k", strings.NewReader("plain"), 5, muxcore.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	if asked := c.since(); !slices.Equal(asked, []string{"PUT"}) {
		t.Errorf("for a plain body it was asked %q", asked)
	}
	for _, want := range [][]string{tried, nil} {
		if err := putCoded(t, s, "k", "packed"); !errors.Is(err, muxcore.ErrUnsupported) || !strings.Contains(err.Error(), "Content-Encoding") {
			t.Errorf("Put of a coded body = %v, want UNSUPPORTED", err)
		}
		if asked := c.since(); !slices.Equal(asked, want) {
			t.Errorf("asked %q, want %q", asked, want)
		}
	}
	wantCoding(t, s, "k", "plain", "")
	if paths := c.paths(); !slices.Equal(paths, []string{"/k"}) {
		t.Errorf("the origin has %q", paths)
	}
	c.set(false, false) // somebody has seen to it
	wait(time.Hour)
	if err := putCoded(t, s, "k", "packed"); err != nil {
		t.Errorf("Put once the origin keeps codings = %v", err)
	}
	wantCoding(t, s, "k", "packed", "br")
}

// One that takes no names such as that of our own object is seen by the body itself, which does not stay unreadable.
func TestAnOriginThatCannotBeTriedIsSeenByTheBody(t *testing.T) {
	c, s, _ := newCoder(t)
	c.set(false, true)
	for _, want := range [][]string{{"PUT of its own", "PUT", "HEAD"}, {"PUT"}} {
		if err := putCoded(t, s, "k", "packed"); err != nil {
			t.Errorf("Put = %v", err)
		}
		if asked := c.since(); !slices.Equal(asked, want) {
			t.Errorf("asked %q, want %q", asked, want)
		}
	}
	wantCoding(t, s, "k", "packed", "br")

	c, s, _ = newCoder(t)
	c.set(true, true)
	for _, want := range [][]string{{"PUT of its own", "PUT", "HEAD", "DELETE"}, nil} {
		if err := putCoded(t, s, "k", "packed"); !errors.Is(err, muxcore.ErrUnsupported) {
			t.Errorf("Put = %v, want UNSUPPORTED", err)
		}
		if asked := c.since(); !slices.Equal(asked, want) {
			t.Errorf("asked %q, want %q", asked, want)
		}
	}
	if paths := c.paths(); len(paths) > 0 {
		t.Errorf("the origin has %q", paths)
	}
}
