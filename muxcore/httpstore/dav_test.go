package httpstore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/httpstore"
)

// counted counts requests by method, and lets a test step in.
type counted struct {
	http.Handler
	mu     sync.Mutex
	counts map[string]int
	before func(r *http.Request)
}

func (c *counted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	if c.counts == nil {
		c.counts = make(map[string]int)
	}
	c.counts[r.Method]++
	before := c.before
	c.mu.Unlock()
	if before != nil {
		before(r)
	}
	c.Handler.ServeHTTP(w, r)
}

// take gives the counts since the last time.
func (c *counted) take() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	counts := c.counts
	c.counts = nil
	return counts
}

func put(tb testing.TB, s muxcore.Store, keys ...string) {
	tb.Helper()
	for _, key := range keys {
		if _, err := s.Put(tb.Context(), key, strings.NewReader(key), int64(len(key)), muxcore.PutOptions{}); err != nil {
			tb.Fatalf("Put(%q) = %v", key, err)
		}
	}
}

func list(tb testing.TB, s muxcore.Store, opts muxcore.ListOptions) (keys []string, err error) {
	tb.Helper()
	for e, err := range s.List(tb.Context(), opts) {
		if err != nil {
			return keys, err
		}
		keys = append(keys, e.Key)
	}
	return keys, nil
}

func TestParentsAreMadeOnceAndWhenTheyVanish(t *testing.T) {
	dav := &counted{Handler: newDAV()}
	base := serve(t, dav)
	s := open(t, httpstore.Settings{BaseURL: base})
	put(t, s, "a/b/c/1")
	if got := dav.take(); got["OPTIONS"] != 1 || got["PUT"] != 1 || got["MKCOL"] != 5 {
		t.Errorf("the first put of a tree takes %v, want 1 OPTIONS, 5 MKCOL, 1 PUT", got)
	}
	put(t, s, "a/b/c/2", "a/b/3", "flat")
	if got := dav.take(); got["PUT"] != 3 || len(got) != 1 {
		t.Errorf("puts beside it take %v, want PUT alone", got)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, base+"/a", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	put(t, s, "a/b/c/4")
	if got, err := list(t, s, muxcore.ListOptions{}); err != nil || !slices.Equal(got, []string{"a/b/c/4", "flat"}) {
		t.Errorf("List = %q, %v", got, err)
	}
}

// TestAnOriginThatNeedsCollectionsWithoutSayingSo is like nginx without its WebDAV extension: MKCOL, but no OPTIONS.
func TestAnOriginThatNeedsCollectionsWithoutSayingSo(t *testing.T) {
	dav := newDAV()
	s := open(t, httpstore.Settings{BaseURL: serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodOptions || r.Method == "PROPFIND" {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		dav.ServeHTTP(w, r)
	}))})
	put(t, s, "a/b/1")
	body := strings.Repeat("x", 100_000)
	_, err := s.Put(t.Context(), "c/d/2", strings.NewReader(body), int64(len(body)), muxcore.PutOptions{})
	if err != nil {
		t.Errorf("Put of a large body, after the origin is known = %v", err)
	}
	fresh := open(t, httpstore.Settings{BaseURL: serve(t, dav2(newDAV()))})
	_, err = fresh.Put(t.Context(), "c/d/2", strings.NewReader(body), int64(len(body)), muxcore.PutOptions{})
	if muxcore.Classify(t.Context(), err) != muxcore.ClassTransient {
		t.Errorf("Put of a large body, which cannot be sent again = %v, want transient", err)
	}
	if _, err = fresh.Put(t.Context(), "c/d/2", strings.NewReader(body), int64(len(body)), muxcore.PutOptions{}); err != nil {
		t.Errorf("and the next one = %v", err)
	}
}

// dav2 hides what dav is.
func dav2(dav http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodOptions {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		dav.ServeHTTP(w, r)
	})
}

// TestDeleteNeverTakesATree is about DELETE of a collection, which on a WebDAV origin takes everything in it.
func TestDeleteNeverTakesATree(t *testing.T) {
	s := open(t, httpstore.Settings{BaseURL: serve(t, newDAV())})
	put(t, s, "a/b/1", "a/2")
	for _, key := range []string{"a", "a/b", "none", "a/2/below", "none/below"} {
		if _, err := s.Delete(t.Context(), key, muxcore.DeleteOptions{}); !errors.Is(err, muxcore.ErrKeyNotFound) {
			t.Errorf("Delete(%q) = %v, want KEY_NOT_FOUND", key, err)
		}
	}
	if got, err := list(t, s, muxcore.ListOptions{}); err != nil || !slices.Equal(got, []string{"a/2", "a/b/1"}) {
		t.Errorf("List = %q, %v, want both objects", got, err)
	}
}

