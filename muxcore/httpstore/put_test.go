package httpstore_test

import (
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/httpstore"
)

const large = 50 << 20

// endless is a body that goes on, and counts what was read.
type endless struct{ n atomic.Int64 }

func (e *endless) Read(p []byte) (int, error) {
	clear(p)
	e.n.Add(int64(len(p)))
	return len(p), nil
}

func TestAnEarlyAnswerEndsAPutAtOnce(t *testing.T) {
	s := says(t, sized(413, "", ""))
	body := new(endless)
	within(t, "Put", func() {
		_, err := s.Put(t.Context(), "k", body, 1<<40, muxcore.PutOptions{})
		// An origin that hangs up as it answers may be heard as a broken connection; that is still no success, and soon.
		if code := muxcore.CodeOf(err); code != muxcore.CodeTooLarge && code != muxcore.CodeUnavailable {
			t.Errorf("Put = %v, want TOO_LARGE", err)
		}
	})
	read := body.n.Load()
	for range 5 { // gives a late reader its time
		_, _ = s.Stat(t.Context(), "k", muxcore.Conditions{})
	}
	if body.n.Load() != read {
		t.Error("the body is read after Put has returned")
	}
}

// stuckBody yields some bytes and then hangs until it is let go.
type stuckBody struct {
	some  io.Reader
	stuck chan struct{} // closed when it hangs
	let   chan struct{}
	reads atomic.Int32 // begun after it hung
}

func newStuckBody(n int) *stuckBody {
	return &stuckBody{some: io.LimitReader(zeros{}, int64(n)), stuck: make(chan struct{}), let: make(chan struct{})}
}

func (b *stuckBody) Read(p []byte) (int, error) {
	if n, err := b.some.Read(p); err == nil {
		return n, nil
	}
	if b.reads.Add(1) == 1 {
		close(b.stuck)
	}
	<-b.let
	return 0, errors.New("let go")
}

func TestAnUploaderThatHangsDoesNotHoldAPut(t *testing.T) {
	t.Parallel()
	for name, size := range map[string]int64{"large": 1 << 30, "small": 50_000, "of unknown length": -1} {
		t.Run(name+", when the context ends", func(t *testing.T) {
			t.Parallel()
			s := open(t, httpstore.Settings{BaseURL: serve(t, new(origin))})
			body := newStuckBody(10_000)
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				<-body.stuck
				cancel()
			}()
			within(t, "Put", func() {
				if _, err := s.Put(ctx, "k", body, size, muxcore.PutOptions{}); !errors.Is(err, context.Canceled) {
					t.Errorf("Put = %v, want an error that wraps context.Canceled", err)
				}
			})
			close(body.let)
			if _, _, err := read(t, s, "k", muxcore.GetOptions{}); !errors.Is(err, muxcore.ErrKeyNotFound) {
				t.Errorf("Get after it = %v, want KEY_NOT_FOUND", err)
			}
			if n := body.reads.Load(); n != 1 {
				t.Errorf("the body is read %d times, want once", n)
			}
		})
	}
	t.Run("when the origin has answered", func(t *testing.T) {
		s := open(t, httpstore.Settings{BaseURL: rawOrigin(t, func(conn net.Conn, _ *http.Request) bool {
			_, _ = io.WriteString(conn, sized(413, "", ""))
			_, _ = io.Copy(io.Discard, conn)
			return false
		})})
		body := newStuckBody(100_000)
		defer close(body.let)
		within(t, "Put", func() {
			if _, err := s.Put(t.Context(), "k", body, 1<<30, muxcore.PutOptions{}); muxcore.CodeOf(err) != muxcore.CodeTooLarge {
				t.Errorf("Put = %v, want TOO_LARGE", err)
			}
		})
	})
}

func TestASuccessBeforeTheWholeBodyIsNone(t *testing.T) {
	s := open(t, httpstore.Settings{BaseURL: rawOrigin(t, func(conn net.Conn, _ *http.Request) bool {
		_, _ = io.WriteString(conn, sized(201, "", ""))
		_, _ = io.CopyN(io.Discard, conn, 1<<20)
		return false
	})})
	_, err := s.Put(t.Context(), "k", zeros{}, 1<<40, muxcore.PutOptions{})
	if muxcore.CodeOf(err) != muxcore.CodeUnavailable {
		t.Errorf("Put = %v, want UNAVAILABLE", err)
	}
}

