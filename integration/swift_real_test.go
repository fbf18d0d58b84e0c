//go:build linux

package integration_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/suaveplan/caddy-storage-mux/integration/gocdk"
	"github.com/suaveplan/caddy-storage-mux/integration/rig"
	"github.com/suaveplan/caddy-storage-mux/integration/swiftd"
	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/storetest"
	"github.com/suaveplan/caddy-storage-mux/muxcore/swiftstore"
)

// TestTheRealSwift holds what we believe of Swift against Swift itself.
func TestTheRealSwift(t *testing.T) {
	t.Parallel()
	s := swiftd.Start(t)
	t.Run("served by Caddy", func(t *testing.T) { realSwiftServed(t, s) })
	t.Run("static large objects", func(t *testing.T) { realStatic(t, s) })
	t.Run("dynamic large objects", func(t *testing.T) { realDynamic(t, s) })
	t.Run("of two that create a key at once both succeed", func(t *testing.T) { realCreators(t, s) })
	t.Run("an upload that breaks off changes nothing", func(t *testing.T) { realBrokenUpload(t, s) })
	t.Run("conformance", func(t *testing.T) { realSuite(t, s) })
	t.Run("conformance as others see it", func(t *testing.T) {
		gocdk.Run(t, func(tb testing.TB) muxcore.Store { return swiftStore(tb, s, container(tb, s)) })
	})
}

var containers atomic.Int64

// container makes an empty container.
func container(tb testing.TB, s *swiftd.Server) string {
	tb.Helper()
	name := fmt.Sprintf("box %d", containers.Add(1))
	swiftDo(tb, s, http.MethodPut, "/"+strings.ReplaceAll(name, " ", "%20"), "", nil, http.StatusCreated)
	return name
}

// swiftDo makes a request past our store.
func swiftDo(tb testing.TB, s *swiftd.Server, method, path, body string, header http.Header, want int) string {
	tb.Helper()
	status, answer, err := s.Do(tb.Context(), method, path, body, header)
	if err != nil || status != want {
		tb.Fatalf("%s %s past the store = %d %q, %v, want %d", method, path, status, answer, err, want)
	}
	return answer
}

// swiftStore opens a container.
func swiftStore(tb testing.TB, s *swiftd.Server, container string) *swiftstore.Store {
	tb.Helper()
	store, err := swiftstore.New(swiftstore.Settings{Container: container, AuthURL: s.Auth, User: swiftd.User, Key: swiftd.Key})
	return opened(tb, store, err)
}

func realSuite(t *testing.T, s *swiftd.Server) {
	storetest.Run(t, storetest.Harness{TimeResolution: time.Second, Gaps: true, Parallel: true, Timeout: 5 * time.Minute, New: func(tb testing.TB) muxcore.Store {
		return swiftStore(tb, s, container(tb, s))
	}})
}

// realSwiftServed goes through what broke elsewhere, and what Swift has of its own.
func realSwiftServed(t *testing.T, s *swiftd.Server) {
	c := rig.Start(t, `storage_mux {
		writable
		list
		backend s swift "{$BOX}" {
			auth_url {$AUTH}
			user test:tester
			key {$KEY}
			prefix below/this
		}
	}`, rig.Env("BOX", container(t, s)), rig.Env("AUTH", s.Auth), rig.Env("KEY", swiftd.Key))
	servedWell(t, c, false)
	wantStatus(t, "PUT again", c.Put("/ten", "0123456789"), http.StatusNoContent)
	wantStatus(t, "PUT if nobody has", c.Put("/new", "x", "If-None-Match", "*"), http.StatusNotImplemented)
}

// segments makes a container of three parts, and says where they are.
func segments(t *testing.T, s *swiftd.Server) string {
	t.Helper()
	parts := fmt.Sprintf("parts%d", containers.Add(1))
	swiftDo(t, s, http.MethodPut, "/"+parts, "", nil, http.StatusCreated)
	for name, body := range map[string]string{"big/1": "hello ", "big/2": "large ", "big/3": "world", "other": "stays"} {
		swiftDo(t, s, http.MethodPut, "/"+parts+"/"+name, body, nil, http.StatusCreated)
	}
	return parts
}

// wantParts fails the test unless these parts are left.
func wantParts(t *testing.T, s *swiftd.Server, parts string, want ...string) {
	t.Helper()
	answer := swiftDo(t, s, http.MethodGet, "/"+parts+"?format=json", "", nil, http.StatusOK)
	var entries []struct{ Name string }
	if err := json.Unmarshal([]byte(answer), &entries); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name)
	}
	if !slices.Equal(names, want) {
		t.Errorf("the parts that are left are %q, want %q", names, want)
	}
}