func TestWhatCannotBeLookedAtIsNotDeleted(t *testing.T) {
	for _, status := range []int{401, 403, 500, 501} {
		deleted := false
		s := open(t, httpstore.Settings{BaseURL: serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.Method {
			case http.MethodOptions:
				w.Header().Set("DAV", "2, 1")
			case http.MethodDelete:
				deleted = true
			default:
				w.WriteHeader(status)
			}
		}))})
		if _, err := s.Delete(t.Context(), "k", muxcore.DeleteOptions{}); err == nil || deleted {
			t.Errorf("Delete with PROPFIND answered by %d = %v, deleted: %t", status, err, deleted)
		}
	}
}

// TestA409ToADeleteIsLookedInto is like nginx, which says it of a folder and of a key below a file.
func TestA409ToADeleteIsLookedInto(t *testing.T) {
	s := open(t, httpstore.Settings{BaseURL: serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodDelete:
			w.WriteHeader(http.StatusConflict)
		case r.URL.Path == "/folder":
			http.Redirect(w, r, "/folder/", http.StatusMovedPermanently)
		case r.URL.Path != "/locked":
			w.WriteHeader(http.StatusNotFound)
		}
	}))})
	for key, want := range map[string]muxcore.Code{"folder": muxcore.CodeKeyNotFound, "file/below": muxcore.CodeKeyNotFound, "locked": muxcore.CodeKeyConflict} {
		_, err := s.Delete(t.Context(), key, muxcore.DeleteOptions{})
		if e, ok := errors.AsType[*muxcore.Error](err); !ok || e.Code != want || e.Op != muxcore.OpDelete {
			t.Errorf("Delete(%q) = %v, want %s", key, err, want)
		}
	}
}

func TestAnEmptyCollectionMakesRoomForAnObject(t *testing.T) {
	dav := &counted{Handler: newDAV()}
	base := serve(t, dav)
	s := open(t, httpstore.Settings{BaseURL: base})
	put(t, s, "a/b/c/1")
	if _, err := s.Put(t.Context(), "a/b", strings.NewReader("x"), 1, muxcore.PutOptions{}); !errors.Is(err, muxcore.ErrKeyConflict) {
		t.Errorf("Put in place of a collection with an object = %v, want KEY_CONFLICT", err)
	}
	if _, err := s.Delete(t.Context(), "a/b/c/1", muxcore.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	put(t, s, "a/b")
	if got, err := list(t, s, muxcore.ListOptions{}); err != nil || !slices.Equal(got, []string{"a/b"}) {
		t.Errorf("List = %q, %v, want the object alone", got, err)
	}
	if _, got, err := read(t, s, "a/b", muxcore.GetOptions{}); err != nil || got != "a/b" {
		t.Errorf("Get = %q, %v", got, err)
	}

	// Somebody puts an object into the collection just when it is to be put aside.
	other := open(t, httpstore.Settings{BaseURL: base})
	put(t, s, "c/d/1")
	if _, err := s.Delete(t.Context(), "c/d/1", muxcore.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	dav.mu.Lock()
	dav.before = func(r *http.Request) {
		if r.Method == "MOVE" && r.URL.Path == "/c/d/" {
			put(t, other, "c/d/2")
		}
	}
	dav.mu.Unlock()
	if _, err := s.Put(t.Context(), "c/d", strings.NewReader("x"), 1, muxcore.PutOptions{}); !errors.Is(err, muxcore.ErrKeyConflict) {
		t.Errorf("Put in place of a collection that fills = %v, want KEY_CONFLICT", err)
	}
	if _, got, err := read(t, other, "c/d/2", muxcore.GetOptions{}); err != nil || got != "c/d/2" {
		t.Errorf("Get of what was put meanwhile = %q, %v", got, err)
	}
}

func TestACollectionIsNoObject(t *testing.T) {
	s := open(t, httpstore.Settings{BaseURL: serve(t, newDAV())})
	put(t, s, "a/b")
	reader := open(t, httpstore.Settings{BaseURL: serve(t, newDAV())})
	for _, s := range []*httpstore.Store{s, reader} {
		_, _, err := read(t, s, "a", muxcore.GetOptions{})
		_, serr := s.Stat(t.Context(), "a", muxcore.Conditions{})
		if !errors.Is(err, muxcore.ErrKeyNotFound) || !errors.Is(serr, muxcore.ErrKeyNotFound) {
			t.Errorf("Get = %v, Stat = %v, want KEY_NOT_FOUND", err, serr)
		}
	}
}

// multistatus makes a 207 of responses in short form: a href, and properties.
func multistatus(responses ...string) string {
	return `<?xml version="1.0"?><D:multistatus xmlns:D="DAV:">` + strings.Join(responses, "") + `</D:multistatus>`
}

func davItem(href, props string) string {
	return "<D:response><D:href>" + href + "</D:href><D:propstat><D:prop>" + props + "</D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>"
}

// listsAs makes a store of an origin whose base collection is described by text.
func listsAs(tb testing.TB, text string) *httpstore.Store {
	tb.Helper()
	return open(tb, httpstore.Settings{BaseURL: serve(tb, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/base/" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(http.StatusMultiStatus)
		_, _ = w.Write([]byte(text))
	})) + "/base"})
}