func TestAnOriginThatBreaksOffAPutIsToBlame(t *testing.T) {
	s := open(t, httpstore.Settings{BaseURL: rawOrigin(t, func(conn net.Conn, _ *http.Request) bool {
		_ = conn.(*net.TCPConn).SetLinger(0)
		return false
	})})
	for _, size := range []int64{10, large, -1} {
		body := io.LimitReader(zeros{}, size)
		if size < 0 {
			body = io.LimitReader(zeros{}, large)
		}
		_, err := s.Put(t.Context(), "k", body, size, muxcore.PutOptions{})
		if muxcore.CodeOf(err) != muxcore.CodeUnavailable || muxcore.Classify(t.Context(), err) != muxcore.ClassTransient {
			t.Errorf("Put of %d bytes = %v, want UNAVAILABLE, transient", size, err)
		}
	}
}

// TestAWrongBodyNeverLooksWholeToTheOrigin is the report of a short object that was published as complete.
func TestAWrongBodyNeverLooksWholeToTheOrigin(t *testing.T) {
	t.Parallel()
	errHungUp := errors.New("the uploader hung up")
	for _, size := range []int64{10, 1 << 20, -1} {
		var whole atomic.Int32
		s := open(t, httpstore.Settings{BaseURL: serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if _, err := io.Copy(io.Discard, r.Body); err == nil && r.Method == http.MethodPut {
				whole.Add(1)
			}
		}))})
		body := &failing{r: io.LimitReader(zeros{}, 9), err: errHungUp}
		_, err := s.Put(t.Context(), "k", body, size, muxcore.PutOptions{})
		if !errors.Is(err, errHungUp) || muxcore.CodeOf(err) != muxcore.CodeBodyMismatch {
			t.Errorf("Put with a body that fails, declared %d = %v, want BODY_MISMATCH that wraps its error", size, err)
		}
		_, err = s.Put(t.Context(), "k", strings.NewReader("wrong"), 5, muxcore.PutOptions{Digests: muxcore.Digests{SHA256: make([]byte, 32)}})
		if !errors.Is(err, muxcore.ErrBodyMismatch) {
			t.Errorf("Put with a wrong digest = %v, want BODY_MISMATCH", err)
		}
		if n := whole.Load(); n != 0 {
			t.Errorf("the origin took %d wrong bodies for whole", n)
		}
	}
}

type failing struct {
	r   io.Reader
	err error
}

func (f *failing) Read(p []byte) (int, error) {
	n, err := f.r.Read(p)
	if err != nil {
		err = f.err
	}
	return n, err
}