// largeObject reads a large object whole and over a seam, and lets it go by way of gone.
func largeObject(t *testing.T, store muxcore.Store, gone func(key string)) {
	t.Helper()
	const want = "hello large world"
	for _, r := range []muxcore.Range{{}, {Offset: 4, Length: 9}, {Offset: -7}} {
		o, err := store.Get(t.Context(), "big", muxcore.GetOptions{Range: r})
		if err != nil {
			t.Fatalf("Get of %+v = %v", r, err)
		}
		got, err := io.ReadAll(o.Body)
		o.Body.Close()
		if err != nil || string(got) != want[o.Offset:o.Offset+o.Length] || o.Size != int64(len(want)) || o.Digests.MD5 != nil {
			t.Errorf("Get of %+v = %q of %d bytes, MD5 %x, %v, want a part of %q and no MD5", r, got, o.Size, o.Digests.MD5, err, want)
		}
	}
	gone("big")
}

func removed(t *testing.T, store muxcore.Store) func(string) {
	return func(key string) {
		if _, err := store.Delete(t.Context(), key, muxcore.DeleteOptions{}); err != nil {
			t.Errorf("Delete = %v", err)
		}
	}
}

func replaced(t *testing.T, store muxcore.Store) func(string) {
	return func(key string) {
		res, err := store.Put(t.Context(), key, strings.NewReader("small"), 5, muxcore.PutOptions{})
		if err != nil || !res.Existed {
			t.Errorf("Put over it = %+v, %v, want one that existed", res, err)
		}
		info, err := store.Stat(t.Context(), key, muxcore.Conditions{})
		if err != nil || info.Size != 5 {
			t.Errorf("Stat afterwards = %+v, %v, want the new object of 5 bytes", info, err)
		}
	}
}

func realStatic(t *testing.T, s *swiftd.Server) {
	for _, gone := range []func(*testing.T, muxcore.Store) func(string){removed, replaced} {
		parts, box := segments(t, s), container(t, s)
		text, err := json.Marshal([]map[string]string{{"path": "/" + parts + "/big/1"}, {"path": "/" + parts + "/big/2"}, {"path": "/" + parts + "/big/3"}})
		if err != nil {
			t.Fatal(err)
		}
		swiftDo(t, s, http.MethodPut, "/"+strings.ReplaceAll(box, " ", "%20")+"/big?multipart-manifest=put", string(text), nil, http.StatusCreated)
		store := swiftStore(t, s, box)
		largeObject(t, store, gone(t, store))
		wantParts(t, s, parts, "other")
	}
}

func realDynamic(t *testing.T, s *swiftd.Server) {
	for _, gone := range []func(*testing.T, muxcore.Store) func(string){removed, replaced} {
		parts, box := segments(t, s), container(t, s)
		header := http.Header{"X-Object-Manifest": {parts + "/big/"}}
		swiftDo(t, s, http.MethodPut, "/"+strings.ReplaceAll(box, " ", "%20")+"/big", "", header, http.StatusCreated)
		store := swiftStore(t, s, box)
		largeObject(t, store, gone(t, store))
		wantParts(t, s, parts, "other")
	}
}

// realCreators shows why the store offers no conditional writes: Swift decides If-None-Match: * before it reads the body.
func realCreators(t *testing.T, s *swiftd.Server) {
	box := strings.ReplaceAll(container(t, s), " ", "%20")
	token, err := s.Token(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var conns []net.Conn
	for range 2 {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "PUT /v1/AUTH_test/%s/new HTTP/1.1\r\nHost: swift\r\nX-Auth-Token: %s\r\nIf-None-Match: *\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n", box, token)
		conns = append(conns, conn)
	}
	answers := make([]*bufio.Reader, 2)
	for i, conn := range conns {
		answers[i] = bufio.NewReader(conn)
		if line, err := answers[i].ReadString('\n'); err != nil || !strings.Contains(line, " 100 ") {
			t.Fatalf("creator %d is told %q, %v, want to go on", i, line, err)
		}
		if _, err := answers[i].ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	for i, conn := range conns {
		fmt.Fprintf(conn, "body")
		if line, err := answers[i].ReadString('\n'); err != nil || !strings.Contains(line, " 201 ") {
			t.Errorf("creator %d is answered %q, %v; if Swift has become atomic here, the store may offer conditional writes", i, line, err)
		}
	}
}

// realBrokenUpload breaks off a stream without a declared length, which is the worst case: nothing says how long it should be.
func realBrokenUpload(t *testing.T, s *swiftd.Server) {
	store := swiftStore(t, s, container(t, s))
	body := io.MultiReader(strings.NewReader(strings.Repeat("x", 300_000)), brokenReader{})
	if _, err := store.Put(t.Context(), "key", body, -1, muxcore.PutOptions{}); muxcore.CodeOf(err) != muxcore.CodeBodyMismatch {
		t.Errorf("Put of a stream that breaks off = %v, want %s", err, muxcore.CodeBodyMismatch)
	}
	if _, err := store.Stat(t.Context(), "key", muxcore.Conditions{}); muxcore.CodeOf(err) != muxcore.CodeKeyNotFound {
		t.Errorf("Stat afterwards = %v, want %s", err, muxcore.CodeKeyNotFound)
	}
}