func TestWhatAnOriginListsIsReadWithCare(t *testing.T) {
	const dir = "<D:resourcetype><D:collection/></D:resourcetype>"
	s := listsAs(t, multistatus(
		davItem("/base", dir),
		davItem("/base/plain", "<D:getcontentlength>12</D:getcontentlength><D:getetag>v1</D:getetag><D:getlastmodified>Sat, 03 Feb 2001 04:05:06 GMT</D:getlastmodified><D:getcontenttype>text/x</D:getcontenttype>"),
		davItem("http://elsewhere.example/base/a%2520b%2Bc", ""),
		davItem("/base/b%20c", ""),
		davItem("/base/plain", ""),
		davItem("/base/gone/deeper", ""),
		davItem("/base/gone", dir),
		davItem("/base/with%2Fslash", ""),
		davItem("/base/..", dir),
		davItem("/base/.storage_mux-tmp", ""),
		davItem("/base/back%5Cslash", ""),
		davItem("/base/bad%FFutf8", ""),
		"<D:response><D:href>/base/vanished</D:href><D:status>HTTP/1.1 404 Not Found</D:status></D:response>",
		"<D:response><D:href>/base/halfknown</D:href><D:propstat><D:prop><D:getcontentlength>9</D:getcontentlength></D:prop><D:status>HTTP/1.1 403 No</D:status></D:propstat></D:response>",
		"<D:responsedescription>text</D:responsedescription><x xmlns='y:'><D:response/></x>",
	))
	got := map[string]muxcore.Info{}
	var keys []string
	for e, err := range s.List(t.Context(), muxcore.ListOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, e.Key)
		got[e.Key] = e.Info
	}
	if want := []string{"a%20b+c", "b c", "halfknown", "plain"}; !slices.Equal(keys, want) {
		t.Errorf("List = %q, want %q", keys, want)
	}
	if i := got["plain"]; i.ETag != `"v1"` || i.Size != 12 && i.Size != -1 || got["halfknown"].Size != -1 {
		t.Errorf("List: plain is %+v, halfknown is %+v", i, got["halfknown"])
	}
}

func TestAListThatIsCutOrWrongIsAnError(t *testing.T) {
	for name, text := range map[string]string{
		"cut":                     strings.TrimSuffix(multistatus(davItem("/base/a", "")), "</D:multistatus>"),
		"cut in an element":       multistatus(davItem("/base/a", ""))[:150],
		"nothing":                 "",
		"no XML":                  "{}",
		"HTML":                    "<html><body>hello</body></html>",
		"another collection":      multistatus(davItem("/other/a", "")),
		"a relative path":         multistatus(davItem("a", "")),
		"a bad escape":            multistatus(davItem("/base/%zz", "")),
		"a huge href":             multistatus(davItem("/base/"+strings.Repeat("x", 2<<20), "")),
		"a huge property":         multistatus(davItem("/base/a", strings.Repeat("<x>y</x>", 3<<16))),
		"an entity that explodes": `<?xml version="1.0"?><!DOCTYPE b [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]>` + multistatus(davItem("/base/&b;", ""))[21:],
	} {
		keys, err := list(t, listsAs(t, text), muxcore.ListOptions{})
		if muxcore.CodeOf(err) != muxcore.CodeUnavailable || len(keys) > 0 {
			t.Errorf("List of what is %s = %.100q, %v, want UNAVAILABLE", name, keys, err)
		}
	}
}