func TestAPutSaysAllThatTheUploaderSaid(t *testing.T) {
	var got seen
	s := open(t, httpstore.Settings{
		BaseURL: serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.Method == http.MethodHead: // it keeps codings
				w.Header().Set("Content-Encoding", "gzip")
				return
			case strings.HasPrefix(r.URL.Path, "/."):
			default:
				got.note(r)
			}
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("ETag", "v1")
			w.Header().Set("Last-Modified", "Sat, 03 Feb 2001 04:05:06 GMT")
			w.WriteHeader(http.StatusCreated)
		})),
		Header: http.Header{"Authorization": {"Bearer x"}}, ConditionalWrite: true,
	})
	opts := muxcore.PutOptions{
		Attributes: muxcore.Attributes{
			ContentType: "text/x", CacheControl: "no-store", ContentDisposition: "attachment", ContentEncoding: "gzip", ContentLanguage: "de",
			Expires: "0", Metadata: map[string]string{"colour": "red"},
		},
		Conditions: muxcore.Conditions{IfMatch: `"v0"`, IfNoneMatch: `"v1"`},
	}
	res, err := s.Put(t.Context(), "k", strings.NewReader(digits), 10, opts)
	if err != nil || res.Existed || res.ETag != `"v1"` || res.Size != 10 || !res.ModTime.Equal(time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)) {
		t.Errorf("Put = %+v, %v", res, err)
	}
	r := got.last(t)
	for name, want := range map[string]string{
		"Content-Type": "text/x", "Cache-Control": "no-store", "Content-Disposition": "attachment", "Content-Encoding": "gzip", "Content-Language": "de",
		"Expires": "0", "X-Meta-Colour": "red", "If-Match": `"v0"`, "If-None-Match": `"v1"`, "Authorization": "Bearer x", "Content-Length": "10",
	} {
		if r.Header.Get(name) != want {
			t.Errorf("%s: %q, want %q", name, r.Header.Get(name), want)
		}
	}
	if r.Header.Get("Expect") != "" || len(r.TransferEncoding) > 0 {
		t.Errorf("Expect %q, Transfer-Encoding %v, want none", r.Header.Get("Expect"), r.TransferEncoding)
	}
	if _, err := s.Put(t.Context(), "k", io.MultiReader(strings.NewReader(digits)), -1, muxcore.PutOptions{}); err != nil {
		t.Error(err)
	}
	if r := got.last(t); !slices.Equal(r.TransferEncoding, []string{"chunked"}) {
		t.Errorf("a body of unknown length comes with Transfer-Encoding %v", r.TransferEncoding)
	}
	before := got.count()
	for name, bad := range map[string]muxcore.Attributes{
		"Content-Type": {ContentType: "a\r\nX-Evil: 1"}, "a b": {Metadata: map[string]string{"a b": "c"}}, "colour": {Metadata: map[string]string{"colour": "\x00"}},
	} {
		_, err := s.Put(t.Context(), "k", strings.NewReader("x"), 1, muxcore.PutOptions{Attributes: bad})
		if !errors.Is(err, muxcore.ErrUnsupported) || !strings.Contains(err.Error(), name) {
			t.Errorf("Put with %+v = %v, want UNSUPPORTED that names %s", bad, err, name)
		}
	}
	if got.count() != before {
		t.Error("the origin was asked for what cannot be sent")
	}
}

func TestAPutOverHTTP2(t *testing.T) {
	o := new(origin)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 {
			t.Errorf("the origin is asked by %s", r.Proto)
		}
		if r.Header.Get("X-Meta-Refuse") != "" {
			w.WriteHeader(http.StatusRequestEntityTooLarge)
			return
		}
		o.ServeHTTP(w, r)
	}))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	t.Cleanup(srv.Close)
	s := open(t, httpstore.Settings{BaseURL: srv.URL, TLSInsecure: true})
	for _, size := range []int64{0, 10, 1 << 20} {
		if _, err := s.Put(t.Context(), "k", io.LimitReader(zeros{}, size), size, muxcore.PutOptions{}); err != nil {
			t.Errorf("Put of %d bytes = %v", size, err)
		}
		if _, got, err := read(t, s, "k", muxcore.GetOptions{}); err != nil || int64(len(got)) != size {
			t.Errorf("Get of %d bytes = %d, %v", size, len(got), err)
		}
	}
	errHungUp := errors.New("the uploader hung up")
	if _, err := s.Put(t.Context(), "k", &failing{r: io.LimitReader(zeros{}, 100_000), err: errHungUp}, 1<<20, muxcore.PutOptions{}); !errors.Is(err, errHungUp) {
		t.Errorf("Put with a body that fails = %v", err)
	}
	refuse := muxcore.PutOptions{Attributes: muxcore.Attributes{Metadata: map[string]string{"refuse": "1"}}}
	within(t, "Put", func() {
		if _, err := s.Put(t.Context(), "k", zeros{}, 1<<40, refuse); muxcore.CodeOf(err) != muxcore.CodeTooLarge {
			t.Errorf("Put that is refused early = %v, want TOO_LARGE", err)
		}
	})
	body := newStuckBody(100_000)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-body.stuck
		cancel()
	}()
	within(t, "Put", func() {
		if _, err := s.Put(ctx, "k", body, 1<<20, muxcore.PutOptions{}); !errors.Is(err, context.Canceled) {
			t.Errorf("Put of a body that hangs = %v", err)
		}
	})
	close(body.let)
	if _, got, err := read(t, s, "k", muxcore.GetOptions{}); err != nil || len(got) != 1<<20 {
		t.Errorf("after three failed puts, Get = %d bytes, %v", len(got), err)
	}
}

func TestConditionsAreRefusedWhereTheyMightBeIgnored(t *testing.T) {
	var asked seen
	s := open(t, httpstore.Settings{BaseURL: serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked.note(r) }))})
	cond := muxcore.Conditions{IfNoneMatch: "*"}
	_, perr := s.Put(t.Context(), "k", strings.NewReader("x"), 1, muxcore.PutOptions{Conditions: cond})
	_, derr := s.Delete(t.Context(), "k", muxcore.DeleteOptions{Conditions: cond})
	if !errors.Is(perr, muxcore.ErrUnsupported) || !errors.Is(derr, muxcore.ErrUnsupported) || asked.count() != 0 {
		t.Errorf("Put = %v, Delete = %v after %d requests, want UNSUPPORTED after none", perr, derr, asked.count())
	}
	if muxcore.CapabilitiesOf(s).ConditionalWrite {
		t.Error("Capabilities: ConditionalWrite")
	}
}

func TestSettingsAreCheckedByName(t *testing.T) {
	for want, set := range map[string]httpstore.Settings{
		"base_url: missing":                                          {},
		"base_url: must begin with http:// or":                       {BaseURL: "ftp://host/"},
		"base_url: must begin with http:// or https://, got scheme":  {BaseURL: "ftp://host/?hush"},
		`base_url: must begin with http:// or https://, "host/path"`: {BaseURL: "host/path"},
		"base_url: has no host":                                      {BaseURL: "http:///path"},
		"base_url: 99999 is no port":                                 {BaseURL: "http://host:99999/"},
		"base_url: 0 is no port":                                     {BaseURL: "https://host:0"},
		"base_url: must have no query":                               {BaseURL: "http://host/?x=1"},
		"base_url: must have no fragment":                            {BaseURL: "http://host/#x"},
		"base_url: not a URL":                                        {BaseURL: "http://user:hush/hush@host:bad/"},
		"base_url: not a URL: invalid port":                          {BaseURL: "http://host:bad/"},
		"health_uri: must be a path":                                 {BaseURL: "http://host", HealthURI: "http://other/up"},
		"health_uri: not a path":                                     {BaseURL: "http://host", HealthURI: "%zz"},
		`header: "a b" is not the name`:                              {BaseURL: "http://host", Header: http.Header{"a b": {"hush"}}},
		"header: Range cannot be set":                                {BaseURL: "http://host", Header: http.Header{"range": {"hush"}}},
		"header: the value of X has a character":                     {BaseURL: "http://host", Header: http.Header{"X": {"hush\n"}}},
		"header: Authorization cannot be set":                        {BaseURL: "http://u:hush@host", Header: http.Header{"Authorization": {"hush"}}},
		"tls_insecure: has no effect":                                {BaseURL: "http://host", TLSInsecure: true},
		"tls_server_name: has no effect":                             {BaseURL: "https://host", TLSServerName: "x", Transport: http.DefaultTransport},
		"tls_ca_file: open":                                          {BaseURL: "https://host", TLSCAFile: "/does/not/exist"},
		"tls_ca_file: no certificate":                                {BaseURL: "https://host", TLSCAFile: "put_test.go"},
		"tls_key_file: missing":                                      {BaseURL: "https://host", TLSCertFile: "x"},
		"tls_cert_file: missing":                                     {BaseURL: "https://host", TLSKeyFile: "x"},
		"tls_cert_file, tls_key_file: open /does":                    {BaseURL: "https://host", TLSCertFile: "/does/not", TLSKeyFile: "/exist"},
	} {
		s, err := httpstore.New(set)
		if err == nil || s != nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "hush") {
			t.Errorf("New(%+v) = %v, %v, want an error that begins with %q", set, s, err, want)
		}
		early := set.Check() // which opens no file
		if ofFiles := strings.Contains(want, ": open") || strings.Contains(want, "no certificate"); ofFiles == (early != nil) || !ofFiles && early.Error() != err.Error() {
			t.Errorf("Check of %+v = %v, New says %v", set, early, err)
		}
	}
	if _, err := httpstore.New(httpstore.Settings{BaseURL: "https://host/base", Header: maps.Clone(http.Header{"X": {"y"}})}); err != nil {
		t.Error(err)
	}
}