func TestAnOriginThatCannotListIsNotAskedAgainForAWhile(t *testing.T) {
	for _, status := range []int{200, 204, 404, 405, 501} {
		now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		var asked seen
		s := open(t, httpstore.Settings{Now: func() time.Time { return now }, BaseURL: serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked.note(r)
			w.WriteHeader(status)
		}))})
		if !muxcore.CapabilitiesOf(s).List {
			t.Error("before it was asked, Capabilities: no List")
		}
		for _, prefix := range []string{"some/prefix", "", "x/"} {
			if _, err := list(t, s, muxcore.ListOptions{Prefix: prefix}); !errors.Is(err, muxcore.ErrUnsupported) {
				t.Errorf("List with PROPFIND answered by %d = %v, want UNSUPPORTED", status, err)
			}
		}
		if asked.count() > 3 || muxcore.CapabilitiesOf(s).List {
			t.Errorf("after %d requests answered by %d, Capabilities: List = %t", asked.count(), status, muxcore.CapabilitiesOf(s).List)
		}
		now = now.Add(time.Hour)
		if !muxcore.CapabilitiesOf(s).List {
			t.Error("an hour later, Capabilities: no List")
		}
	}
	for status, want := range map[int]muxcore.Code{401: muxcore.CodeDenied, 403: muxcore.CodeDenied, 500: muxcore.CodeUnavailable, 301: muxcore.CodeUnavailable} {
		s := open(t, httpstore.Settings{BaseURL: serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))})
		if _, err := list(t, s, muxcore.ListOptions{}); muxcore.CodeOf(err) != want || !muxcore.CapabilitiesOf(s).List {
			t.Errorf("List answered by %d = %v, want %s", status, err, want)
		}
	}
}

func TestAListAsksForNoMoreThanItNeeds(t *testing.T) {
	dav := &counted{Handler: newDAV()}
	s := open(t, httpstore.Settings{BaseURL: serve(t, dav)})
	for i := range 10 {
		put(t, s, fmt.Sprintf("d%d/x/1", i), fmt.Sprintf("d%d/y", i))
	}
	for _, try := range []struct {
		opts muxcore.ListOptions
		want int // PROPFINDs
	}{
		{muxcore.ListOptions{Prefix: "d3/"}, 2},
		{muxcore.ListOptions{Prefix: "d3/x/"}, 1},
		{muxcore.ListOptions{Limit: 1}, 3},
		{muxcore.ListOptions{After: "d9"}, 3},
		{muxcore.ListOptions{After: "d9/x/1"}, 3},
		{muxcore.ListOptions{After: "d9/y"}, 2},
		{muxcore.ListOptions{Delimiter: "/", Limit: 2}, 5},
		{muxcore.ListOptions{Delimiter: "/", After: "d8/"}, 3},
		{muxcore.ListOptions{Prefix: "none/at/all"}, 1},
	} {
		dav.take()
		if _, err := list(t, s, try.opts); err != nil {
			t.Fatal(err)
		}
		if got := dav.take()["PROPFIND"]; got > try.want {
			t.Errorf("List(%+v) takes %d PROPFINDs, want %d", try.opts, got, try.want)
		}
	}
}

func TestAStalledListLetsGoWhenTheContextEnds(t *testing.T) {
	stall := make(chan struct{})
	s := open(t, httpstore.Settings{BaseURL: rawOrigin(t, func(conn net.Conn, _ *http.Request) bool {
		_, _ = conn.Write([]byte(answer("207 Multi-Status|Content-Length: 100000", multistatus(davItem("/a", ""))[:100])))
		<-stall
		return false
	})})
	t.Cleanup(func() { close(stall) })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	within(t, "List", func() {
		for _, err := range s.List(ctx, muxcore.ListOptions{}) {
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("List = %v, want an error that wraps context.DeadlineExceeded", err)
			}
		}
	})
}

// A WebDAV origin whose base collection is missing, as after a mount that failed, fails: it neither is one that cannot list, nor are
// keys in conflict. Once the base is there, all is well at once.
func TestAMissingBaseIsAFailure(t *testing.T) {
	dav := newDAV()
	s := open(t, httpstore.Settings{BaseURL: serve(t, dav) + "/no/base"})
	for range 2 {
		for _, prefix := range []string{"", "d/"} {
			if _, err := list(t, s, muxcore.ListOptions{Prefix: prefix}); muxcore.CodeOf(err) != muxcore.CodeUnavailable || !strings.Contains(err.Error(), "base URL") {
				t.Errorf("List(%q) = %v, want UNAVAILABLE", prefix, err)
			}
		}
		for _, key := range []string{"k", "d/k", "d/e/k"} {
			_, err := s.Put(t.Context(), key, strings.NewReader("x"), 1, muxcore.PutOptions{})
			if muxcore.CodeOf(err) != muxcore.CodeUnavailable || muxcore.Classify(t.Context(), err) != muxcore.ClassTransient {
				t.Errorf("Put(%q) = %v, of class %s, want UNAVAILABLE and transient", key, err, muxcore.Classify(t.Context(), err))
			}
		}
		if !s.Capabilities().List {
			t.Error("it is taken for an origin that cannot list")
		}
	}
	for _, dir := range []string{"/no", "/no/base"} {
		if err := dav.dav.FileSystem.Mkdir(t.Context(), dir, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	put(t, s, "k", "d/e/k")
	if keys, err := list(t, s, muxcore.ListOptions{}); err != nil || !slices.Equal(keys, []string{"d/e/k", "k"}) {
		t.Errorf("List = %q, %v", keys, err)
	}
}
